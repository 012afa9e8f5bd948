"""Sequences that begin alike, laid out in one row so that the model reads what they share once.

A row holds trees of tokens in depth-first order: a place sees itself and its ancestors, and its position is its depth.
So a place is in the state that it would be in if its path stood alone, up to rounding. Sequences that share nothing
fill rows up, which spares padding.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

ROW_TOKENS = 128  # attention within a row costs the square of its length; up to here a few hundredths of the whole
LEAST_SHARED = 8  # a row grows longer for a sequence of which at least one token in so many is there already


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a request that the model takes at once. `tokens[:-1]` are read, the last `num_scored` of `tokens` are
    scored.
    """

    request: int
    tokens: tuple[int, ...]
    num_scored: int


@dataclass(kw_only=True)
class Tree:
    """A row, of one tree or several. tokens, depths: of each place. ends: one past the last place below it. places: of
    each piece, where its scored tokens are predicted. branches: whether a place does not see all before it.
    """

    tokens: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    places: list[list[int]] = field(default_factory=list)
    branches: bool = False
    path: list[int] = field(default_factory=list)  # places of the piece that was added last

    def add(self, piece: Piece, shared: int) -> None:
        """`shared`: tokens at the beginning that stand at `path[:shared]` already."""
        for place in self.path[shared:]:
            self.ends[place] = len(self.tokens)
        self.branches |= shared < len(self.path) and shared < len(piece.tokens) - 1
        del self.path[shared:]
        for depth in range(shared, len(piece.tokens) - 1):
            self.path.append(len(self.tokens))
            self.tokens.append(piece.tokens[depth])
            self.depths.append(depth)
            self.ends.append(0)
        self.pieces.append(piece)
        self.places.append(self.path[len(self.path) - piece.num_scored :])

    def close(self) -> None:
        """No piece is added any more."""
        for place in self.path:
            self.ends[place] = len(self.tokens)


def plant(pieces: Iterable[Piece], *, branching: bool, most_tokens: int) -> list[Tree]:
    """Rows that hold every piece once. A row is longer than `most_tokens` only for one piece that is.

    branching: whether rows may branch; if not, only a piece that continues another, or reads the same, joins it.
    """
    rows: list[Tree] = []
    last: Sequence[int] = ()
    for piece in sorted(pieces, key=lambda piece: piece.tokens[:-1]):
        inputs = piece.tokens[:-1]
        shared = _shared(last, inputs)
        if not rows or not _fits(rows[-1], len(last), len(inputs), shared, branching, most_tokens):
            rows.append(Tree())
            shared = 0
        rows[-1].add(piece, shared)
        last = inputs
    for row in rows:
        row.close()
    return rows


def _fits(row: Tree, last: int, length: int, shared: int, branching: bool, most_tokens: int) -> bool:
    if shared == last:  # nothing branches
        return len(row.tokens) + length - shared <= max(most_tokens, length)
    if not branching:
        return False
    most = 2 * length if shared * LEAST_SHARED >= length else 0
    return len(row.tokens) + length - shared <= min(most_tokens, max(ROW_TOKENS, most))


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Rows side by side, filled up on the right. tokens, positions: int64[batch, length]; visible: bool[batch, length,
    length]. The last two are absent where no row branches: there each place sees all before it.
    """

    tokens: np.ndarray
    positions: np.ndarray | None
    visible: np.ndarray | None


def lay_out(rows: Sequence[Tree], padding_token: int) -> Layout:
    """Padding sees itself alone and is seen by none."""
    length = max(len(row.tokens) for row in rows)
    tokens = np.full((len(rows), length), padding_token, np.int64)
    for number, row in enumerate(rows):
        tokens[number, : len(row.tokens)] = row.tokens
    if not any(row.branches for row in rows):
        return Layout(tokens=tokens, positions=None, visible=None)
    places = np.arange(length)
    positions = np.zeros((len(rows), length), np.int64)
    ends = np.tile(places + 1, (len(rows), 1))
    for number, row in enumerate(rows):
        positions[number, : len(row.tokens)] = row.depths
        ends[number, : len(row.tokens)] = row.ends
    visible = (places[None, :] <= places[:, None]) & (places[:, None] < ends[:, None, :])
    return Layout(tokens=tokens, positions=positions, visible=visible)


def batches(rows: Iterable[Tree], most_tokens: int) -> Iterator[list[Tree]]:
    """Longest first, so that a batch holds little padding and a lack of memory shows at once; rows that branch apart
    from those that do not. A batch has at most `most_tokens` places unless it is one row.
    """
    batch: list[Tree] = []
    for row in sorted(rows, key=lambda row: (not row.branches, -len(row.tokens))):
        is_full = batch and (len(batch) + 1) * len(batch[0].tokens) > most_tokens
        if batch and (is_full or row.branches != batch[0].branches):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
