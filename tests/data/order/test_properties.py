"""A user relies on: whatever the schedule, the excluded draws, the ranks, the accumulation and the stops, a training
run reads what the undisturbed one reads, and every sample once an epoch.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.order.batches import Phase, SampleOrder, Samples
from data.order.loader import Batch, BatchLoader, PackedDomain
from data.order.packing import make_packing
from tests.data.order.test_loader import FAR, Numbers

NUM_STEPS = 40
Sample = tuple[str, int, int, int]  # domain, length, epoch, sequence
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Run:
    """What a training is made of."""

    seed: int
    pools: dict[str, dict[int, int]]
    phases: tuple[Phase, ...]
    excluded: Ranges = ()

    def order(self) -> SampleOrder:
        return SampleOrder(seed=self.seed, num_sequences=self.pools, phases=self.phases, excluded=self.excluded)


@st.composite
def ranges(draw: st.DrawFn, least: int = 0) -> Ranges:
    """Excluded draws from `least` on."""
    borders = draw(st.lists(st.integers(least, least + NUM_STEPS), max_size=6, unique=True).map(sorted))
    found = tuple(zip(borders[::2], borders[1::2], strict=False))
    touching = draw(st.booleans())
    return (*found, (found[-1][1], found[-1][1] + 2)) if found and touching else found


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Every domain has sequences of 4 tokens, so that each phase can draw from it."""
    names = draw(st.lists(st.sampled_from(["code", "prose", "maths", "web"]), min_size=1, max_size=4, unique=True))
    lengths = draw(st.lists(st.sampled_from([8, 16]), max_size=2, unique=True))
    pools = {
        name: {4: draw(st.integers(1, 60))} | {length: draw(st.integers(0, 25)) for length in lengths} for name in names
    }
    starts = draw(st.lists(st.integers(1, NUM_STEPS), max_size=3, unique=True).map(sorted))
    phases = []
    for first_step in (0, *starts):
        chosen = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        phases.append(
            Phase(
                first_step=first_step,
                weights={name: draw(st.sampled_from([0.1, 1.0, 2.5])) for name in chosen},
                longest_tokens=draw(st.sampled_from([4, 8, 16])),
                batch_tokens=draw(st.sampled_from([16, 48, 100])),
            )
        )
    return Run(draw(st.integers(0, 2**40)), pools, tuple(phases), draw(ranges()))


def named(order: SampleOrder, samples: Samples) -> list[Sample]:
    return [
        (order.domains[domain], samples.length, epoch, sequence)
        for domain, epoch, sequence in zip(
            samples.domain.tolist(), samples.epoch.tolist(), samples.sequence.tolist(), strict=True
        )
    ]


def undisturbed(run: Run) -> list[list[Sample]]:
    order = run.order()
    return [named(order, order.batch(step)) for step in range(NUM_STEPS)]


def packed(run: Run) -> dict[str, PackedDomain]:
    """Domain `d` of the run has tokens FAR * d, FAR * d + 1, ..., in documents that are a sequence each."""
    found = {}
    for number, (name, pools) in enumerate(sorted(run.pools.items())):
        lengths = np.repeat(*np.array(sorted(pools.items()), dtype=np.int64).T)
        stream = Numbers(FAR * number, int(lengths.sum()))
        packing = make_packing(
            "length-buckets",
            num_tokens=stream.length,
            document_lengths=lambda lengths=lengths: lengths,
            sequence_tokens=16,
        )
        assert dict(packing.num_sequences) == {length: count for length, count in pools.items() if count}
        found[name] = PackedDomain(stream, packing)  # type: ignore[arg-type]
    return found


