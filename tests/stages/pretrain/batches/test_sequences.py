"""What a training reads, from the recipe's words to the batch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.errors import InputError
from data.order.loader import IGNORE
from data.shards.files import shard_name
from stages.pretrain.batches.phases import train_phases
from stages.pretrain.batches.sequences import open_heldout, open_train
from stages.pretrain.config import PretrainConfig
from stages.pretrain.trials import to_the_longest
from tests.data.shards import shard_files
from tests.stages.pretrain import micro

TOKENS = {"code": 100, "prose": 300}


def test_phases_count_steps_from_one_and_draws_from_none() -> None:
    config = PretrainConfig.model_validate(
        {
            "packing": "length-buckets",
            "mixture": {"code": 1},
            "mixture_schedule": [{"from_step": 11, "weights": {"code": 1, "prose": 3}}],
            "length_schedule": [{"from_step": 1, "longest_tokens": 8}, {"from_step": 21, "longest_tokens": 64}],
        }
    )
    found = train_phases(config, TOKENS, {"code": {8: 4, 64: 1}, "prose": {8: 2, 64: 4}})
    assert [(phase.first_step, dict(phase.weights), phase.longest_tokens) for phase in found.phases] == [
        (0, {"code": 1.0}, 8),
        (10, {"code": 0.25, "prose": 0.75}, 8),
        (20, {"code": 0.25, "prose": 0.75}, 64),
    ]
    assert found.warnings == ()


def test_tokens_that_no_phase_allows_are_counted(tokens: Path) -> None:
    """A phase that never comes allows nothing."""
    pools = {"code": {8: 4, 64: 1}, "prose": {8: 2, 16: 3, 64: 4}, "unused": {64: 9}}
    schedule = [{"from_step": 1, "longest_tokens": 8}, {"from_step": 5, "longest_tokens": 16}]
    late = {"from_step": 11, "longest_tokens": 64}
    for lengths, warned in (([*schedule, late], True), ([*schedule, late | {"from_step": 10}], False)):
        config = PretrainConfig.model_validate(
            {
                **{"packing": "length-buckets", "num_steps": 10, "length_schedule": lengths},
                "mixture": {"code": 1, "prose": 1},
            }
        )
        found = train_phases(config, TOKENS | {"unused": 576}, pools).warnings
        told = [warning for warning in found if "never read" in warning]
        assert len(told) == (2 if warned else 0)
        if warned:
            assert "domain 'code': 64 of 100 tokens are never read" in told[0] and "longest_tokens" in told[0]
            assert "domain 'prose': 256 of 300 tokens" in told[1]


def test_what_a_training_never_reads_is_in_its_warnings_and_facts(tokens: Path) -> None:
    schedule = [{"from_step": 1, "longest_tokens": 8}]
    sequences = open_train(micro.config(packing="length-buckets", length_schedule=schedule), tokens)
    for domain, facts in sequences.packing_facts().items():
        longer = sum(int(length) * count for length, count in facts["sequences"].items() if int(length) > 8)
        assert facts["unread_tokens"] == longer > 0
        assert any(f"{domain!r}: {longer} of {facts['tokens']} tokens" in warning for warning in sequences.warnings)
    whole = open_train(micro.config(packing="length-buckets"), tokens)
    assert whole.warnings == () and {of["unread_tokens"] for of in whole.packing_facts().values()} == {0}


def test_a_phase_behind_the_last_step_has_no_effect_and_says_so() -> None:
    config = PretrainConfig.model_validate(
        {"num_steps": 10, "mixture_schedule": [{"from_step": step, "weights": {"code": 1}} for step in (10, 11)]}
    )
    (warning,) = train_phases(config, TOKENS, {"code": {256: 1}, "prose": {256: 2}}).warnings
    assert "pretrain.mixture_schedule" in warning and "from step 11 on" in warning


def test_a_ramp_makes_batches_grow_whatever_else_changes(tokens: Path) -> None:
    ramp = [{"from_step": 4, "batch_sequences": 12}, {"from_step": 7, "batch_sequences": 20}]
    schedule = [{"from_step": 6, "weights": {"code": 1.0}}]
    config = micro.config(num_steps=9, batch_ramp=ramp, mixture_schedule=schedule, mixture_most_epochs=2.0)
    loader = open_train(config, tokens).loader(rank=1, world_size=2)
    batches = [loader.batch(step) for step in range(9)]
    assert [batch.whole_rows for batch in batches] == [6, 6, 6, 12, 12, 12, 20, 20, 20]
    assert [len(batch.inputs) for batch in batches] == [3, 3, 3, 6, 6, 6, 10, 10, 10]
    places = [batch.whole_rows * batch.inputs.shape[1] for batch in batches]
    assert places == [config.batch_places(step) for step in range(1, 10)] and sum(places) == config.total_places
    facts = open_train(config, tokens).mixture_facts(9)
    assert facts["code"]["weight"] == pytest.approx((72 + 42 * 0.5) / 114, abs=1e-6)
    late = micro.config(num_steps=9, batch_ramp=[{"from_step": 10, "batch_sequences": 12}])
    (warning,) = open_train(late, tokens).warnings
    assert "pretrain.batch_ramp: the phase from step 10 on has no effect" in warning


def test_a_ramp_counts_for_how_often_text_is_read(tokens: Path) -> None:
    """188 sequences of code: 2 batches of 90, and then of 100."""
    ramp = [{"from_step": 2, "batch_sequences": 100}]
    settings: dict[str, Any] = {"mixture": {"code": 1.0}, "num_steps": 2, "batch_sequences": 90}
    assert open_train(micro.config(**settings, mixture_most_epochs=1.0), tokens).warnings == ()
    with pytest.raises(InputError, match=r"draws 3040 tokens, .*mixture_most_epochs = 1 allows 3008"):
        open_train(micro.config(**settings, mixture_most_epochs=1.0, batch_ramp=ramp), tokens)


def test_a_temperature_brings_shares_together_and_a_cap_bounds_epochs(tokens: Path) -> None:
    """In training and, but for the cap, on held-out text, whose losses are weighted alike."""
    weights = {"code": 9.0, "prose": 1.0}

    def mixed(**settings: Any) -> tuple[dict[str, float], dict[str, float]]:
        config = micro.config(mixture=weights, num_steps=60, **settings)
        sides = open_train(config, tokens), open_heldout(config, tokens)
        found = [
            {domain: side.order.tokens_per_draw(0)[domain, 16] / places for domain in weights}
            for side, places in zip(sides, (96, 80), strict=True)
        ]
        return found[0], found[1]

    near = pytest.approx
    assert mixed() == (near({"code": 0.9, "prose": 0.1}, abs=1e-4),) * 2
    assert mixed(mixture_temperature=2) == (near({"code": 0.75, "prose": 0.25}, abs=1e-4),) * 2
    # 60 steps of 96 tokens, and 3008 tokens in each domain.
    capped = mixed(mixture_most_epochs=1.25)
    assert capped[0]["code"] == near(1.25 * 3008 / 5760, abs=1e-4) and capped[1]["code"] == near(0.9, abs=1e-4)


def test_epochs_are_among_the_facts(tokens: Path) -> None:
    """Those that the order really gives, which rounds shares, beside those that the recipe asks for."""
    config = micro.config(mixture={"code": 9.0, "prose": 1.0}, num_steps=60, mixture_most_epochs=1.25)
    sequences = open_train(config, tokens)
    facts = sequences.mixture_facts(60)
    read = np.zeros(2, int)
    for step in range(60):
        read += np.bincount(sequences.order.batch(step).domain, minlength=2)
    for number, domain in enumerate(("code", "prose")):
        assert facts[domain]["epochs"] == pytest.approx(read[number] / 188, abs=1e-5)
    assert facts["code"]["wanted_epochs"] == pytest.approx(5760 * 0.9 / 3008, abs=1e-5)
    assert facts["code"]["epochs"] <= 1.25 + 2 / 188 and facts["code"]["weight"] == pytest.approx(0.652778)
    assert sequences.warnings == ()
    with pytest.raises(InputError, match=r"draws 5760 tokens, .*mixture_most_epochs = 0\.5 allows 3008"):
        open_train(config.model_copy(update={"mixture_most_epochs": 0.5}), tokens)


def test_tokens_of_another_vocabulary_are_refused(tokens: Path) -> None:
    right = {"size": micro.VOCABULARY, "padded_size": micro.PADDED, "end_id": micro.EOS}
    for sequences in (open_train(micro.config(), tokens), open_heldout(micro.config(), tokens)):
        sequences.check_vocabulary(**right)
        for name, value in right.items():
            with pytest.raises(InputError, match="'code' were made for .*, but the model is for .*; run pretokenize"):
                sequences.check_vocabulary(**right | {name: value + 1})


@pytest.mark.parametrize("packing", ["stream", "best-fit", "length-buckets"])
def test_an_epoch_has_every_token_as_a_target_once(tokens: Path, packing: str) -> None:
    sequences = open_train(micro.config(packing=packing), tokens)
    facts = sequences.packing_facts()
    for domain, packed in sequences.domains.items():
        found = np.zeros(len(packed.stream), int)
        for length, count in packed.packing.num_sequences.items():
            pieces = packed.packing.pieces(length, np.arange(count))
            for start, size in zip(pieces.start, pieces.length, strict=True):
                found[start : start + size] += 1
        assert (found == 1).all()
        slots = sum(int(length) * count for length, count in facts[domain]["sequences"].items())
        assert slots == facts[domain]["tokens"] + facts[domain]["padding_tokens"]
        assert facts[domain]["tokens"] == len(packed.stream)


@pytest.mark.parametrize("packing", ["stream", "best-fit", "length-buckets"])
def test_heldout_sequences_are_the_same_for_every_packing_and_isolated(tokens: Path, packing: str) -> None:
    base = open_heldout(micro.config(), tokens)
    other = open_heldout(micro.config(packing=packing), tokens)
    expected, found = (side.loader(rank=0, world_size=1).batch(0) for side in (base, other))
    assert np.array_equal(found.inputs, expected.inputs) and np.array_equal(found.positions, expected.positions)
    assert found.inputs.shape == (5, 16) and found.num_targets == (found.targets != IGNORE).sum()
    assert other.needs_mask and (found.positions[:, 1:] == 0).any(), "several documents in a row"


def test_attention_across_documents_counts_positions_through_the_row(tokens: Path) -> None:
    config = micro.config(cross_document_attention=True)
    for sequences in (open_train(config, tokens), open_heldout(config, tokens)):
        assert not sequences.needs_mask
        assert (sequences.loader(rank=0, world_size=1).batch(0).positions == np.arange(16)).all()


def test_no_mask_is_needed_where_a_row_is_one_piece(tokens: Path) -> None:
    sequences = open_train(micro.config(packing="length-buckets"), tokens)
    loader = sequences.loader(rank=0, world_size=1)
    assert not sequences.needs_mask
    lengths = set()
    for step in range(150):
        batch = loader.batch(step)
        lengths.add(batch.inputs.shape[1])
        assert batch.inputs.size == 96 and (batch.positions == np.arange(batch.inputs.shape[1])).all()
    assert lengths == {1, 2, 4, 8, 16}


def test_shards_behind_a_url_give_the_same_batches(tokens: Path, tmp_path: Path) -> None:
    remote: dict[str, Any] = {"shards_url": f"file://{tokens}/train", "cache_directory": str(tmp_path / "cache")}
    for packing in ("stream", "best-fit"):
        here, there = (
            open_train(micro.config(packing=packing, **settings), tokens).loader(rank=1, world_size=2)
            for settings in ({}, remote)
        )
        for step in range(5):
            assert np.array_equal(here.batch(step).inputs, there.batch(step).inputs)
    assert any(path.is_file() and path.stat().st_size > 500 for path in (tmp_path / "cache").rglob("*"))


def test_a_mixture_without_heldout_text_is_refused(tokens: Path) -> None:
    with pytest.raises(InputError, match=r"no domain of pretrain\.mixture has held-out text"):
        open_heldout(micro.config(mixture={"elsewhere": 1.0}), tokens)


def test_a_trial_ends_with_the_longest_sequences_however_late_they_come_up(tmp_path: Path) -> None:
    """400 documents of 3 tokens, and one of 16."""
    folder = tmp_path / "train"
    folder.mkdir()
    documents = [[5, 6, micro.EOS]] * 400 + [[7] * 15 + [micro.EOS]]
    shard_files.write(folder / shard_name("a", 0), documents, micro.HEADER, domain="a")
    shard_files.index_folder(folder)
    config = micro.config(packing="length-buckets")
    order = open_train(config, tmp_path).order
    assert max(order.batch(step).length for step in range(3)) < 16
    skipped, lengths = to_the_longest(config, tmp_path, steps=3, draws=500)
    tried = open_train(config, tmp_path, excluded=skipped).order
    assert [tried.batch(step).length for step in range(3)] == lengths and lengths[-1] == 16
    assert lengths[:2] == [order.batch(step).length for step in range(2)]
    assert max(to_the_longest(config, tmp_path, steps=3, draws=5)[1]) < 16, "as long as the training itself gets"
    assert to_the_longest(micro.config(), tmp_path, steps=3, draws=500) == ((), [16] * 3)
