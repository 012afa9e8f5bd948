"""Attention within documents on a CPU for narrow heads: kernels of our own, which compute in float32 whatever the type
of the tensors is, on as many threads as torch has."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import torch

from data.text.lanes import LANES

WIDEST = 4 * LANES
MOST_NUMBERS = 1 << 15  # of a head's keys in the longest document: with more, they and what is made of them leave cache


def suit(query: torch.Tensor, borders: torch.Tensor) -> bool:
    """Whether these kernels are for this attention: where, forward and backward together, they have been measured to be
    as fast as torch's or faster. query: [rows, heads, tokens, width]; borders: as `stages.pretrain.model.documents` has
    them."""
    width = query.shape[-1]
    if query.dtype == torch.float64 or width % LANES or width > WIDEST:
        return False
    return int(borders.diff().max()) * width <= MOST_NUMBERS


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    borders: torch.Tensor,
    scale: float,
    out: torch.Tensor,
    log_z: torch.Tensor,
) -> None:
    """Sets out, [rows, tokens, heads, width], and log_z, float32[rows, tokens, heads]; both contiguous."""
    from stages.pretrain.model.attention_kernels import attend as kernel

    shape = query.shape[1], key.shape[1], query.shape[3]
    inputs = [_flat(tensor.transpose(1, 2)) for tensor in (query, key, value)]
    places, found, logarithms = borders.numpy(), _room(out), log_z.view(-1).numpy()

    def work(begin: int, end: int) -> None:
        kernel(*inputs, places, *shape, scale, begin, end, _flat(found), logarithms)

    _share_out(work, places, key.shape[1])
    _give(found, out)


def attend_backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    log_z: torch.Tensor,
    borders: torch.Tensor,
    scale: float,
    *gradients: torch.Tensor,
) -> None:
    """Sets the gradients of query, key and value, [rows, heads, tokens, width] with the heads of a token side by side,
    of `gradient`, that of out."""
    from stages.pretrain.model.attention_kernels import attend_backward as kernel

    shape = query.shape[1], key.shape[1], query.shape[3]
    inputs = [_flat(tensor) for tensor in (gradient, *(part.transpose(1, 2) for part in (query, key, value)), out)]
    places, found = borders.numpy(), [_room(tensor.transpose(1, 2)) for tensor in gradients]

    def work(begin: int, end: int) -> None:
        kernel(*inputs, _flat(log_z), places, *shape, scale, begin, end, *map(_flat, found))

    _share_out(work, places, key.shape[1])
    for computed, tensor in zip(found, gradients, strict=True):
        _give(computed, tensor.transpose(1, 2))


def _flat(tensor: torch.Tensor) -> np.ndarray:
    """float32[numbers], the tensor itself where it is one behind the other in that type, else a copy."""
    return tensor.detach().float().contiguous().view(-1).numpy()


def _room(tensor: torch.Tensor) -> torch.Tensor:
    """Where its numbers are computed in float32: itself, if it can hold them."""
    return tensor if tensor.dtype == torch.float32 else torch.empty(tensor.shape, dtype=torch.float32)


def _give(found: torch.Tensor, tensor: torch.Tensor) -> None:
    if found.dtype != tensor.dtype:
        tensor.copy_(found)


def _share_out(work: Callable[[int, int], None], borders: np.ndarray, heads: int) -> None:
    """Call `work` for runs of items, of about equal cost, of which there is one for each document and head."""
    workers = torch.get_num_threads()
    num_items = (len(borders) - 1) * heads
    if workers == 1 or num_items == 1:
        work(0, num_items)
        return
    cost = np.cumsum(np.repeat(np.diff(borders).astype(np.int64) ** 2, heads))
    cuts = np.searchsorted(cost, cost[-1] * np.arange(1, workers) // workers, side="right")
    ends = [0, *cuts.tolist(), num_items]
    running = [_pool(workers).submit(work, *run) for run in zip(ends[1:-1], ends[2:], strict=True) if run[0] < run[1]]
    work(ends[0], ends[1])
    for future in running:
        future.result()


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers - 1, thread_name_prefix="attention")
