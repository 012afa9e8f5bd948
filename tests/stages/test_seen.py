"""A user relies on: which documents a checkpoint has seen, token for token, whatever the packing."""

import argparse
import dataclasses
import errno
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.errors import InputError
from stages.base import Facts, derive, execute
from stages.commands import add_commands
from stages.errors import TryAgain
from stages.journal import Journal
from stages.pretrain import STAGE
from stages.pretrain.batches.documents import documents_of_draw
from stages.pretrain.batches.exclusions import Draws
from stages.pretrain.batches.seen import lines, read_past, seen, summary, write_lines
from stages.pretrain.batches.sequences import Sequences, open_train
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.checkpoints.checkpoint import StepState
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import make_job
from stages.store import Artifact, Store
from tests.end_to_end.shell import run
from tests.stages.pretrain import micro

STEP = 90  # nearly two epochs of one domain
EXCLUDED: Draws = ((3, 4), (40, 42))
BUCKETS = {"packing": "length-buckets", "length_schedule": [{"from_step": 1, "longest_tokens": 4},
           {"from_step": 30, "longest_tokens": 16}]}  # fmt: skip
PACKINGS: dict[str, dict[str, Any]] = {
    "stream": {"mixture_schedule": [{"from_step": 50, "weights": {"prose": 1.0}}]},
    "best-fit": {"packing": "best-fit", "mixture": {"code": 0.7, "prose": 0.3}},
    "length-buckets": BUCKETS,
}


def targets_read(sequences: Sequences, steps: Iterator[int] | range) -> Counter[tuple[str, int]]:
    """(domain, document) -> targets in batches, by reading these batches token by token."""
    loader, order = sequences.loader(rank=0, world_size=1), sequences.order
    ends = {domain: np.cumsum(packed.stream.document_lengths()) for domain, packed in sequences.domains.items()}
    found: Counter[tuple[str, int]] = Counter()
    for step in steps:
        samples, batch = order.batch(step), loader.batch(step)
        for row in range(len(samples)):
            domain = order.domains[samples.domain[row]]
            packed = sequences.domains[domain]
            pieces = packed.packing.pieces(samples.length, samples.sequence[row : row + 1])
            places = [p for a, n in zip(pieces.start, pieces.length, strict=True) for p in range(a, a + n)]
            tokens = [int(packed.stream.read(place, 1)[0]) for place in places]
            assert tokens == [token for token in batch.targets[row].tolist() if token >= 0]
            found.update((domain, int(np.searchsorted(ends[domain], place, side="right"))) for place in places)
    return found


def checkpoint_of(config: PretrainConfig, store: Store) -> tuple[Artifact, Sequences]:
    """A checkpoint artifact whose tensors are of no interest here, of a training that has not finished."""
    job = micro.pretrain_job(config, store)
    inputs = job.place(store)
    tokens = inputs["tokens"]
    sequences = open_train(config, tokens.path, excluded=EXCLUDED)
    found = targets_read(sequences, range(STEP))
    state = StepState(
        step=STEP, tokens_seen=found.total(), vocabulary_size=67, config_fingerprint="c", data_fingerprint="d",
        excluded=EXCLUDED,
    )  # fmt: skip
    work = store.root / "work"
    work.mkdir()
    (work / checkpoint.STATE).write_text(state.model_dump_json())
    artifact = derive(
        inputs,
        stage="checkpoint",
        revision=2,
        identity={"step": STEP},
        directory=work,
        facts=Facts(facts={"step": STEP}),
    )
    settings = {"facts": tokens.facts, "tokens_digest": tokens.digest, "config_fingerprint": job.key}
    make_job(config, tokens=tokens.path, directory=store.runs_path(job.key), **settings).write()  # type: ignore[arg-type]
    return artifact, sequences


