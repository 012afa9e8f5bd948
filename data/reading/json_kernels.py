"""Lines of JSON objects to columns, for those lines of which nothing needs to be said.

A line is *plain* if it is a strict JSON object in UTF-8 that every parser reads alike: no wanted name twice, a string
with something in it as text, no lone surrogate and no NUL in a wanted field, nested less than MAX_DEPTH deep, no NaN,
no number of thousands of digits. All else is left to a slower reader, malformed lines among it.
"""

import numba
import numpy as np

from data.reading.json_grammar import ABSENT, ESCAPED_STRING, STRING, WHOLE_NUMBER, skip_space, skip_string, skip_value
from data.reading.json_strings import unescape
from data.reading.text_kernels import is_blank
from data.text.inner import inner
from data.text.machine import first_byte, load8, zero_bytes

PLAIN, EMPTY_LINE, UNUSUAL = 0, 1, 2
PADDING = 8
MOST_NAME_DIGITS = 18

TEXT, ID, GROUP = 0, 1, 2


@numba.njit(nogil=True, cache=True)
def count_newlines(values: np.ndarray) -> int:
    """How many bytes of uint8[n] are \\n."""
    count = 0
    for i in range(len(values)):
        count += values[i] == 10
    return count


@numba.njit(nogil=True, cache=True)
def line_ends(values: np.ndarray, end: int, ends: np.ndarray) -> None:
    """ends: int64[number of \\n in values[:end]], the place behind each. values: uint8, PADDING bytes longer."""
    newlines = np.uint64(0x0A0A0A0A0A0A0A0A)
    i = found = 0
    while i < end and found < len(ends):
        hit = zero_bytes(load8(values, i) ^ newlines)
        if hit == 0:
            i += 8
        else:
            i += first_byte(hit) + 1
            ends[found] = i
            found += 1


@numba.njit(nogil=True, cache=True)
def parse_lines(
    values: np.ndarray,
    ends: np.ndarray,
    names: np.ndarray,
    name_ends: np.ndarray,
    status: np.ndarray,
    out: tuple[np.ndarray, np.ndarray, np.ndarray],
    out_ends: np.ndarray,
    present: np.ndarray,
) -> int:
    """How many lines are plain: n. The first begins at 0, each begins where the one before ends.

    values: uint8, PADDING bytes longer than the lines. ends: int64[num_lines]. names: uint8, those of the three wanted
    fields one behind another (an empty one is not wanted), name_ends: int64[3]. status: uint8[num_lines].
    Out, for each field: out: three uint8, as long as values; out_ends: int64[3, num_lines + 1], of which the first
    n + 1 are filled; present: uint8[3, num_lines].
    """
    n = 0
    out_ends[:, 0] = 0
    spans = np.zeros((3, 3), np.int64)  # of each field: kind, begin, end
    begin = np.int64(0)  # of one type with the others: for a 0 as such all would be compiled once more
    for line in range(len(ends)):
        end = ends[line]
        status[line] = UNUSUAL
        if _is_empty(values, begin, end):
            status[line] = EMPTY_LINE
        elif _read_object(values, begin, end, names, name_ends, spans):
            filled = True
            for field in range(3):
                at = _copy_field(values, spans[field], out[field], out_ends[field, n])
                filled = filled and at >= 0
                out_ends[field, n + 1] = at
                present[field, n] = at > out_ends[field, n]
            if filled and present[TEXT, n] and not is_blank(out[TEXT], out_ends[TEXT, n], out_ends[TEXT, n + 1]):
                status[line] = PLAIN
                n += 1
        begin = end
    return n


@numba.njit(nogil=True, cache=True)
def depth(values: np.ndarray) -> int:
    """How deep the brackets of a JSON text are nested, those in strings apart."""
    now = most = 0
    inside = escaped = False
    for c in values:
        if inside:
            inside = escaped or c != 0x22
            escaped = not escaped and c == 0x5C
        elif c == 0x22:
            inside = True
        elif c == 0x5B or c == 0x7B:
            now += 1
            most = max(most, now)
        elif c == 0x5D or c == 0x7D:
            now -= 1
    return most


@inner
def _is_empty(values: np.ndarray, begin: int, end: int) -> bool:
    """Whether nothing is left of a line that Python's bytes.strip is applied to."""
    i = begin
    while i < end and (9 <= values[i] <= 13 or values[i] == 32):
        i += 1
    return i == end


@inner
def _read_object(
    values: np.ndarray, i: int, end: int, names: np.ndarray, name_ends: np.ndarray, spans: np.ndarray
) -> bool:
    """Whether values[i:end] is one JSON object that is fit to be plain; where its wanted fields are."""
    spans[:] = 0
    i = skip_space(values, i, end)
    if i >= end or values[i] != 0x7B:
        return False
    i = skip_space(values, i + 1, end)
    if i < end and values[i] == 0x7D:
        return False
    while True:
        if i >= end or values[i] != 0x22:
            return False
        name = i + 1
        i, escaped = skip_string(values, name, end)
        if i < 0 or escaped:
            return False
        name_end = i - 1
        i = skip_space(values, i, end)
        if i >= end or values[i] != 0x3A:
            return False
        begin = skip_space(values, i + 1, end)
        i, kind = skip_value(values, begin, end)
        if i < 0:
            return False
        for field in range(3):
            if _is_name(values, name, name_end, names, name_ends, field):
                if spans[field, 0] != ABSENT:
                    return False
                string = kind in (STRING, ESCAPED_STRING)
                spans[field, 0] = kind
                spans[field, 1] = begin + string
                spans[field, 2] = i - string
        i = skip_space(values, i, end)
        if i >= end:
            return False
        if values[i] == 0x7D:
            return skip_space(values, i + 1, end) == end and (
                spans[TEXT, 0] == STRING or spans[TEXT, 0] == ESCAPED_STRING
            )
        if values[i] != 0x2C:
            return False
        i = skip_space(values, i + 1, end)


@inner
def _is_name(values: np.ndarray, begin: int, end: int, names: np.ndarray, name_ends: np.ndarray, field: int) -> bool:
    first = name_ends[field - 1] if field else 0
    length = name_ends[field] - first
    if length == 0 or length != end - begin:
        return False
    k = 0
    while k < length and values[begin + k] == names[first + k]:
        k += 1
    return k == length


@inner
def _copy_field(values: np.ndarray, span: np.ndarray, out: np.ndarray, at: int) -> int:
    """The place behind the field's value in `out`, where it stands from `at` on; `at` if it names nothing, -1 if it is
    not fit to be plain."""
    kind, begin, end = span[0], span[1], span[2]
    if kind == WHOLE_NUMBER:
        if end - begin > MOST_NAME_DIGITS or (values[begin] == 0x2D and values[begin + 1] == 0x30):
            return -1
    elif kind == ESCAPED_STRING:
        return unescape(values, begin, end, out, at)
    elif kind != STRING:
        return at
    out[at : at + end - begin] = values[begin:end]
    return at + end - begin
