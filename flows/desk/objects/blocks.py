"""The blocks through which the desk tells somebody: those that `[[blocks]]` of desk.toml declares, kept on the server,
and one for e-mail over SMTP, which Prefect itself does not have.

A secret comes from an environment variable and goes into a block. It never stands in a message of ours, and what a
library says about it is not repeated.
"""

import asyncio
import inspect
import json
import os
import smtplib
import ssl
from collections.abc import Mapping, Sequence
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any, Literal

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
from httpx import HTTPError
from prefect.blocks import notifications, webhook  # noqa: F401  (their types are known by slug once they are imported)
from prefect.blocks.abstract import NotificationBlock, NotificationError
from prefect.blocks.core import Block
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import BlockDocumentCreate, BlockDocumentUpdate
from prefect.client.schemas.objects import BlockDocument
from prefect.exceptions import ObjectNotFound
from prefect.utilities.dispatch import get_registry_for_type
from pydantic import Field, SecretStr, ValidationError, model_validator

from data.errors import InputError
from flows.desk.settings import BlockSettings, is_loopback


class Email(NotificationBlock):
    """Sends messages to people by e-mail, over an SMTP server."""

    _block_type_name = "Email"
    _block_type_slug = "email"

    host: str = Field(description="Name of the SMTP server")
    port: int = Field(default=587, ge=1, le=65535, description="587 for starttls, 465 for tls, mostly")
    security: Literal["starttls", "tls", "none"] = Field(
        default="starttls",
        description="starttls: encrypted once connected; tls: from the start; none: no password but to loopback",
    )
    username: str = Field(default="", description="Empty: without logging in")
    password: SecretStr = Field(default=SecretStr(""), description="The password that belongs to it")
    sender: str = Field(description="Address that the messages come from")
    recipients: list[str] = Field(min_length=1, description="Addresses that they go to")
    timeout_seconds: float = Field(default=30.0, gt=0, description="For every answer of the server")

    @model_validator(mode="after")
    def _keeps_its_password(self) -> "Email":
        if self.security == "none" and self.username and not is_loopback(self.host):
            raise ValueError('security = "none" would send the password over the network as it is')
        return self

    async def notify(self, body: str, subject: str | None = None) -> None:
        """Send `body` to all recipients. Within `raise_on_failure`, raises NotificationError with what went wrong, and
        without what is secret; else a failure is logged."""
        try:
            await asyncio.to_thread(self._send, self._message(body, subject or "Longhaul"))
        except (smtplib.SMTPException, OSError) as error:
            reason = f"{self.host}:{self.port} has not taken the message: {_reason(error)}"
            if self._raise_on_failure:
                raise NotificationError(reason) from None
            self.logger.warning("%s", reason)

    def _message(self, body: str, subject: str) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"] = self.sender, ", ".join(self.recipients)
        message["Subject"] = " ".join(subject.split())  # a header is one line
        message["Date"], message["Message-ID"] = formatdate(localtime=True), make_msgid(domain="longhaul")
        message.set_content(body)
        return message

    def _send(self, message: EmailMessage) -> None:
        context = ssl.create_default_context()
        domain = self.sender.rpartition("@")[2]  # else smtplib asks the name service who we are, and may wait for it
        place: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "local_hostname": domain,
            "timeout": self.timeout_seconds,
        }
        server = smtplib.SMTP_SSL(**place, context=context) if self.security == "tls" else smtplib.SMTP(**place)
        with server:
            if self.security == "starttls":
                server.starttls(context=context)
            if self.username:
                server.login(self.username, self.password.get_secret_value())
            refused = server.send_message(message)
        if refused:
            raise smtplib.SMTPRecipientsRefused(refused)


def _reason(error: Exception) -> str:
    """Kind of an error, and the server's code: its text may repeat what it was sent."""
    code = getattr(error, "smtp_code", None)
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return f"refused for {', '.join(error.recipients)}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__ + (f" ({code})" if code else "")


async def keep_blocks(declared: Sequence[BlockSettings], client: PrefectClient) -> tuple[list[str], list[str]]:
    """Create or update the declared blocks on the server. Returns what changed, and what a user has to mend. A block
    that is there stays as it is while a variable of its secrets is not set."""
    changed: list[str] = []
    problems: list[str] = []
    for block in declared:
        try:
            if done := await _keep(block, client):
                changed.append(f"block {block.slug}: {done}")
        except InputError as error:
            problems.append(str(error))
    return changed, problems


