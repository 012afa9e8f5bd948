"""Journal events for a person: a progress bar for every long step, and one line for what matters. On a pipe, plain
lines at most every five seconds."""

import sys
import time
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from stages.journal import Event

PLAIN_INTERVAL_SECONDS = 5.0
QUIET_KINDS = frozenset(
    {"progress", "metric", "account", "alive", "checkpoint.saved", "checkpoint.storage", "checkpoint.removed"}
)


class ConsoleListener:
    """A journal listener that draws on the terminal while it is entered."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=28), MofNCompleteColumn())
        about = (TextColumn("{task.fields[unit]}"), TimeElapsedColumn(), TimeRemainingColumn())
        disabled = not self._console.is_terminal
        words = TextColumn("{task.fields[text]}")
        self._progress = Progress(*columns, *about, words, console=self._console, disable=disabled)
        self._steps: dict[tuple[str, str], _Step] = {}

    def __enter__(self) -> "ConsoleListener":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        if event["kind"] in ("stage.started", "stage.finished"):
            self._clear(event["stage"])
        if event["kind"] == "progress":
            self._show_progress(event)
        elif event["kind"] not in QUIET_KINDS and not (event["kind"] == "artifact" and not event["hit"]):
            self.line(event["stage"], _sentence(event))

    def line(self, stage: str, text: str) -> None:
        """One line above the bars."""
        self._progress.console.print(Text.assemble((f"{stage:<12} ", "bold"), text))

    def _clear(self, stage: str) -> None:
        """Take away the bars of steps that ended before their total: they had enough, or the attempt was killed."""
        for key in [key for key in self._steps if key[0] == stage]:
            self._progress.remove_task(self._steps.pop(key).bar)

    def _show_progress(self, event: Event) -> None:
        key, now = (event["stage"], event["name"]), time.monotonic()
        if key not in self._steps:
            bar = self._progress.add_task(f"{key[0]}: {key[1]}", unit="", text="", total=event["total"])
            self._steps[key] = _Step(bar, begun=now, shown=now)
        step = self._steps[key]
        text = event.get("text", "")
        self._progress.update(step.bar, total=event["total"], completed=event["done"], unit=event["unit"], text=text)
        finished = event["done"] >= event["total"]
        due = now - step.shown >= PLAIN_INTERVAL_SECONDS and not self._console.is_terminal
        if due or (finished and now - step.begun >= PLAIN_INTERVAL_SECONDS):
            step.shown = now
            counted = f"{event['done']:,} {event['unit']}" if finished else f"{event['done']:,} of {event['total']:,}"
            self.line(event["stage"], f"{event['name']}: {counted} {text}".rstrip())
        if finished:
            self._progress.remove_task(self._steps.pop(key).bar)


@dataclass
class _Step:
    """A long step on its way: its bar, and the times at which it began and was last told in a line."""

    bar: TaskID
    begun: float
    shown: float


def _sentence(event: Event) -> str:
    match event["kind"]:
        case "stage.started":
            return f"started ({event['key']})"
        case "stage.finished":
            return f"finished in {event['seconds']:.1f} s"
        case "artifact":
            return f"up to date ({event['key']})"
        case "note":
            return event["text"]
        case "warning" | "error":
            return f"{event['kind']}: {event['text']}"
        case "checkpoint.healthy":
            return f"checkpoint of step {event['step']:,} is healthy ({event['key']})"
        case "checkpoint.uploaded":
            return f"checkpoint of step {event['step']:,} is in {event['url']} ({event['seconds']:.1f} s)"
        case "checkpoint.restored":
            return f"checkpoint of step {event['step']:,} has been fetched from {event['url']}"
        case "incident":
            return f"incident after step {event['step']:,}: {event['cause']}; {event['decision']}"
        case "excluded":
            return f"the batch of step {event['step']:,} (draw {event['first']:,}) is left out from here on"
        case "group.lost":
            return f"group {event['group']} was lost ({event['cause']}); the others go on"
        case "group.joined":
            return f"group {event['group']} trains with the others, after {event['seconds']:.1f} s"
        case "data.stalled":
            return f"rank {event['rank']} has waited {event['seconds']:.0f} s for the data of step {event['step']:,}"
        case "store.stalled" | "store.failing":
            return f"{event['url']} does not answer, and is tried again ({event['operation']}: {event['error']})"
        case "store.recovered":
            return f"{event['url']} answers again after {event['seconds']:.0f} s"
        case "evaluation.compared":
            said = f"evaluation {event['candidate']} against {event['baseline']}: {event['verdict'].replace('_', ' ')}"
            return said + (f"; improved: {', '.join(event['improved'])}" if event["improved"] else "")
        case "evaluation.regressed":
            return "regressed: " + ", ".join(
                f"{task} from {found['baseline']:.4g} to {found['candidate']:.4g}"
                for task, found in event["tasks"].items()
            )
        case "metric.missing":
            return f"there is no score of {event['task']}: {event['reason']}"
        case "check":
            return f"{event['status']}: {event['name']}: {event['detail']}"
    fields = {name: value for name, value in event.items() if name not in ("time", "stage", "kind")}
    return f"{event['kind']} " + ", ".join(
        f"{name} {value}" for name, value in fields.items() if not isinstance(value, (dict, list))
    )


def fail(text: str) -> None:
    """An error for a person."""
    print(f"error: {text}", file=sys.stderr)
