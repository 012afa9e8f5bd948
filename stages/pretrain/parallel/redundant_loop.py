"""The training loop of a rank whose replica group may lose the others, or come back to them."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from stages.pretrain.checkpoints.checkpoint import StepState
from stages.pretrain.checkpoints.tensors import here
from stages.pretrain.optimise.groups import local
from stages.pretrain.parallel.redundant import GivenUp, Replicas
from stages.pretrain.parallel.spread import unwrapped
from stages.pretrain.supervision.beats import Phase

if TYPE_CHECKING:
    import torch

    from stages.pretrain.loop import Loop
    from stages.pretrain.step import Training


def run_together(loop: "Loop", replicas: Replicas) -> None:
    """Train to the last step, with the groups that there are. No group leaves before the writer has saved all."""
    while True:
        loop.join()
        try:
            loop.run()
            loop.finish()
            if not replicas.moves:
                replicas.barrier()
                if not replicas.moves:
                    return
        except GivenUp:
            continue


def joined(training: "Training", state: StepState) -> "tuple[Training, StepState]":
    """Enter the next epoch: training and state as they are in it. Tensors of a group that is behind are filled."""
    replicas, deal = training.replicas, training.deal
    assert replicas is not None and deal is not None
    # One that waits for a state has not begun: nothing is lost with it.
    waiting = training.timeouts.relaxed(Phase.GROUPS) if replicas.has_state else nullcontext()
    tensors = [local(tensor) for tensor in here(training.tensors()).values()]
    with waiting:
        _, text = replicas.join(step=state.step, text=state.model_dump_json(), tensors=tensors)
    loader, feed = deal(replicas.rank, replicas.size)
    return replace(training, train=loader, train_feed=feed), StepState.model_validate_json(text)


def gradients(model: "torch.nn.Module") -> "Iterator[torch.Tensor]":
    """What this rank holds of the gradients of a model that `spread` has returned."""
    for name, parameter in unwrapped(model).named_parameters():
        assert parameter.grad is not None, f"{name} has no gradient"
        yield local(parameter.grad)