@pytest.mark.parametrize("packing", PACKINGS)
def test_what_a_checkpoint_has_seen_is_what_its_batches_held(packing: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    config = micro.config(num_steps=200, checkpoint_every_steps=STEP, **PACKINGS[packing])
    artifact, sequences = checkpoint_of(config, store)
    expected = targets_read(sequences, range(STEP))
    past = read_past(artifact, store)
    far = {"shards_url": f"file://{tmp_path}/nowhere", "cache_directory": str(tmp_path / "cache")}
    found = seen(dataclasses.replace(past, config=past.config.model_copy(update=far)))
    counted = {
        (domain.domain, document): int(times)
        for domain in found
        for document, times in enumerate(domain.num_seen)
        if times
    }
    assert counted == expected
    assert max(line["times"] for line in lines(found)) > 1, "no document was seen twice"
    assert {row["domain"] for row in summary(found)} == {"code", "prose"}


@pytest.mark.parametrize("packing", PACKINGS)
def test_the_documents_of_a_batch_are_those_it_has_a_target_of(packing: str, tmp_path: Path) -> None:
    config = micro.config(**PACKINGS[packing])
    micro.write_tokens(tmp_path / "tokens")
    sequences = open_train(config, tmp_path / "tokens")
    for draw in (0, 7, 180):
        expected: dict[str, list[str]] = {}
        for domain, document in sorted(targets_read(sequences, range(draw, draw + 1))):
            expected.setdefault(domain, []).append(f"{domain}/{document}")
        assert documents_of_draw(sequences, draw) == expected


def test_the_command_writes_a_line_for_each_document_and_sums_up(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.root.mkdir()
    artifact, sequences = checkpoint_of(micro.config(num_steps=200), store)
    out = tmp_path / "seen.jsonl"
    done = run("stages", "seen", artifact.key[:8], "--out", out, "--root", store.root)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in out.read_text().splitlines()]
    expected = targets_read(sequences, range(STEP))
    assert {(line["domain"], line["id"]): line["tokens_seen"] for line in found} == {
        (domain, f"{domain}/{document}"): times for (domain, document), times in expected.items()
    }
    assert all(line["times"] == round(line["tokens_seen"] / line["tokens"], 6) for line in found)
    assert f"after step {STEP}: {expected.total():,} tokens" in done.stdout
    assert "left out: draws 40 to 41" in done.stdout
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("out", "problem"), [("absent/seen.jsonl", "there is no folder .*absent"), ("", "is a folder")]
)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path, out: str, problem: str) -> None:
    arguments = parsed("seen", "any", "--out", tmp_path / out, "--root", tmp_path)
    with pytest.raises(InputError, match=f"--out {tmp_path}.*{problem}"):
        arguments.command(arguments)


def parsed(*words: Any) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_commands(parser)
    return parser.parse_args([str(word) for word in words])


def test_a_full_disk_is_tried_again_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("stages.out_file.os.replace", full)
    with pytest.raises(TryAgain, match="is full"):
        write_lines(tmp_path / "seen.jsonl", [])
    assert not list(tmp_path.iterdir())


def test_a_finished_training_can_be_asked_too(tmp_path: Path) -> None:
    store = Store(tmp_path)
    config = micro.config(num_steps=STEP)
    job = micro.pretrain_job(config, store)
    sequences = open_train(config, job.place(store)["tokens"].path, excluded=((3, 4),))
    expected = targets_read(sequences, range(STEP))
    artifact = finished(job, store, {"num_steps": STEP, "tokens": expected.total(), "excluded": [
        {"first": 3, "last": 4, "step": 4}]})  # fmt: skip
    assert sum(row["tokens_seen"] for row in summary(seen(read_past(artifact, store)))) == expected.total()


def finished(job: Any, store: Store, made: dict[str, Any]) -> Artifact:
    """The artifact of a training that was never carried out."""
    stage = dataclasses.replace(STAGE, inputs=job.stage.inputs, run=_gives(made))
    return execute(dataclasses.replace(job, stage=stage, inputs={"tokens": job.inputs["tokens"]}), store)


def _gives(made: dict[str, Any]) -> Callable[..., Facts]:
    def run(config: Any, inputs: Any, out: Path, journal: Journal) -> Facts:
        return Facts(facts=made)

    return run


def test_what_cannot_be_answered_names_what_is_missing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    artifact, _ = checkpoint_of(micro.config(num_steps=200), store)
    tokens = micro.tokens_artifact(store)
    with pytest.raises(InputError, match="is of pretokenize: name a checkpoint or a training"):
        read_past(tokens, store)
    (job,) = (tmp_path / "runs").glob("*/job.json")
    job.rename(tmp_path / "job.json")
    with pytest.raises(InputError, match="nor its run directory"):
        read_past(artifact, store)
    (tmp_path / "job.json").rename(job)
    store.remove(tokens.path)
    with pytest.raises(InputError, match="no longer there: run pretokenize again"):
        read_past(artifact, store)
