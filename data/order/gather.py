"""Kernels that copy pieces of a token stream into the rows of a batch, straight out of mapped files.

A stream's tokens lie in blocks, each whole at some address. `starts`: int64[num_blocks], the first token of each
block, ascending. A piece is a range of target tokens; its inputs stand one place earlier, and before a stream's first
token stands the end-of-document token. All kernels run without the GIL.
"""

import numba
import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

IGNORE = -100  # a target that no loss counts, as in PyTorch's cross_entropy
NOT_OPEN = -1
LINE_BYTES, LOADED_LINES = 64, 8
RUN = 64
OUTSIDE = "a piece outside the stream"


@intrinsic
def _pointer(typing_context, address):
    """uint64 -> void*"""

    def lower(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.uint64), lower


@intrinsic
def _prefetch(typing_context, address):
    """Begin to load the cache line at an address: uint64."""

    def lower(context, builder, signature, arguments):
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        place = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        builder.call(function, [place, number(0), number(3), number(1)])  # for reading, to stay, data
        return context.get_dummy_value()

    return types.void(types.uint64), lower


@numba.njit(nogil=True, cache=True)
def block_of(starts: np.ndarray, token: int) -> int:
    """The block that holds a token of the stream."""
    low, high = 0, len(starts)
    while high - low > 1:
        middle = (low + high) >> 1
        if starts[middle] <= token:
            low = middle
        else:
            high = middle
    return low


