"""The kernel that measures a column of texts in one pass, and the one that writes the texts that C4 edits."""

import numba
import numpy as np

from data.quality.byte_measures import count_lines
from data.quality.lines import CHARACTERS, KEPT_LINES, UNITS, measure_lines
from data.quality.phrases import citation_end
from data.quality.repetition import LOADS, ROOM, measure_repetition
from data.text.inner import inner


@inner
def _power_of_two(least: int) -> int:
    size = 16
    while size < least:
        size *= 2
    return size


@numba.njit(nogil=True, cache=True)
def measure_texts(
    values: np.ndarray,
    offsets: np.ndarray,
    classes: np.ndarray,
    limits: np.ndarray,
    limit_rows: np.ndarray,
    counts: np.ndarray,
    shares: np.ndarray,
    spans: np.ndarray,
    span_starts: np.ndarray,
) -> None:
    """Measures of each of d texts.

    classes: `character_classes()`. limits: float64[m, NUM_SHARES], as `measure_repetition` says; limit_rows: int64[d],
    which row holds for a text. counts: int64[d, NUM_COUNTS], zeros. shares: float64[d, NUM_SHARES], zeros. spans:
    int64[num_spans, 2], at least one for each line that is not empty; span_starts: int64[d + 1]. Begin and end of the
    lines that C4 keeps of text k are spans[span_starts[k]:span_starts[k + 1]].
    """
    num_texts = len(offsets) - 1
    longest = most_lines = 0
    for d in range(num_texts):
        longest = max(longest, offsets[d + 1] - offsets[d])
        most_lines = max(most_lines, count_lines(values, offsets[d], offsets[d + 1]))
    room = min(longest, ROOM)
    hashes, ends = np.empty(room, np.uint64), np.zeros(room + 1, np.int64)
    table, seen = np.empty(_power_of_two(2 * room), np.uint64), np.empty(_power_of_two(3 * most_lines), np.uint64)
    occurrences, twice, places = np.empty(room, np.int64), np.empty(room, np.bool_), np.empty(room, np.int64)
    loads = np.empty(LOADS, np.int64)
    span_starts[0] = 0
    for d in range(num_texts):
        begin, end = offsets[d], offsets[d + 1]
        seen_by_text = seen[: _power_of_two(3 * count_lines(values, begin, end))]
        seen_by_text[:] = np.uint64(0)
        kept = spans[span_starts[d] :]
        measure_lines(values, begin, end, classes, hashes, ends, seen_by_text, kept, counts[d])
        span_starts[d + 1] = span_starts[d] + counts[d, KEPT_LINES]
        units = counts[d, UNITS]
        characters = counts[d, CHARACTERS] if units <= room else ends[room]
        measure_repetition(
            hashes,
            ends,
            min(units, room),
            characters,
            limits[limit_rows[d]],
            table,
            occurrences,
            twice,
            places,
            loads,
            shares[d],
        )


@numba.njit(nogil=True, cache=True)
def write_kept_lines(
    values: np.ndarray,
    offsets: np.ndarray,
    edited: np.ndarray,
    spans: np.ndarray,
    span_starts: np.ndarray,
    out: np.ndarray,
    out_offsets: np.ndarray,
) -> None:
    """Copies texts; those of `edited` (bool[d]) without their other lines and without citations.

    out: uint8, as long as all texts; out_offsets: int64[d + 1].
    """
    n = 0
    out_offsets[0] = 0
    for d in range(len(offsets) - 1):
        if not edited[d]:
            for i in range(offsets[d], offsets[d + 1]):
                out[n + i - offsets[d]] = values[i]
            n += offsets[d + 1] - offsets[d]
        else:
            for k in range(span_starts[d], span_starts[d + 1]):
                if k > span_starts[d]:
                    out[n] = 10
                    n += 1
                i, end = spans[k, 0], spans[k, 1]
                while i < end:
                    after = citation_end(values, i, end) if values[i] == 91 else i
                    if after > i:
                        i = after
                        continue
                    out[n] = values[i]
                    n += 1
                    i += 1
        out_offsets[d + 1] = n