def decoded(run: Run, batch: Batch, rows: slice) -> list[Sample]:
    """The samples of some rows, by the tokens in them; only the epoch is what the batch says."""
    found = []
    for inputs, targets, epoch in zip(batch.inputs[rows], batch.targets[rows], batch.samples.epoch[rows], strict=True):
        domain, start = divmod(int(targets[0]), FAR)
        name, length = sorted(run.pools)[domain], len(targets)
        assert targets.tolist() == list(range(targets[0], targets[0] + length)) and (inputs[1:] == targets[:-1]).all()
        before = sum(shorter * count for shorter, count in run.pools[name].items() if shorter < length)
        found.append((name, length, int(epoch), (start - before) // length))
    return found


def launched(
    run: Run, steps: range, world_size: int, micro_rows: int, readers: int = 0, planned: int = 0
) -> Iterator[list[Sample]]:
    """What a launch is trained on in each step: rank by rank, each with an order and a loader of its own, micro-batch
    by micro-batch. readers: threads of each rank that read ahead, until step `planned`, however few steps are taken.
    """
    domains = packed(run)
    with ExitStack() as stack:
        loaders = [BatchLoader(run.order(), domains, rank=rank, world_size=world_size) for rank in range(world_size)]
        ahead = [
            stack.enter_context(
                loader.read_ahead(first_step=steps.start, num_steps=planned - steps.start, depth=3, readers=readers)
            )
            for loader in (loaders if readers else [])
        ]
        for step in steps:
            read: list[Sample] = []
            for batch in map(next, ahead) if ahead else (loader.batch(step) for loader in loaders):
                assert batch.step == step and len(batch.inputs) == len(batch.samples)
                for first in range(0, len(batch.inputs), micro_rows):
                    read += decoded(run, batch, slice(first, first + micro_rows))
            yield read


@settings(max_examples=30)
@given(
    run=runs(),
    cuts=st.lists(
        st.tuples(st.integers(0, NUM_STEPS), st.integers(1, 7), st.integers(1, 9), st.sampled_from([0, 0, 2])),
        max_size=5,
    ),
)
def test_stops_ranks_and_accumulation_change_nothing(run: Run, cuts: list[tuple[int, int, int, int]]) -> None:
    """Each launch goes on where the last one stopped, which may be at once, on other ranks and with other
    micro-batches; what it has read ahead by then is lost.
    """
    read: list[list[Sample]] = []
    for stop, world_size, micro_rows, readers in [*sorted(cuts), (NUM_STEPS, 3, 2, 2)]:
        read += launched(run, range(len(read), stop), world_size, micro_rows, readers, NUM_STEPS)
    assert read == undisturbed(run)


def test_four_launches_that_stop_after_7_3_0_and_5_batches() -> None:
    run = Run(1, {"a": {4: 100}}, (Phase(first_step=0, weights={"a": 1}, longest_tokens=4, batch_tokens=16),))
    read: list[list[Sample]] = []
    for count in (7, 3, 0, 5):
        read += launched(run, range(len(read), len(read) + count), 1, 4)
    assert read == undisturbed(run)[:15]


def test_a_resume_on_fewer_and_on_more_ranks_leaves_out_nothing() -> None:
    run = Run(2, {"a": {4: 24 * 20}}, (Phase(first_step=0, weights={"a": 1}, longest_tokens=4, batch_tokens=4 * 24),))
    before = [sample for step in launched(run, range(8), 4, 2) for sample in step]
    for world_size in (2, 8):
        after = [sample for step in launched(run, range(8, 20), world_size, 2) for sample in step]
        assert not set(before) & set(after)
        assert {sequence for *_, sequence in before + after} == set(range(24 * 20))


def test_a_resume_inside_and_at_the_end_of_an_epoch_leaves_later_epochs_whole() -> None:
    run = Run(3, {"a": {4: 20}}, (Phase(first_step=0, weights={"a": 1}, longest_tokens=4, batch_tokens=8),))
    for stop in (9, 10):
        read = [
            sample for steps in (range(stop), range(stop, 30)) for step in launched(run, steps, 2, 1) for sample in step
        ]
        for epoch in range(3):
            assert sorted(sequence for _, _, number, sequence in read if number == epoch) == list(range(20))


@settings(max_examples=5)
@given(run=runs())
def test_no_two_ranks_share_a_sample_and_together_they_have_the_whole_batch(run: Run) -> None:
    domains, whole = packed(run), undisturbed(run)
    for world_size in range(1, 8):
        loaders = [BatchLoader(run.order(), domains, rank=rank, world_size=world_size) for rank in range(world_size)]
        for step in range(NUM_STEPS):
            rows = [decoded(run, batch, slice(None)) for batch in (loader.batch(step) for loader in loaders)]
            together = [sample for part in rows for sample in part]
            assert together == whole[step] and len(set(together)) == len(together) > 0
            assert max(map(len, rows)) - min(map(len, rows)) <= 1


@settings(max_examples=30)
@given(run=runs())
def test_each_epoch_has_each_sample_once_but_for_what_is_excluded(run: Run) -> None:
    order = run.order()
    end = order.draw(NUM_STEPS - 1) + 1
    left_out = Counter(
        sample
        for first, last in run.excluded
        for draw in range(first, min(last, end))
        for sample in named(order, order.samples_of_draw(draw))
    )
    read = Counter(sample for step in undisturbed(run) for sample in step)
    assert max((read + left_out).values()) == 1
    turns = Counter((domain, length) for domain, length, *_ in (read + left_out))
    assert dict(turns) == {pool: count for pool, count in order.samples_before(end).items() if count}
    for (domain, length), count in turns.items():
        whole = count // run.pools[domain][length]
        drawn = [sample for sample in read + left_out if sample[:2] == (domain, length) and sample[2] < whole]
        assert len(drawn) == whole * run.pools[domain][length]
        assert {sequence for *_, sequence in drawn} <= set(range(run.pools[domain][length]))


@settings(max_examples=30)
@given(run=runs(), step=st.integers(0, NUM_STEPS), data=st.data())
def test_what_is_excluded_later_moves_no_earlier_step(run: Run, step: int, data: st.DataObject) -> None:
    """A rollback to a step excludes draws from there on: what was read before is what would be read again."""
    first = run.order().draw(step)
    kept = tuple((a, b) for a, b in run.excluded if b <= first)
    more = replace(run, excluded=(*kept, *data.draw(ranges(least=first))))
    fewer = replace(run, excluded=kept)
    assert undisturbed(more)[:step] == undisturbed(fewer)[:step]
    skipped = more.order()
    whole = replace(run, excluded=()).order()
    for later in range(step, NUM_STEPS):
        assert named(skipped, skipped.batch(later)) == named(whole, whole.batch(skipped.draw(later)))


@settings(max_examples=30)
@given(run=runs(), num_steps=st.integers(0, NUM_STEPS))
def test_counts_are_those_of_reading_all(run: Run, num_steps: int) -> None:
    read = Counter(
        (domain, length, sequence) for step in undisturbed(run)[:num_steps] for domain, length, _, sequence in step
    )
    counts = run.order().counts(num_steps)
    assert {(*pool, sequence): int(n) for pool, of in counts.items() for sequence, n in enumerate(of) if n} == read


@settings(max_examples=30)
@given(
    kind=st.sampled_from(["stream", "best-fit", "length-buckets"]),
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=30),
    seed=st.integers(0, 1000),
)
def test_an_epoch_of_a_packed_domain_gives_every_token_once(kind: str, lengths: list[int], seed: int) -> None:
    """From documents to samples: after enough batches for every pool, epoch 0 of all pools is the stream."""
    total = sum(lengths)
    packing = make_packing(
        kind,  # type: ignore[arg-type]
        num_tokens=total,
        document_lengths=lambda: np.array(lengths, dtype=np.int64),
        sequence_tokens=8,
    )
    longest = Phase(first_step=0, weights={"a": 1.0}, longest_tokens=8, batch_tokens=8)
    order = Run(seed, {"a": dict(packing.num_sequences)}, (longest,)).order()
    times, draw = np.zeros(total, int), 0
    while draw < 40 * total and any(
        count < packing.num_sequences[length] for (_, length), count in order.samples_before(draw).items()
    ):
        batch = order.samples_of_draw(draw)
        first = batch.sequence[batch.epoch == 0]
        pieces = packing.pieces(batch.length, first)
        for start, length in zip(pieces.start, pieces.length, strict=True):
            times[start : start + length] += 1
        draw += 1
    assert (times == 1).all()
