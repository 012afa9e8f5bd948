"""Alerts: what is wrong now, what has become well again, and who has been told.

`decide` is pure. `Ledger` keeps its outcome in alerts.jsonl under the root of a store, one JSON object a line, appended
under a lock and brought to the disk before anybody is told:

    notice      something was raised or has recovered
    delivered   a channel has taken a notice
    looked      a scheduled look at the models of a label has come to its end

So whoever is killed anywhere leaves a notice that the next one delivers; a channel may get one twice, never none.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from stages.config import StageConfig, runtime
from stages.fingerprint import digest
from stages.journal import read_events, torn

LEDGER = "alerts.jsonl"
ID_HEX_DIGITS = 12


class AlertsConfig(StageConfig):
    """Who is told, and when a missing evaluation is worth telling."""

    blocks: tuple[str, ...] = runtime(
        (),
        description="Prefect blocks that are told, as type/name: webhook/ops, slack-webhook/team. Secrets live in them",
    )
    overdue_minutes: float = runtime(
        60.0, gt=0, description="A healthy checkpoint that has waited longer for its evaluation is overdue"
    )
    regression_hours: float = runtime(
        0.0, ge=0, description="Longest time between two scheduled regression runs; 0: none is expected"
    )


class Kind(StrEnum):
    """What an alert is about."""

    REGRESSION = "regression"
    MISSING = "metric missing"
    FAILED = "evaluation failed"
    OVERDUE = "evaluation overdue"


class State(StrEnum):
    RAISED = "raised"
    RESOLVED = "resolved"


@dataclass(frozen=True, kw_only=True, order=True)
class Topic:
    """What is open at most once. label: of a line of models, of which the newest counts. suite and task: empty where
    the alert is not about one task."""

    label: str
    kind: Kind
    suite: str = ""
    task: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that is wrong. text: a sentence with the values. evidence: JSON, short."""

    topic: Topic
    text: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a look at one kind of trouble of one label brought. unknown: tasks that could not be looked at, which stay
    as they are; whatever else of this kind is open has recovered unless it was found again."""

    label: str
    kind: Kind
    found: tuple[Finding, ...] = ()
    unknown: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Notice:
    """What somebody is told at once: everything of one kind and label that one look has changed. time: Unix seconds.
    topics: (suite, task). lines, evidence: of each topic; after a recovery, what had been raised. link: to what shows
    more. channels: who was to be told."""

    time: float
    state: State
    label: str
    kind: Kind
    topics: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]
    evidence: tuple[Mapping[str, Any], ...]
    link: str = ""
    channels: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return digest([self.time, self.state, self.label, self.kind, self.topics])[:ID_HEX_DIGITS]

    @property
    def title(self) -> str:
        """One line for the subject of a message."""
        tasks = [task for _, task in self.topics if task]
        what = "recovered from " if self.state is State.RESOLVED else ""
        return f"{self.label}: {what}{self.kind}" + (f" ({', '.join(tasks)})" if tasks else "")

    @property
    def text(self) -> str:
        """A line for each topic."""
        before = "no longer so: " if self.state is State.RESOLVED else ""
        return "\n".join(before + line for line in self.lines)

    def subjects(self) -> Iterator[Topic]:
        for suite, task in self.topics:
            yield Topic(label=self.label, kind=self.kind, suite=suite, task=task)


def decide(
    opened: Mapping[Topic, Finding], look: Look, now: float, *, link: str = "", channels: Sequence[str] = ()
) -> tuple[tuple[Notice, ...], tuple[Notice, ...]]:
    """(raised, resolved), each of at most one notice. opened: topics with what raised them.

    What is open is not raised again, and each recovery is told once: whoever applies both to `opened` and looks again
    gets nothing.
    """
    assert all((each.topic.label, each.topic.kind) == (look.label, look.kind) for each in look.found), look
    found = {finding.topic: finding for finding in look.found}
    ours = {topic: finding for topic, finding in opened.items() if (topic.label, topic.kind) == (look.label, look.kind)}
    new = [finding for topic, finding in sorted(found.items()) if topic not in ours]
    gone = [finding for topic, finding in sorted(ours.items()) if topic not in found and topic.task not in look.unknown]

    def notice(state: State, findings: Sequence[Finding]) -> tuple[Notice, ...]:
        if not findings:
            return ()
        made = Notice(
            time=now,
            state=state,
            label=look.label,
            kind=look.kind,
            topics=tuple((finding.topic.suite, finding.topic.task) for finding in findings),
            lines=tuple(finding.text for finding in findings),
            evidence=tuple(finding.evidence for finding in findings),
            link=link,
            channels=tuple(channels),
        )
        return (made,)

    return notice(State.RAISED, new), notice(State.RESOLVED, gone)


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the ledger says. notices: oldest first. delivered: (id of a notice, channel). looked: label -> when its
    models were last looked at on schedule."""

    notices: tuple[Notice, ...]
    delivered: frozenset[tuple[str, str]]
    looked: Mapping[str, float]

    @property
    def opened(self) -> dict[Topic, Finding]:
        """What is wrong now, as far as anybody has looked."""
        found: dict[Topic, Finding] = {}
        for notice in self.notices:
            for topic, text, evidence in zip(notice.subjects(), notice.lines, notice.evidence, strict=True):
                if notice.state is State.RAISED:
                    found[topic] = Finding(topic=topic, text=text, evidence=evidence)
                else:
                    found.pop(topic, None)
        return found

    def pending(self, channels: Sequence[str]) -> list[tuple[Notice, str]]:
        """(notice, channel) that still has to be delivered. A channel that is new hears of what is open, and not of
        what is over."""
        opened = self.opened
        return [
            (notice, channel)
            for notice in self.notices
            for channel in channels
            if (notice.id, channel) not in self.delivered
            and (
                channel in notice.channels
                or (notice.state is State.RAISED and any(topic in opened for topic in notice.subjects()))
            )
        ]


