"""Causal attention within documents by kernels that are told where each of them begins, so that nothing is computed
between two documents and no mask of tokens by tokens is held.

On a CPU they are our own for narrow heads (`stages.pretrain.model.narrow_heads`); else torch's of
scaled_dot_product_attention runs once for each document, or for several that fill a row each. Both are one operator, so
that a compiled layer can hold it whatever the documents are. On a GPU it is flash attention's kernel for sequences of
varying length (Dao, 2023, "FlashAttention-2", which takes half precision only): that of the package flash-attn where it
is installed, else torch's.

borders, everywhere: ascending integers [documents + 1]; document i has the places [borders[i], borders[i + 1]) of all
rows one behind the other, and lies in one row.
"""

import importlib.util
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from stages.pretrain.model import narrow_heads


def borders_of(positions: torch.Tensor) -> torch.Tensor:
    """int32[documents + 1], where positions: integers [rows, tokens], each 0 at which a document begins; so does each
    row. On a GPU the host waits for it."""
    begins = positions == 0
    begins[:, 0] = True
    end = torch.tensor([begins.numel()], device=positions.device)
    return torch.cat((begins.flatten().nonzero().flatten(), end)).to(torch.int32)


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, borders: torch.Tensor, *, scale: float
) -> torch.Tensor:
    """[rows, tokens, heads, width]: each token attends to those of its document up to itself. query: [rows, heads,
    tokens, width]; key, value: the same, with a divisor of as many heads; borders: int32, on their device."""
    device = query.device.type
    # As autocast does it for torch's own attention: rotary embedding has made float32 of query and key.
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else value.dtype
    query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    if device == "cpu":
        out, _ = _attend(query, key, value, borders, scale)
        return out
    rows, _, tokens, _ = query.shape
    query, key, value = (tensor.transpose(1, 2).flatten(0, 1) for tensor in (query, key, value))
    return _varlen(query, key, value, borders, tokens, scale).unflatten(0, (rows, tokens))


def _repeated(tensor: torch.Tensor, times: int, axis: int) -> torch.Tensor:
    return tensor if times == 1 else tensor.repeat_interleave(times, axis)


def _varlen(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, borders: torch.Tensor, longest: int, scale: float
) -> torch.Tensor:
    """[places, heads, width], of query: [places, heads, width] and key, value: the same with fewer heads. longest: no
    document has more tokens."""
    if _has_flash_attention():
        from flash_attn import flash_attn_varlen_func

        return flash_attn_varlen_func(
            *(query, key, value, borders, borders, longest, longest),
            softmax_scale=scale,
            causal=True,
            deterministic=torch.are_deterministic_algorithms_enabled(),
        )
    from torch.nn.attention.varlen import varlen_attn

    groups = query.shape[1] // key.shape[1]
    key, value = _repeated(key, groups, 1), _repeated(value, groups, 1)
    found = varlen_attn(query, key, value, borders, borders, longest, longest, scale=scale, window_size=(-1, 0))
    assert isinstance(found, torch.Tensor), "it returns more only if more is asked for"
    return found


@cache
def _has_flash_attention() -> bool:
    return importlib.util.find_spec("flash_attn") is not None


@torch.library.custom_op("longhaul::attend_documents", mutates_args=())
def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, borders: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """[rows, tokens, heads, width], and the logarithm of each softmax's denominator, float32[rows, tokens, heads]."""
    rows, heads, tokens, width = query.shape
    out = query.new_empty(rows, tokens, heads, width)
    log_z = query.new_empty(rows, tokens, heads, dtype=torch.float32)
    if narrow_heads.suit(query, borders):
        narrow_heads.attend(query, key, value, borders, scale, out, log_z)
        return out, log_z
    groups = heads // key.shape[1]
    key, value = _repeated(key, groups, 1), _repeated(value, groups, 1)
    for here, part in _documents(borders, tokens):
        pieces = (tensor[here, :, part] for tensor in (query, key, value))
        found, denominators = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *pieces, 0.0, True, scale=scale
        )
        out[here, part] = found.transpose(1, 2)
        log_z[here, part] = denominators.reshape(len(found), heads, -1).transpose(1, 2)
    return out, log_z


@torch.library.custom_op("longhaul::attend_documents_backward", mutates_args=())
def _attend_backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    log_z: torch.Tensor,
    borders: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of query, key and value."""
    of_query, of_key, of_value = _gradients_like(query, key, value)
    if narrow_heads.suit(query, borders):
        narrow_heads.attend_backward(
            gradient, query, key, value, out, log_z, borders, scale, of_query, of_key, of_value
        )
        return of_query, of_key, of_value
    tokens, key_heads, groups = query.shape[2], key.shape[1], query.shape[1] // key.shape[1]
    key, value = _repeated(key, groups, 1), _repeated(value, groups, 1)
    for here, part in _documents(borders, tokens):
        by_query, by_key, by_value = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient[here, part].transpose(1, 2),
            *(tensor[here, :, part] for tensor in (query, key, value)),
            out[here, part].transpose(1, 2),
            log_z[here, part].transpose(1, 2),
            0.0,
            True,
            scale=scale,
        )
        of_query[here, :, part] = by_query
        of_key[here, :, part] = by_key.unflatten(1, (key_heads, groups)).sum(2)
        of_value[here, :, part] = by_value.unflatten(1, (key_heads, groups)).sum(2)
    return of_query, of_key, of_value


def _gradients_like(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Room for a gradient of each, [rows, heads, tokens, width], with the heads of a token side by side."""
    return tuple(tensor.new_empty(tensor.transpose(1, 2).shape).transpose(1, 2) for tensor in tensors)


def _documents(borders: torch.Tensor, tokens: int) -> Iterator[tuple[slice, slice]]:
    """Rows, and places in each of them, of every document. Neighbours that each fill a row go together, as one call of
    a kernel shares out several rows among threads better than it does one."""
    places = borders.tolist()
    first_whole = None
    for first, last in zip(places, places[1:], strict=False):
        row, start = divmod(first, tokens)
        if last - first == tokens:
            first_whole = row if first_whole is None else first_whole
            continue
        if first_whole is not None:
            yield slice(first_whole, row), slice(0, tokens)
            first_whole = None
        yield slice(row, row + 1), slice(start, start + last - first)
    if first_whole is not None:
        yield slice(first_whole, places[-1] // tokens), slice(0, tokens)


@_attend.register_fake
def _(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, borders: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, heads, tokens, width = query.shape
    return query.new_empty(rows, tokens, heads, width), query.new_empty(rows, tokens, heads, dtype=torch.float32)


@_attend_backward.register_fake
def _(
    gradient: torch.Tensor, query: torch.Tensor, *others: Any, **named: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    key, value, *_ = others
    of_query, of_key, of_value = _gradients_like(query, key, value)
    return of_query, of_key, of_value


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors, *output)


def _backward(ctx: Any, gradient: torch.Tensor, _: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    query, key, value, borders, out, log_z = ctx.saved_tensors
    return (*_attend_backward(gradient, query, key, value, out, log_z, borders, ctx.scale), None, None)


_attend.register_autograd(_backward, setup_context=_save)
