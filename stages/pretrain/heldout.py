"""The loss on held-out text that decides whether the last checkpoint is healthy.

It is measured at every durable step on one fixed draw of held-out sequences, in the mixture's proportions.
"""

from typing import TYPE_CHECKING

from data.loader import BatchLoader
from stages.pretrain.config import PretrainConfig
from stages.pretrain.streams import Sequences

if TYPE_CHECKING:
    import torch

    from stages.pretrain.parallel import Ranks


def num_heldout_sequences(config: PretrainConfig, sequences: Sequences) -> int:
    """As many as the config asks for, if there are so many."""
    return min(config.heldout_sequences, int(sequences.order.num_sequences.sum()))


def heldout_loss(
    model: "torch.nn.Module", loader: BatchLoader, *, most_rows: int, micro_batch: int, ranks: "Ranks"
) -> float:
    """Mean loss in nats per token over all ranks' rows of batch 0 of `loader`; the same on every rank. May be NaN or
    infinite.

    most_rows: rows of the rank that has most of them, so that all ranks make as many forward passes.
    """
    import torch

    from stages.pretrain.loop import micro_batches, summed_loss, target_count
    from stages.pretrain.parallel import reshard

    batch = loader.batch(0)
    total = 0.0
    model.eval()
    with torch.no_grad():
        for inputs, targets in micro_batches(batch.inputs, batch.targets, size=micro_batch, most_rows=most_rows):
            total += summed_loss(model, inputs.to(ranks.device), targets.to(ranks.device)).item()
    reshard(model)
    model.train()
    loss, tokens = ranks.sum([total, float(target_count(batch.targets))]).tolist()
    return loss / tokens