async def _keep(declared: BlockSettings, client: PrefectClient) -> str:
    kind = block_type(declared)
    document = await find_document(declared.slug, client)
    missing = [variable for variable in declared.secrets.values() if variable not in os.environ]
    if missing and document:
        return ""
    if missing:
        raise InputError(
            f"[[blocks]] {declared.slug}: set the environment variable {' and '.join(missing)}, which its secrets come "
            "from; once the block is on the server, they are no longer needed"
        )
    block = build(kind, declared)
    try:
        await kind.aregister_type_and_schema(client=client)
        data = _data(block, declared.name)
        if document is None:
            made = BlockDocumentCreate(
                name=declared.name, data=data, block_type_id=kind._block_type_id, block_schema_id=kind._block_schema_id
            )
            await client.create_block_document(made)
            return "created"
        if document.data == data and document.block_schema_id == kind._block_schema_id:
            return ""
        change = BlockDocumentUpdate(block_schema_id=kind._block_schema_id, data=data, merge_existing_data=False)
        await client.update_block_document(document.id, change)
    except HTTPError as error:  # whose text holds the server's answer, and that what it was sent
        code = getattr(getattr(error, "response", None), "status_code", type(error).__name__)
        raise InputError(f"[[blocks]] {declared.slug}: the server has not taken it ({code})") from None
    return "updated"


def block_type(declared: BlockSettings) -> type[Block]:
    """The class of a declared block. Raises InputError."""
    kinds = (get_registry_for_type(Block) or {}).values()
    known = {kind.get_block_type_slug(): kind for kind in kinds if not inspect.isabstract(kind)}
    if declared.type not in known:
        told = sorted(slug for slug, kind in known.items() if tells(kind))
        raise InputError(f"[[blocks]] {declared.slug}: there is no block type {declared.type}; {', '.join(told)} are")
    return known[declared.type]


def tells(kind: type[Block]) -> bool:
    """Whether somebody can be told through a block of this type."""
    return issubclass(kind, webhook.Webhook) or "notify" in kind.get_block_capabilities()


async def find_document(slug: str, client: PrefectClient) -> BlockDocument | None:
    """The block `type/name` on the server, with its secrets; None if there is none."""
    kind, _, name = slug.partition("/")
    try:
        return await client.read_block_document_by_name(name, kind, include_secrets=True)
    except ObjectNotFound:
        return None


def build(kind: type[Block], declared: BlockSettings) -> Block:
    """The declared block, its secrets from the environment. Raises InputError that names fields, and no value."""
    values: dict[str, Any] = dict(declared.fields)
    if issubclass(kind, webhook.Webhook) and "headers" not in declared.secrets:
        values["headers"] = {"Content-Type": "application/json", **dict(values.get("headers", {}))}
    for field, variable in declared.secrets.items():
        _put(values, field.split("."), os.environ[variable], declared)
    where, known = f"[[blocks]] {declared.slug}", ", ".join(kind.model_fields)
    if unknown := [field for field in values if field not in kind.model_fields]:
        raise InputError(f"{where} has no field {', '.join(unknown)}; known here: {known}")
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, entry['loc'])) or 'all of it'} ({entry['type']})" for entry in error.errors()]
        raise InputError(f"{where} is not valid: {', '.join(faults)}; its fields: {known}") from None
    except Exception as error:  # of any block's own checks
        raise InputError(f"{where} is not valid ({type(error).__name__}); its fields: {known}") from None


def _data(block: Block, name: str) -> dict[str, Any]:
    """What the server keeps, secrets included."""
    data: dict[str, Any] = json.loads(json.dumps(block._to_block_document(name=name, include_secrets=True).data))
    return data


def _put(values: dict[str, Any], path: Sequence[str], secret: str, declared: BlockSettings) -> None:
    """`headers.Authorization` is an entry of the table `headers`."""
    *parents, field = path
    table: Any = values
    for parent in parents:
        inner = table.get(parent, {}) if isinstance(table, Mapping) else None
        if not isinstance(inner, Mapping):
            raise InputError(f"[[blocks]] {declared.slug}: {'.'.join(path)} is in no table")
        table[parent] = dict(inner)
        table = table[parent]
    table[field] = secret
