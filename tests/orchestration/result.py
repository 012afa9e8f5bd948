"""What became of a case of the kill matrix, and how it stands in the table."""

from dataclasses import dataclass, field
from typing import Any

HEADERS = (
    "case",
    "state",
    "after s",
    "processes gone after s",
    "orphans",
    "goes on by",
    "step of checkpoint",
    "complete after s",
    "digests",
    "most writers",
    "leases",
    "next run after s",
)


@dataclass
class Result:
    """What became of one case. Seconds are from the fault on, save `next_seconds`, from the start of the next run.
    `goes_on_by`: who had it resumed; `problems`: whatever is not as it should be."""

    case: str
    state: str = ""
    name: str = ""
    message: str = ""
    state_seconds: float = 0.0
    gone_seconds: float = 0.0
    orphans: int = 0
    goes_on_by: str = ""
    checkpoint_step: int = 0
    complete_seconds: float = 0.0
    digests_equal: bool = False
    writers: int = 0
    leases: int = 0
    next_seconds: float = 0.0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def row(self) -> list[Any]:
        return [
            self.case,
            self.name or self.state,
            self.state_seconds,
            self.gone_seconds,
            self.orphans,
            self.goes_on_by,
            self.checkpoint_step,
            self.complete_seconds,
            "equal" if self.digests_equal else "differ",
            self.writers,
            self.leases,
            self.next_seconds,
        ]