def read(path: Path) -> Known:
    """The ledger at `path`; an empty one where there is no file. A line that a kill has torn is passed over: nobody was
    told of it."""
    lines = list(read_events(path)) if path.exists() else []
    return Known(
        notices=tuple(_notice(line) for line in lines if line["record"] == "notice"),
        delivered=frozenset((line["id"], line["channel"]) for line in lines if line["record"] == "delivered"),
        looked={line["label"]: line["time"] for line in lines if line["record"] == "looked"},
    )


class Ledger:
    """alerts.jsonl of a store. `clock`: Unix seconds."""

    def __init__(self, root: Path, *, clock: Callable[[], float]) -> None:
        self.path = root / LEDGER
        self._clock = clock

    def known(self) -> Known:
        """What the ledger says now."""
        return read(self.path)

    def record(self, looks: Sequence[Look], *, link: str = "", channels: Sequence[str] = ()) -> tuple[Notice, ...]:
        """Write down what `looks` change, under a lock that makes two of us decide one after the other. Returns the
        new notices."""
        made: list[Notice] = []
        with self._locked() as descriptor:
            for look in looks:
                raised, resolved = decide(
                    self.known().opened, look, round(self._clock(), 3), link=link, channels=channels
                )
                for notice in (*raised, *resolved):
                    _append(descriptor, {"record": "notice", "id": notice.id, **asdict(notice)})
                    made.append(notice)
        return tuple(made)

    def delivered(self, notice: Notice, channel: str) -> None:
        """`channel` has taken `notice`."""
        with self._locked() as descriptor:
            record = {"record": "delivered", "id": notice.id, "channel": channel, "time": round(self._clock(), 3)}
            _append(descriptor, record)

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """Only one of us delivers at a time: what another is about to tell is no longer pending afterwards. Raises
        BlockingIOError while another one does."""
        descriptor = os.open(self.path.with_name(f".{LEDGER}.lock"), os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)

    def looked(self, label: str) -> None:
        """A scheduled look at the models of `label` has come to its end."""
        with self._locked() as descriptor:
            _append(descriptor, {"record": "looked", "label": label, "time": round(self._clock(), 3)})

    @contextmanager
    def _locked(self) -> Iterator[int]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if torn(self.path):
                os.write(descriptor, b"\n")
            yield descriptor
        finally:
            os.close(descriptor)


def _append(descriptor: int, record: Mapping[str, Any]) -> None:
    line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
    os.write(descriptor, line.encode("utf-8", "backslashreplace"))
    os.fsync(descriptor)


def _notice(line: Mapping[str, Any]) -> Notice:
    return Notice(
        time=line["time"],
        state=State(line["state"]),
        label=line["label"],
        kind=Kind(line["kind"]),
        topics=tuple((suite, task) for suite, task in line["topics"]),
        lines=tuple(line["lines"]),
        evidence=tuple(line["evidence"]),
        link=line["link"],
        channels=tuple(line["channels"]),
    )
