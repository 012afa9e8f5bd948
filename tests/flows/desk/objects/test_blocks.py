"""A user relies on: a message reaches people by e-mail, encrypted where that was asked for; a declared block is made of
what is written and of the environment; and a secret stands nowhere but in its block."""

import asyncio
import logging
import re
import tomllib
from pathlib import Path
from typing import Any

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
import pytest
from prefect.blocks.abstract import NotificationError
from prefect.blocks.core import Block

from data.errors import InputError
from flows.alerts import _call
from flows.desk.objects.blocks import Email, block_type, build, tells
from flows.desk.settings import SETTINGS, BlockSettings, DeskSettings
from stages.alerts import Kind, Notice, State
from tests.flows.mailbox import Mailbox, certify, mailbox

SECRET = "correct-horse-battery"


def email(box: Mailbox, **fields: Any) -> Email:
    plain = {"host": "127.0.0.1", "port": box.port, "security": "none", "sender": "desk@here", "timeout_seconds": 10}
    return Email(**{"recipients": ["ops@here", "night@here"], **plain, **fields})


def send(block: Email, body: str = "", subject: str | None = None) -> None:
    async def told() -> None:
        with block.raise_on_failure():
            await block.notify(body, subject)

    asyncio.run(told())


def test_a_message_arrives_whole() -> None:
    body = "Überraschung\n.\n..two dots begin this line\nand the last"
    with mailbox() as box:
        send(email(box), body, "demo: regression\r\nBcc: somebody@else")
    (message,) = box.messages
    assert message["Subject"] == "demo: regression Bcc: somebody@else" and message["Bcc"] is None
    assert message["From"] == "desk@here" and message["To"] == "ops@here, night@here"
    assert message.get_content().splitlines() == body.splitlines() and box.recipients == [["ops@here", "night@here"]]


def test_starttls_encrypts_before_anybody_logs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = certify(tmp_path / "certificate.pem")
    with mailbox(SECRET, certificate) as box:
        block = email(box, security="starttls", username="desk", password=SECRET)
        with pytest.raises(NotificationError):
            send(block)
        assert (box.logins, box.messages) == ([], []), "to a server that is not trusted nothing is told"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        send(block, "all is well")
    assert box.logins == [("desk", SECRET)] and box.encrypted == [True]


def test_tls_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = certify(tmp_path / "certificate.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with mailbox(SECRET, certificate, tls=True) as box:
        send(email(box, security="tls", username="desk", password=SECRET), "all is well")
    assert box.logins == [("desk", SECRET)] and box.encrypted == [True]


def test_a_server_without_starttls_gets_no_password() -> None:
    with mailbox(SECRET) as box, pytest.raises(NotificationError):
        send(email(box, security="starttls", username="desk", password=SECRET))
    assert box.logins == []


@pytest.mark.parametrize(
    ("code", "refuses", "password", "words"),
    [
        (250, frozenset(), "another", r"SMTPAuthenticationError \(535\)"),
        (451, frozenset(), SECRET, r"SMTPDataError \(451\)"),
        (250, frozenset({"night@here"}), SECRET, "refused for night@here"),
    ],
)
def test_a_failure_says_what_and_nothing_secret(
    code: int, refuses: frozenset[str], password: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with mailbox(SECRET) as box:
        box.code, box.refuses = code, refuses
        block = email(box, username="desk", password=password)
        with pytest.raises(NotificationError) as failure:
            send(block)
        with caplog.at_level(logging.WARNING):
            asyncio.run(block.notify("again"))
    assert re.search(words, failure.value.log)
    assert failure.value.log in caplog.text
    assert password not in failure.value.log and password not in caplog.text and password not in repr(failure.value)
    assert failure.value.__cause__ is None


def test_no_password_goes_over_a_network_in_the_clear() -> None:
    open_to_all = {"host": "smtp.example.org", "port": 25, "security": "none", "sender": "a@b", "recipients": ["c@d"]}
    assert Email(**open_to_all)
    with pytest.raises(ValueError, match="over the network as it is"):
        Email(**open_to_all, username="desk", password=SECRET)


def test_a_server_that_is_away_is_a_failure() -> None:
    with mailbox() as box:
        pass
    with pytest.raises(NotificationError) as failure:
        send(email(box))
    assert "Connection refused" in failure.value.log


def test_an_alert_of_an_evaluation_goes_out_by_e_mail() -> None:
    topics = {"topics": (("core", "bracket"),), "lines": ("bracket got worse",), "evidence": ({},)}
    notice = Notice(time=1.0, state=State.RAISED, label="demo", kind=Kind.REGRESSION, link="http://here/run", **topics)
    with mailbox() as box:
        asyncio.run(_call(email(box), notice))
        box.code = 451
        with pytest.raises(NotificationError):
            asyncio.run(_call(email(box), notice))
    (message,) = box.messages
    assert message["Subject"] == "demo: regression (bracket)"
    assert message.get_content().split() == ["bracket", "got", "worse", "http://here/run"]


def made(**declared: Any) -> Block:
    settings = BlockSettings(name="team", **declared)
    return build(block_type(settings), settings)


def test_a_declared_block_is_made_of_its_fields_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", f"http://127.0.0.1/{SECRET}")
    monkeypatch.setenv("TOKEN", f"Bearer {SECRET}")
    hook: Any = made(
        type="webhook", fields={"headers": {"X-Desk": "1"}}, secrets={"url": "HOOK", "headers.X-Key": "TOKEN"}
    )
    assert hook.url.get_secret_value().endswith(SECRET)
    assert hook.headers.get_secret_value() == {
        "Content-Type": "application/json",
        "X-Desk": "1",
        "X-Key": f"Bearer {SECRET}",
    }
    slack: Any = made(type="slack-webhook", secrets={"url": "HOOK"})
    assert slack.get_block_type_slug() == "slack-webhook" and slack.url.get_secret_value().endswith(SECRET)
    custom: Any = made(type="custom-webhook", fields={"name": "x", "url": "http://h"}, secrets={"secrets.key": "TOKEN"})
    assert custom.secrets.get_secret_value() == {"key": f"Bearer {SECRET}"}
    assert SECRET not in repr((hook, slack, custom))


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"type": "pigeon"}, "there is no block type pigeon; .*email.*slack-webhook.*webhook"),
        ({"type": "email", "fields": {"hots": "h"}}, "has no field hots; known here: host, port"),
        ({"type": "email", "fields": {"host": "h"}}, r"sender \(missing\), recipients \(missing\)"),
        ({"type": "email", "fields": {"host": "h"}, "secrets": {"port": "TOKEN"}}, r"port \(int_parsing\)"),
        ({"type": "webhook", "fields": {"url": "x"}, "secrets": {"url.key": "TOKEN"}}, "url.key is in no table"),
        ({"type": "webhook", "secrets": {"headers": "TOKEN"}}, r"url \(missing\)"),
    ],
)
def test_a_block_that_cannot_be_made_says_why_and_nothing_secret(
    declared: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    with pytest.raises(InputError, match=words) as failure:
        made(**declared)
    assert SECRET not in str(failure.value) and failure.value.__cause__ is None


def test_the_example_in_the_desk_file_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = SETTINGS.read_text().partition("\n#     notify")[2].splitlines()
    example = DeskSettings(**tomllib.loads("\n".join(["notify" + lines[0], *(line[6:] for line in lines[1:])])))
    for block in example.blocks:
        for variable in block.secrets.values():
            monkeypatch.setenv(variable, f"https://hooks.example.org/{SECRET}")
        assert tells(type(build(block_type(block), block)))
    assert {block.slug for block in example.blocks} == set(example.notify) and example.notify
