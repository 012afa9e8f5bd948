"""A run directory with checkpoints that only look like ones: nothing here needs torch."""

import json
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stages.base import Inputs
from stages.journal import Journal
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.checkpoints.checkpoint import StepState
from stages.pretrain.checkpoints.keeper import Keeper
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import RunDirectory, read_lines
from stages.store import Store
from tests.stages.pretrain import micro
from tests.stages.pretrain.runs import wait_for

CONFIG = micro.config(num_steps=100, checkpoint_every_steps=50, healthy_steps=10, keep_local=2)


class World:
    """A store, a run directory and a journal whose events are in `events`."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.run = RunDirectory(self.store.runs_path("0123456789ab"))
        self.run.checkpoints.mkdir(parents=True)
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        self._keepers: list[Keeper] = []
        self.events: list[dict[str, Any]] = []
        self.journal = Journal(root / "events.jsonl", stage="pretrain", listeners=(self._heard,))

    def _heard(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        for listener in self.listeners:
            listener(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for keeper in self._keepers:
            keeper.close()
        self.journal.close()

    def save(
        self, step: int, *, heldout: tuple[float, ...] = (), digest: str = "", tensors: bytes | None = None
    ) -> Path:
        """A checkpoint whose tensors are one file of bytes, and the lines of the steps up to it."""
        for path in (self.run.metrics, self.run.timing):
            with open(path, "ab") as file:
                for missing in range(len(read_lines(path)) + 1, step + 1):
                    file.write(json.dumps({"step": missing, "seconds": 0.1}).encode() + b"\n")
        folder = self.run.checkpoints / checkpoint.step_name(step)
        (folder / "dcp").mkdir(parents=True)
        (folder / "dcp" / ".metadata").write_text("index")
        (folder / "dcp" / "__0_0.distcp").write_bytes(tensors or f"tensors of step {step}".encode())
        (folder / "config.json").write_text("{}")
        losses = tuple((50 * (number + 1), loss) for number, loss in enumerate(heldout))
        state = StepState(
            step=step,
            tokens_seen=step * 96,
            vocabulary_size=micro.VOCABULARY,
            config_fingerprint="c",
            data_fingerprint="d",
            heldout=losses,
            state_digest=digest or f"digest of step {step}",
        )
        (folder / "state.json").write_text(state.model_dump_json())
        checkpoint.seal(folder)
        return folder

    def steps(self) -> list[int]:
        return list(checkpoint.scan(self.run.checkpoints).complete)

    def keeper(self, config: PretrainConfig = CONFIG, **settings: Any) -> Keeper:
        inputs = Inputs(
            artifacts={},
            entries={},
            externals={},
            rounding={},
            store=self.store,
            key="0123456789ab",
            label="micro",
        )
        self._keepers.append(Keeper(config, inputs, self.run, micro.VOCABULARY, self.journal, **settings))
        return self._keepers[-1]

    def settle(self, keeper: Keeper, reached: int) -> None:
        """Poll until nothing is under way in the background of `keeper`, its uploads apart."""
        keeper.poll(reached)
        wait_for(lambda: keeper.poll(reached) or not keeper.is_busy, "the background of the keeper", 60)

    def told(self, kind: str) -> list[int]:
        return [event["step"] for event in self.events if event["kind"] == kind]

    def warnings(self) -> list[str]:
        return [event["text"] for event in self.events if event["kind"] == "warning"]
