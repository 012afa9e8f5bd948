"""A user relies on: a batch that is left out stays left out, is told of, and is left out once, whenever the supervisor
is killed on the way. The workers are simulated here; `test_runs` has them in earnest.
"""

import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from data.errors import InputError
from data.order.batches import SampleOrder
from stages.errors import TryAgain
from stages.journal import Journal
from stages.pretrain.batches.documents import documents_of_draw
from stages.pretrain.batches.exclusions import Draws, read_exclusions
from stages.pretrain.batches.sequences import Sequences, open_train
from stages.pretrain.checkpoints.choose import nowhere
from stages.pretrain.job import Job, RunDirectory, read_lines
from stages.pretrain.supervision import supervisor
from stages.pretrain.supervision.account import Account
from stages.pretrain.supervision.capacity import Capacity
from stages.pretrain.supervision.notices import Notices
from stages.pretrain.supervision.supervise import HARDWARE, ROLL_BACK, Ending
from stages.store import Store
from tests.stages.pretrain import micro

STEPS = 20
Bad = Callable[[int, int, Draws], bool]


def never(step: int, draw: int, excluded: Draws) -> bool:
    return False


class World:
    """A run whose workers take its steps in no time, and fail at each for which bad(step, draw, excluded) holds."""

    def __init__(self, folder: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch, bad: Bad = never) -> None:
        config = micro.config(num_steps=STEPS)
        self.job = micro.worker_job(config, tokens, folder / "run")
        self.sequences = open_train(config, tokens)
        self.attempts: list[Draws] = []
        self.processes: list[int] = []
        self.suspects: list[int] = []
        self.events: list[dict[str, Any]] = []
        self._journal = Journal(folder / "events.jsonl", stage="pretrain", listeners=(self.events.append,))
        self.notices = Notices()
        self._bad = bad
        monkeypatch.setattr(supervisor, "attempt", self._attempt)

    def _attempt(self, job: Job, means: Any) -> Ending:
        self.attempts.append(job.excluded)
        self.processes.append(job.config.num_processes)
        if self.suspects:
            return Ending(exit_code=HARDWARE, cause="why", step=9, checkpoint_step=0, rank=self.suspects.pop())
        order = open_train(job.config, Path(job.tokens), excluded=job.excluded).order
        for step in range(job.resume_step, STEPS):
            draw = order.draw(step)
            if self._bad(step, draw, job.excluded):
                cause = f"step {step + 1}: loss nan"
                return Ending(exit_code=ROLL_BACK, cause=cause, step=step, checkpoint_step=0, draw=draw)
        return Ending(exit_code=0, cause="", step=STEPS, checkpoint_step=0)

    def supervise(self) -> None:
        keeper: Any = SimpleNamespace(
            forget=lambda step: None, poll=lambda step: None, fetch=nowhere, checkpoint_seconds=lambda: None
        )
        run, launcher = self.job.run, cast(Any, None)
        means = supervisor.Means(
            journal=self._journal,
            keeper=keeper,
            launcher=launcher,
            notices=self.notices,
            account=Account(run, self._journal),
            capacity=Capacity(self.job.config, run.processes),
            sequences=self.sequences,
        )
        supervisor.supervise(self.job, means)

    def told(self) -> list[int]:
        return [event["first"] for event in self.events if event["kind"] == "excluded"]

    def left_out(self) -> list[tuple[int, int]]:
        return [(found.first, found.step) for found in read_exclusions(self.job.run.excluded)]


class Killed(BaseException):
    pass


def killed_at(monkeypatch: pytest.MonkeyPatch, name: str, *, call: int) -> None:
    """Let this call of a function of the supervisor, counted from 1, be its end."""
    function, calls = getattr(supervisor, name), []

    def dies_once(*arguments: Any, **settings: Any) -> Any:
        calls.append(name)
        if len(calls) == call:
            raise Killed
        return function(*arguments, **settings)

    monkeypatch.setattr(supervisor, name, dies_once)


@pytest.mark.parametrize(
    ("name", "call", "told", "attempts"),
    [
        ("write_exclusions", 1, [14, 14], [(), (), (), (), ((14, 15),)]),  # told again, since it was not yet decided
        ("choose", 3, [14], [(), (), ((14, 15),)]),
    ],
)
def test_a_kill_around_an_exclusion_neither_loses_nor_repeats_it(
    tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch, name: str, call: int, told: list[int], attempts: Any
) -> None:
    world = World(tmp_path, tokens, monkeypatch, lambda step, draw, excluded: draw == 14)
    killed_at(monkeypatch, name, call=call)
    with pytest.raises(Killed):
        world.supervise()
    world.supervise()
    assert world.left_out() == [(14, 15)] and world.told() == told
    assert world.attempts == attempts


