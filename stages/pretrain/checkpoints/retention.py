"""Which checkpoints stay: one rule for the run directory and for the durable store. Artifacts are not asked."""

from collections.abc import Collection, Mapping


def kept(
    steps: Collection[int],
    *,
    newest: int,
    losses: Mapping[int, float],
    healthy: Collection[int],
    durable: Collection[int],
    keep_every: int | None,
    pending: Collection[int] = (),
) -> set[int]:
    """Of the checkpoints of `steps`, those to keep: the newest ones; the best, which is that of the lowest held-out
    loss, the later one if two are equal; the newest healthy one, which a rollback goes to; of the durable ones every
    `keep_every`-th; and those that something is still to be done with.

    newest: how many. losses: step: held-out loss, for steps at which it was measured. durable: steps at which the run
    takes durable checkpoints, whether they are there or not, so that every N-th of them is always the same.
    """
    measured = [step for step in steps if step in losses]
    best = [min(measured, key=lambda step: (losses[step], -step))] if measured else []
    target = sorted(step for step in steps if step in healthy)[-1:]
    every = sorted(durable)[keep_every - 1 :: keep_every] if keep_every else []
    return {*sorted(steps)[-newest:], *best, *target, *every, *pending} & {*steps}


def num_kept(durable: Collection[int], *, newest: int, keep_every: int | None) -> int:
    """The most durable checkpoints that a store holds when the run is over: the best one may be any of them."""
    steps = sorted(durable)
    sure = kept(steps, newest=newest, losses={}, healthy=steps, durable=steps, keep_every=keep_every)
    return min(len(steps), len(sure) + 1)
