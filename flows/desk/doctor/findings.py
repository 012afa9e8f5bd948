"""What the doctor has found, one line each."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

UP = "python -m flows.desk up"  # what mends most


class Level(StrEnum):
    """ok: as it should be. warn: works, but may surprise. fail: something of the desk does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`fix` says what to do; it is there unless all is well."""

    level: Level
    subject: str
    text: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.level.value:4}  {self.subject}: {self.text}" + (f"\n      {self.fix}" if self.fix else "")


def ok(subject: str, text: str) -> Finding:
    return Finding(level=Level.OK, subject=subject, text=text)


def warn(subject: str, text: str, fix: str) -> Finding:
    return Finding(level=Level.WARN, subject=subject, text=text, fix=fix)


def fail(subject: str, text: str, fix: str) -> Finding:
    return Finding(level=Level.FAIL, subject=subject, text=text, fix=fix)


def summary(findings: Iterable[Finding]) -> str:
    """How many of each level."""
    levels = [finding.level for finding in findings]
    return ", ".join(f"{levels.count(level)} {level.value}" for level in Level)
