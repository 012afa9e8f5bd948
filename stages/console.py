"""Journal events for a person: a progress bar for every long step, and one line for what matters. On a pipe, plain
lines at most every five seconds."""

import sys
import time
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

from stages.journal import Event

PLAIN_INTERVAL_SECONDS = 5.0
QUIET_KINDS = frozenset({"progress", "metric", "checkpoint.saved"})


class ConsoleListener:
    """A journal listener that draws on the terminal while it is entered."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
        )
        times = (TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[text]}"))
        self._progress = Progress(
            *columns, *times, console=self._console, transient=False, disable=not self._console.is_terminal
        )
        self._bars: dict[tuple[str, str], TaskID] = {}
        self._plain_at: dict[tuple[str, str], float] = {}

    def __enter__(self) -> "ConsoleListener":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        if event["kind"] == "progress":
            self._show_progress(event)
        elif event["kind"] not in QUIET_KINDS:
            self.line(event["stage"], _sentence(event))

    def line(self, stage: str, text: str) -> None:
        """One line above the bars."""
        self._progress.console.print(f"[bold]{stage:<12}[/bold]", end=" ")
        self._progress.console.print(text, markup=False)

    def _show_progress(self, event: Event) -> None:
        key = (event["stage"], event["name"])
        if not self._console.is_terminal:
            self._show_plain(key, event)
            return
        fields = {
            "total": event["total"],
            "completed": event["done"],
            "unit": event["unit"],
            "text": event.get("text", ""),
        }
        if key not in self._bars:
            self._bars[key] = self._progress.add_task(f"{key[0]}: {key[1]}", unit="", text="", total=event["total"])
        self._progress.update(self._bars[key], **fields)

    def _show_plain(self, key: tuple[str, str], event: Event) -> None:
        done = event["done"] >= event["total"]
        if done or time.monotonic() - self._plain_at.get(key, 0.0) >= PLAIN_INTERVAL_SECONDS:
            self._plain_at[key] = time.monotonic()
            self.line(
                event["stage"],
                f"{event['name']}: {event['done']:,} of {event['total']:,} {event['unit']} {event['text']}".rstrip(),
            )


def _sentence(event: Event) -> str:
    match event["kind"]:
        case "stage.started":
            return f"started ({event['key']})"
        case "stage.finished":
            return f"finished in {event['seconds']:.1f} s"
        case "warning" | "note":
            return event["text"] if event["kind"] == "note" else f"warning: {event['text']}"
        case "check":
            return f"{event['status']}: {event['name']}: {event['detail']}"
    fields = {name: value for name, value in event.items() if name not in ("time", "stage", "kind")}
    return f"{event['kind']} " + ", ".join(
        f"{name} {value}" for name, value in fields.items() if not isinstance(value, (dict, list))
    )


def fail(text: str) -> None:
    """An error for a person."""
    print(f"error: {text}", file=sys.stderr)
