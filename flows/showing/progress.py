"""What the Prefect UI shows of a stage while it runs: how far it is, and of a training its loss.

Both are renewed every few seconds at most, in the background, and a server that does not answer stops nothing.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from prefect.artifacts import acreate_progress_artifact, aupdate_progress_artifact

from flows.showing.events import HEALTHY
from flows.showing.ui import slug, tolerant

if TYPE_CHECKING:
    from flows.stage_task import Run

PROGRESS_SECONDS = 3.0
CHART_SECONDS = 60.0
CLOSE_SECONDS = 20.0


class Renewed:
    """Something shown that `ask` has renewed in the background, one time after another, and not more often than every
    `seconds`; `close` renews it a last time if it is not what was asked for last."""

    def __init__(self, renew: Callable[[], Any], seconds: float) -> None:
        self._renew, self._seconds = renew, seconds
        self._asked = False
        self._wake, self._renewing = asyncio.Event(), asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def ask(self) -> None:
        self._asked = True
        self._wake.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def close(self, *, at_once: bool = False) -> None:
        """at_once: nobody waits for it."""
        if self._task is None:
            return
        try:
            if not at_once:
                with tolerant():
                    await asyncio.wait_for(self._finish(), CLOSE_SECONDS)
        finally:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _finish(self) -> None:
        async with self._renewing:  # one may be on its way
            if self._asked:
                await self._once()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            async with self._renewing:
                await self._once()
            await asyncio.sleep(self._seconds)

    async def _once(self) -> None:
        self._asked = False
        with tolerant():
            await self._renew()


class Progress:
    """The progress artifact of a task run: made with the first step that is told, exact in the end."""

    def __init__(self, run: "Run", stage: str, seconds: float = PROGRESS_SECONDS) -> None:
        self._key = slug(f"progress-{stage}-{run.recipe.name}")
        self._percent, self._text = 0.0, ""
        self._made: UUID | None = None
        self._renewed = Renewed(self._renew, seconds)

    def __call__(self, event: dict[str, Any]) -> None:
        done, total = event["done"], event["total"]
        self._percent = round(100 * min(done / total, 1.0), 2) if total else 0.0
        self._text = f"{event['name']}: {done:,} of {total:,} {event['unit']} {event.get('text', '')}".rstrip()
        self._renewed.ask()

    async def close(self, *, at_once: bool = False) -> None:
        await self._renewed.close(at_once=at_once)

    async def _renew(self) -> None:
        if self._made is None:
            self._made = await acreate_progress_artifact(self._percent, key=self._key, description=self._text)
        else:
            await aupdate_progress_artifact(self._made, self._percent, description=self._text)


class LossChart:
    """The loss of a training so far, drawn again after a checkpoint and at its end."""

    def __init__(self, run: "Run", seconds: float = CHART_SECONDS) -> None:
        self._run = run
        self._directory: Path | None = None
        self._heldout: dict[int, float] = {}
        self._renewed = Renewed(self._renew, seconds)

    def __call__(self, event: dict[str, Any]) -> None:
        if event["kind"] == "stage.started":
            self._directory = self._run.store.runs_path(event["key"])
        elif event["kind"] == HEALTHY and event.get("heldout_loss") is not None:
            self._heldout[event["step"]] = event["heldout_loss"]
        if event["kind"] in ("checkpoint.saved", HEALTHY, "stage.finished") and self._directory:
            self._renewed.ask()

    async def close(self, *, at_once: bool = False) -> None:
        await self._renewed.close(at_once=at_once)

    async def _renew(self) -> None:
        from flows.showing.artifacts import show_loss

        assert self._directory is not None
        await show_loss(self._run, self._directory, sorted(self._heldout.items()))
