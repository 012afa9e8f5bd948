"""What became of a disturbed run, as it is judged when it is over."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from stages.pretrain.batches.sequences import open_train
from stages.pretrain.job import RunDirectory, read_lines
from stages.store import Store
from tests.chaos.ledger import Ledger, Sample, lost_and_doubled
from tests.chaos.training import config

# What a killed process may leave and the next one has to clear away.
LEFT = ("artifacts/*/.*", "runs/*/publish-*", "runs/*/**/*.tmp", "runs/*/**/.trash-*")
TOLD = ("store.stalled", "data.stalled")


@dataclass
class Happened:
    """A fault that was done, and what followed. Moments are monotonic seconds. `step`: the highest that had begun;
    `resumed_at`: begin of the first step thereafter that a process of after the fault took; None if none did before the
    next fault."""

    kind: str
    at: float
    step: int
    wall: float
    is_starting: bool
    resumed_at: float | None = None


@dataclass
class Outcome:
    """What became of a run. Durations are seconds."""

    seed: int
    family: str
    happened: list[Happened] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    first_step_at: float = 0.0
    last_step_at: float = 0.0
    step_seconds: list[float] = field(default_factory=list)
    saves: list[dict[str, Any]] = field(default_factory=list)
    incidents: list[dict[str, Any]] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    samples_lost: int = 0
    samples_doubled: int = 0
    orphans: int = 0
    stale_leases: int = 0
    leftovers: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unexpected_ends: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Self:
        return cls(**{**line, "happened": [Happened(**happened) for happened in line["happened"]]})

    def judge(self, store: Store, ledger: Ledger, *, steps: int) -> None:
        """Look at what a run of `steps` steps, which is over, has left, and put it down here."""
        ledger.poll()
        for artifact in store.all():
            self.digests[f"{artifact.stage}/{artifact.facts.get('step', '')}"] = artifact.digest
        self.stale_leases = len(list(store.artifacts_path.glob("*/.lease-*")))
        found = {path for pattern in LEFT for path in store.root.glob(pattern)}
        self.leftovers = sorted(str(path.relative_to(store.root)) for path in found if ".lease-" not in path.name)
        self.samples_lost, self.samples_doubled = lost_and_doubled(ledger, _order(store, steps))
        everything = [took for processes in ledger.ranks.values() for took in processes]
        self.first_step_at = min((min(took.begins.values()) for took in everything if took.begins), default=0.0)
        self.last_step_at = max((max(took.ends.values()) for took in everything if took.ends), default=0.0)
        for path in store.artifacts_path.glob("pretrain/*/events.jsonl"):
            self.told += [event for event in read_lines(path) if event["kind"] in TOLD]
        for path in (store.root / "runs").glob("*"):
            self._measure(RunDirectory(path))

    def _measure(self, run: RunDirectory) -> None:
        self.saves = read_lines(run.saves)
        self.step_seconds = [line["seconds"] for line in read_lines(run.timing)]
        self.incidents = [
            {
                "noticed": line["at"]["clock"] - line["noticed_before_seconds"],
                **{name: line[name] for name in ("kind", "cause", "step")},
            }
            for line in read_lines(run.path / "attempts.jsonl")
            if line["event"] == "end" and line["kind"] != "done"
        ]


def _order(store: Store, steps: int) -> dict[int, list[Sample]]:
    """The samples of each step, counted from 1, as the recipe asks for them."""
    (tokens,) = store.all("pretokenize")
    order = open_train(config({"num_steps": steps}), tokens.path).order
    expected = {}
    for step in range(1, steps + 1):
        samples = order.batch(step - 1)
        pairs = zip(samples.domain, samples.sequence, strict=True)
        expected[step] = [(int(domain), int(sequence)) for domain, sequence in pairs]
    return expected