def test_a_later_exclusion_may_stand_before_an_earlier_one(
    tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(step: int, draw: int, excluded: Draws) -> bool:
        return draw == 14 or (draw == 9 and bool(excluded))

    world = World(tmp_path, tokens, monkeypatch, bad)
    world.supervise()
    assert world.left_out() == [(14, 15), (9, 10)] and world.told() == [14, 9]
    assert world.attempts == [(), (), ((14, 15),), ((14, 15),), ((9, 10), (14, 15))]
    order: SampleOrder = open_train(world.job.config, tokens, excluded=world.attempts[-1]).order
    assert [order.draw(step) for step in range(STEPS)] == [*range(9), *range(10, 14), *range(15, 22)]


def test_what_comes_back_on_other_data_stops_the_run_and_the_next_one(
    tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an error that no command line knows better, which is exit code 1."""
    world = World(tmp_path, tokens, monkeypatch, lambda step, draw, excluded: step == 14)
    for attempts in (3, 4):
        with pytest.raises(RuntimeError, match="training stopped: step 15: loss nan; it came back") as end:
            world.supervise()
        assert type(end.value) is RuntimeError and "with other data" in str(end.value)
        assert "lower pretrain.learning_rate" in str(end.value)
        assert len(world.attempts) == attempts, "a run that was told so is not tried for long"
    assert world.left_out() == [(14, 15)]
    decisions = [incident["decision"] for incident in read_lines(world.job.run.incidents)]
    assert decisions == ["roll back", "exclude", "stop", "stop"]


def test_a_batch_is_left_out_even_if_its_documents_cannot_be_read(
    tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "tokens"
    shutil.copytree(tokens, mine)
    world = World(tmp_path, mine, monkeypatch, lambda step, draw, excluded: draw == 14)
    for shard in (mine / "train").glob("*-*.arrow"):
        shard.unlink()
    world.supervise()
    assert world.left_out() == [(14, 15)]
    (event,) = [event for event in world.events if event["kind"] == "excluded"]
    assert event["documents"] == {} and "is missing; run pretokenize again" in event["unread"]


def test_only_shards_in_which_the_batch_has_tokens_are_read(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sequences = open_train(micro.config(batch_sequences=2), tokens)
    shards = [path.name for path in (tokens / "train").glob("*-*.arrow")]
    asked: list[str] = []
    files: Any = sequences.domains["code"].stream._files  # those of all domains
    read = files.document_ids

    def document_ids(shard: str) -> Any:
        asked.append(shard)
        return read(shard)

    monkeypatch.setattr(files, "document_ids", document_ids)
    home = {name: shard for shard in shards for name in read(shard)}
    counts = set()
    for draw in range(20):
        asked.clear()
        found = documents_of_draw(sequences, draw)
        assert sorted(asked) == sorted({home[name] for names in found.values() for name in names})
        counts.add(len(asked))
    assert min(counts) < len(shards) == 3


def test_a_supervisor_reads_the_artifact_itself_wherever_its_workers_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = {"shards_url": f"file://{tmp_path}/nowhere", "cache_directory": str(tmp_path / "cache")}
    store = Store(tmp_path / "store")
    job = micro.pretrain_job(micro.config(**far), store)
    given: list[Sequences] = []
    monkeypatch.setattr(supervisor, "supervise", lambda job, means: given.append(means.sequences))
    monkeypatch.setattr(supervisor, "collect", lambda *arguments: None)
    monkeypatch.setattr(supervisor, "launcher_for", lambda job: nullcontext())
    inputs = job.place(store)
    supervisor.pretrain(job.config, inputs, tmp_path, Journal(tmp_path / "events.jsonl", stage="pretrain"))
    here = open_train(micro.config(), inputs["tokens"].path)
    assert documents_of_draw(given[0], 14) == documents_of_draw(here, 14)


def test_a_run_does_not_go_on_with_exclusions_that_it_cannot_read(
    tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, tokens, monkeypatch)
    RunDirectory(tmp_path / "run").excluded.write_text("[")
    with pytest.raises(InputError, match=r"run/excluded\.json"):
        world.supervise()
    assert not world.attempts


def test_a_run_that_is_asked_to_stop_while_no_attempt_runs_begins_none(
    tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, tokens, monkeypatch)
    world.notices.received = signal.SIGUSR1
    with pytest.raises(TryAgain, match=r"stopped on request \(SIGUSR1\)"):
        world.supervise()
    assert not world.attempts


def test_an_elastic_run_for_which_there_is_too_little_is_to_be_tried_again(
    tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, tokens, monkeypatch)
    config = micro.config(num_steps=STEPS, num_processes=3, least_processes=2)
    world.job = world.job.model_copy(update={"config": config})
    world.job.run.processes.write_text("1")
    with pytest.raises(TryAgain, match=r"fewer than pretrain\.least_processes = 2"):
        world.supervise()
    assert not world.attempts
    world.job.run.processes.write_text("2")
    world.supervise()
    assert world.processes == [2]


def test_an_elastic_run_goes_on_without_a_process_whose_hardware_is_suspected(
    tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as enough are left."""
    world = World(tmp_path, tokens, monkeypatch)
    config = micro.config(num_steps=STEPS, num_processes=4, least_processes=3)
    world.job = world.job.model_copy(update={"config": config})
    world.suspects = [1]
    world.supervise()
    assert world.processes == [4, 3]
    world.suspects = [1, 1]
    with pytest.raises(RuntimeError, match="hardware suspected: why"):
        world.supervise()
    assert world.processes == [4, 3, 4, 3]


def test_ranks_end_before_anything_else_is_waited_for(
    tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or they would train on for as long as it takes to publish a checkpoint, also after the lease is lost."""
    ended: list[str] = []

    @contextmanager
    def launcher(job: Job) -> Iterator[None]:
        try:
            yield
        finally:
            ended.append("ranks")

    def fails(job: Job, means: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr(supervisor, "launcher_for", launcher)
    monkeypatch.setattr(supervisor, "supervise", fails)
    monkeypatch.setattr(supervisor.Keeper, "close", lambda keeper: ended.append("keeper"))
    with pytest.raises(OSError, match="no space"):
        micro.pretrain(micro.config(num_steps=STEPS), Store(tmp_path))
    assert ended == ["ranks", "keeper"]
