"""An SMTP server on loopback, which keeps what it is sent."""

import base64
import datetime
import ipaddress
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Mailbox:
    """What has been received, oldest first. logins: (user, password) of each attempt. refuses: addresses that are
    turned away; code: the answer to every message, if not 250."""

    port: int = 0
    code: int = 250
    refuses: frozenset[str] = frozenset()
    messages: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    logins: list[tuple[str, str]] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)


class _Session(socketserver.StreamRequestHandler):
    """One connection."""

    mailbox: Mailbox
    certificate: Path | None
    tls: bool
    password: str

    def setup(self) -> None:
        if self.tls:
            self.request = self.encrypted(self.request)
        super().setup()

    def encrypted(self, connection: Any) -> Any:
        assert self.certificate
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        return context.wrap_socket(connection, server_side=True)

    def handle(self) -> None:
        self.said: list[str] = []
        self.secure = self.tls
        self.answer("220 here")
        while line := self.rfile.readline().decode().strip():
            verb, _, rest = line.partition(" ")
            if verb.upper() == "QUIT":
                self.answer("221 bye")
                return
            getattr(self, f"on_{verb.lower()}", self.on_other)(rest)

    def answer(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())
        self.wfile.flush()

    def on_ehlo(self, name: str) -> None:
        offers = "250-STARTTLS\r\n" if self.certificate and not self.secure else ""
        self.answer(f"250-here\r\n{offers}250 AUTH PLAIN")

    def on_starttls(self, rest: str) -> None:
        self.answer("220 go on")
        try:
            self.connection = self.encrypted(self.connection)
        except OSError:  # the client does not trust us
            self.rfile.close()
            self.rfile = open("/dev/null", "rb")  # noqa: SIM115
            return
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb")
        self.secure = True

    def on_auth(self, rest: str) -> None:
        _, user, password = base64.b64decode(rest.split()[-1]).decode().split("\0")
        self.mailbox.logins.append((user, password))
        # A server may repeat what it was sent.
        self.answer("235 in" if password == self.password else f"535 {password} is wrong")

    def on_rcpt(self, rest: str) -> None:
        address = rest.partition("<")[2].partition(">")[0]
        refused = address in self.mailbox.refuses
        self.said += [] if refused else [address]
        self.answer("550 nobody" if refused else "250 fine")

    def on_data(self, rest: str) -> None:
        self.answer("354 go on")
        lines: list[bytes] = []
        while (line := self.rfile.readline()) != b".\r\n":
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        if self.mailbox.code == 250:
            message = message_from_bytes(b"".join(lines), policy=policy.default)
            assert isinstance(message, EmailMessage)
            self.mailbox.messages.append(message)
            self.mailbox.recipients.append(self.said)
            self.mailbox.encrypted.append(self.secure)
        self.said = []
        self.answer(f"{self.mailbox.code} so")

    def on_other(self, rest: str) -> None:
        self.answer("250 fine")


@contextmanager
def mailbox(password: str = "", certificate: Path | None = None, *, tls: bool = False) -> Iterator[Mailbox]:
    """With a certificate, it offers STARTTLS, or with `tls` is encrypted from the start."""
    made = Mailbox()
    fields = {"mailbox": made, "certificate": certificate, "tls": tls, "password": password}
    handler = type("Session", (_Session,), fields)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        made.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


def certify(path: Path) -> Path:
    """A certificate for 127.0.0.1 that signs itself, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    path.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + certificate.public_bytes(pem))
    return path
