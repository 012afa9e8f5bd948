"""The durable store of a run as the supervisor sees it: it gets what is healthy, and gives back what this machine has
not.

A store that does not answer never stops a training that can go on from this machine. Only where it decides what is
lost, at the begin of a run without a checkpoint here and at the end, is it waited for, and not for ever.
"""

import queue
import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from stages.errors import TryAgain
from stages.files import fsync_directory
from stages.journal import Journal
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.checkpoints.background import Background
from stages.pretrain.checkpoints.durable import DurableStore
from stages.pretrain.checkpoints.index import Published
from stages.pretrain.checkpoints.remote_files import RemoteFiles, Unreachable
from stages.pretrain.checkpoints.uploader import Uploader
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import RunDirectory

T = TypeVar("T")

# For a store that is asked although the run can go on without its answer.
SHORT_PATIENCE_SECONDS = 5.0
POLL_SECONDS = 0.05
ANEW = "anew"


def begin_anew(run: Path) -> None:
    """Let the run in this directory, which is empty, begin from nothing, whatever the durable store has of it."""
    run.mkdir(parents=True, exist_ok=True)
    (run / ANEW).touch()


class DurableTier:
    """Used from the thread of the supervisor; its own thread, begun by `recover`, sends."""

    def __init__(
        self,
        config: PretrainConfig,
        run: RunDirectory,
        journal: Journal,
        *,
        interrupt: Callable[[], None],
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """interrupt: called several times a second while a method waits, which ends with what it raises. options: of
        the fsspec file system. Raises InputError if there is no such file system."""
        self._config, self._run, self._journal = config, run, journal
        self._interrupt = interrupt
        self._background = Background("durable store")
        self._told: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()
        self.files = RemoteFiles(config.durable_url, tell=self._tell, options=options)
        self._store = DurableStore(self.files, run)
        self._uploader = Uploader(
            self._store,
            durable_steps=config.durable_steps(),
            newest=config.keep_local,
            keep_every=config.keep_every,
            tell=self._tell,
        )

    def recover(self) -> dict[int, Published]:
        """Bring the newest checkpoint of the store here, if it is newer than all here, and begin to send. Returns what
        the store knows of the checkpoints of the run. Raises InputError if it may not be used; TryAgain if it does not
        answer and there is no checkpoint here, as nobody can say whether the run has to begin anew."""
        newest = max(checkpoint.scan(self._run.checkpoints).complete, default=0)
        patience = SHORT_PATIENCE_SECONDS if newest else self._config.durable_wait_seconds
        known: dict[int, Published] = {}
        try:
            self._meanwhile(partial(self._store.begin, patience_seconds=patience))
            if not self._begins_anew:
                known = self._meanwhile(partial(self._store.published, patience_seconds=patience))
                self._meanwhile(partial(self._fetch, lambda step: step > newest, patience))
        except Unreachable as error:
            if not newest:
                raise TryAgain(
                    f"{error}. There is no checkpoint on this machine, and whether there is one in "
                    f"{self._config.durable_url} cannot be said: run the same command again when it answers, or "
                    "leave out pretrain.durable_url to begin anew"
                ) from error
            self._journal.warning(f"{error}. The run goes on from step {newest}, the newest checkpoint on this machine")
        self._uploader.start()
        return known

    def fetch(self, wanted: Callable[[int], bool]) -> int:
        """Bring the newest checkpoint of the store for which `wanted` holds into the run directory. Returns its step, 0
        if there is none. Raises TryAgain if the store does not answer."""
        if self._begins_anew:
            return 0
        try:
            return self._meanwhile(partial(self._fetch, wanted, self._config.durable_wait_seconds))
        except Unreachable as error:
            raise TryAgain(
                f"{error}. There is no checkpoint to go on from on this machine; run the same command again when "
                f"{self._config.durable_url} answers"
            ) from error

    def _fetch(self, wanted: Callable[[int], bool], patience_seconds: float) -> int:
        sizes = self._store.complete(patience_seconds=patience_seconds)
        for step in [step for step in reversed(sizes) if wanted(step)]:
            began = time.monotonic()
            try:
                index = self._store.index(step, sizes[step], patience_seconds=patience_seconds)
            except FileNotFoundError:
                continue
            work = self._store.restore(index, patience_seconds=patience_seconds) if index else None
            if index is None or work is None:
                text = f"checkpoint {step} in {self.files.url} is damaged and has been passed over"
                self._tell("warning", text=text)
                self._uploader.distrust(step)
                continue
            final = self._run.checkpoints / checkpoint.step_name(step)
            if final.exists():
                checkpoint.set_aside(final, checkpoint.DAMAGED)  # it is incomplete, or it would not be fetched
            work.rename(final)
            fsync_directory(self._run.checkpoints)
            seconds = round(time.monotonic() - began, 3)
            self._tell("checkpoint.restored", step=step, url=self.files.url, bytes=index.bytes, seconds=seconds)
            return step
        return 0

    def offer(self, folder: Path, made: Published) -> None:
        """This checkpoint has been published and lies in `folder`."""
        self._uploader.offer(folder, made)

    def tell(self) -> None:
        """Put what the store's threads had to say into the journal."""
        while not self._told.empty():
            kind, fields = self._told.get()
            self._journal.event(kind, **fields)

    def wait(self) -> None:
        """Until all that is to be kept is on the store, and nothing else. Raises TryAgain when nothing has got through
        for durable_wait_seconds, and what ended the thread that sends, if something did."""
        began = time.monotonic()
        uploader = self._uploader
        while (missing := [*uploader.missing(), *uploader.unrecorded()]) or uploader.extra():
            self.tell()
            self._interrupt()
            if uploader.error is not None:
                raise uploader.error
            silent = time.monotonic() - max(began, self.files.progress_at)
            if silent > self._config.durable_wait_seconds:
                if not missing:  # something is left that takes room, and nothing is lost
                    break
                raise TryAgain(
                    f"training is done, but the checkpoints of steps {sorted({*missing})} have not got to "
                    f"{self._config.durable_url} yet, where nothing was accepted for {silent:.0f} s: run the same "
                    "command again when it answers; what was sent is not sent again"
                )
            time.sleep(POLL_SECONDS)
        self.tell()

    def close(self) -> None:
        """End the thread that sends."""
        self._uploader.close()
        self.tell()

    def _meanwhile(self, work: Callable[[], T]) -> T:
        """What `work` gives, in a thread of its own, while this one goes on telling."""
        future = self._background.submit(work)
        try:
            while not future.done():
                self._interrupt()
                self.tell()
                wait([future], POLL_SECONDS)
            return future.result()
        except BaseException:
            if not future.done():
                self.files.stop.set()
            raise
        finally:
            self.tell()

    @property
    def _begins_anew(self) -> bool:
        return (self._run.path / ANEW).exists()

    def _tell(self, kind: str, **fields: Any) -> None:
        self._told.put((kind, fields))