@numba.njit(nogil=True, cache=True)
def touched_blocks(starts: np.ndarray, ends: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """int64[n]: the blocks that pieces start: int64[k], length: int64[k] read, inputs included, with repeats."""
    first = np.empty(len(start), np.int64)
    total = 0
    for piece in range(len(start)):
        assert start[piece] >= 0 and length[piece] > 0 and start[piece] + length[piece] <= ends[-1], OUTSIDE
        first[piece] = block_of(starts, max(start[piece] - 1, 0))
        total += block_of(starts, start[piece] + length[piece] - 1) - first[piece] + 1
    found = np.empty(total, np.int64)
    place = 0
    for piece in range(len(start)):
        end = start[piece] + length[piece]
        block = first[piece]
        while block < len(starts) and starts[block] < end:
            found[place] = block
            place += 1
            block += 1
    return found


@numba.njit(nogil=True, cache=True)
def _begin_to_load(starts: np.ndarray, addresses: np.ndarray, like: np.ndarray, start: int, length: int) -> None:
    """The first lines of a piece; the processor finds the others by itself. Rows lie anywhere in a stream, and a piece
    that is waited for takes half as long again.
    """
    block = block_of(starts, start)
    if addresses[block]:
        first = addresses[block] + np.uint64((start - starts[block]) * like.itemsize)
        for line in range(min(LOADED_LINES, (length * like.itemsize + LINE_BYTES - 1) // LINE_BYTES)):
            _prefetch(first + np.uint64(line * LINE_BYTES))  # type: ignore[call-arg]


# Each of the loops below does one thing, since only such are vectorised: together they take half as long that way.
@numba.njit(nogil=True, cache=True)
def _copy(
    starts: np.ndarray, ends: np.ndarray, addresses: np.ndarray, like: np.ndarray, start: int, out: np.ndarray
) -> int:
    """out: int64[n] = tokens start to start + n. The largest of them, or NOT_OPEN."""
    block = block_of(starts, start)
    largest, done = like.dtype.type(0), 0
    while done < len(out):
        if addresses[block] == 0:
            return NOT_OPEN
        inside = start + done - starts[block]
        count = min(len(out) - done, ends[block] - start - done)
        whole = carray(_pointer(addresses[block]), ends[block] - starts[block], like.dtype)  # type: ignore[call-arg]
        tokens = whole[inside : inside + count]
        part = out[done : done + count]
        for i in range(count):
            largest = max(largest, tokens[i])
        for i in range(count):
            part[i] = tokens[i]
        done += count
        block += 1
    return int(largest)


@numba.njit(nogil=True, cache=True)
def _shift(targets: np.ndarray, inputs: np.ndarray) -> None:
    """inputs[1:] = targets[:-1]"""
    for i in range(1, len(targets)):
        inputs[i] = targets[i - 1]


@numba.njit(nogil=True, cache=True)
def _count(first: int, positions: np.ndarray) -> None:
    """positions: int32[n] = first, first + 1, ..."""
    for i in range(np.uint32(len(positions))):
        positions[i] = np.int32(np.uint32(first) + np.uint32(i))


@numba.njit(nogil=True, cache=True)
def _count_from_ends(inputs: np.ndarray, end_id: int, positions: np.ndarray) -> None:
    """positions: int32[n], the places since the last input that is end_id, or since the first. Most runs of RUN inputs
    hold none, and are only counted.
    """
    end, last = np.int64(end_id), 0
    for run in range(len(inputs) // RUN):
        first = run * RUN
        tokens, out = inputs[first : first + RUN], positions[first : first + RUN]
        num_ends = 0
        for i in range(RUN):
            num_ends += tokens[i] == end
        if num_ends:
            for i in range(RUN):
                if tokens[i] == end:
                    last = first + i
                out[i] = first + i - last
        else:
            count = np.int32(first - last)
            for i in range(RUN):
                out[i] = count + np.int32(i)
    for i in range(len(inputs) // RUN * RUN, len(inputs)):
        if inputs[i] == end:
            last = i
        positions[i] = i - last


@numba.njit(nogil=True, cache=True)
def fill_rows(
    starts: np.ndarray,
    ends: np.ndarray,
    addresses: np.ndarray,
    like: np.ndarray,
    row: np.ndarray,
    start: np.ndarray,
    length: np.ndarray,
    end_id: int,
    isolate: bool,
    inputs: np.ndarray,
    targets: np.ndarray,
    positions: np.ndarray,
) -> int:
    """Fill the rows of a batch that `row` names. The largest id that was read; NOT_OPEN if one of `touched_blocks` has
    no address: then the rows hold nothing of use.

    ends: int64[num_blocks], one past the last token of each block. addresses: uint64[num_blocks], where it lies in
    memory as an array of like.dtype, or 0. Pieces row, start, length: int64[k], those of one row behind one another.
    inputs, targets: int64[rows, n], positions: int32[rows, n].

    Positions count from 0 in each segment if `isolate`, else through the row. The rest of a row is padding: end_id as
    input, IGNORE as target, position 0.
    """
    largest, piece = 0, 0
    while piece < len(row):
        into, of, at = inputs[row[piece]], targets[row[piece]], positions[row[piece]]
        first, column = piece, 0
        while piece < len(row) and row[piece] == row[first]:
            if piece + 1 < len(row):
                _begin_to_load(starts, addresses, like, start[piece + 1], length[piece + 1])
            assert start[piece] >= 0 and length[piece] > 0 and start[piece] + length[piece] <= ends[-1], OUTSIDE
            stop = column + length[piece]
            assert stop <= len(of), "pieces that are longer than their row"
            found = _copy(starts, ends, addresses, like, start[piece], of[column:stop])
            _shift(of[column:stop], into[column:stop])
            before = 0
            if start[piece] > 0:
                before = _copy(starts, ends, addresses, like, start[piece] - 1, into[column : column + 1])
            else:
                into[column] = end_id
            if found == NOT_OPEN or before == NOT_OPEN:
                return NOT_OPEN
            largest = max(largest, found, before)
            if isolate:
                _count_from_ends(into[column:stop], end_id, at[column:stop])
            else:
                _count(column, at[column:stop])
            column = stop
            piece += 1
        into[column:] = end_id
        of[column:] = IGNORE
        at[column:] = 0
    return largest
