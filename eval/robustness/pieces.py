"""A question cut into words, white space and marks: what all its choices share on both sides of where they differ.

What changes a question changes shared pieces, for all choices alike, and leaves a word as it is wherever it stands if
choices differ in it or if it stands twice: what is to be copied or looked up is still there to be found.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eval.robustness.questions import Question

PIECE = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """`head` and `tail` are shared by all choices, `middles` has what each choice has between them."""

    question: Question
    head: tuple[str, ...]
    middles: tuple[tuple[str, ...], ...]
    tail: tuple[str, ...]

    @cached_property
    def decisive(self) -> frozenset[str]:
        """The words, in lower case, that choices differ in."""
        return frozenset(piece.casefold() for middle in self.middles for piece in middle)

    def words(self, least_letters: int) -> list[int]:
        """Places, counted over head and tail, of ASCII words of letters that may be changed."""
        shared = (*self.head, *self.tail)
        times = Counter(piece.casefold() for piece in shared)
        return [
            place
            for place, piece in enumerate(shared)
            if len(piece) >= least_letters
            and piece.isascii()
            and piece.isalpha()
            and times[piece.casefold()] == 1
            and piece.casefold() not in self.decisive
        ]

    def gaps(self) -> list[int]:
        """Places of single spaces within a line, which mean nothing."""
        return [
            *(place for place, piece in enumerate(self.head) if piece == " " and 0 < place < len(self.head) - 1),
            *(len(self.head) + place for place, piece in enumerate(self.tail[:-1]) if piece == " " and place > 0),
        ]

    def changed(self, pieces: dict[int, str]) -> "Pieces":
        """With other pieces at some places."""
        shared = [pieces.get(place, piece) for place, piece in enumerate((*self.head, *self.tail))]
        return replace(self, head=tuple(shared[: len(self.head)]), tail=tuple(shared[len(self.head) :]))

    def after(self, text: str) -> "Pieces":
        """With `text` before everything."""
        return replace(self, head=(text, *self.head))

    def build(self) -> Question:
        """The question again."""
        head, tail = "".join(self.head), "".join(self.tail)
        if self.question.context:
            return replace(self.question, context=head)
        return replace(self.question, choices=tuple(head + "".join(middle) + tail for middle in self.middles))


def split(question: Question) -> Pieces:
    """Of a question with a context, the context is shared and the choices are not."""
    if question.context:
        return Pieces(
            question=question,
            head=tuple(PIECE.findall(question.context)),
            middles=tuple(tuple(PIECE.findall(choice)) for choice in question.choices),
            tail=(),
        )
    cut = [PIECE.findall(choice) for choice in question.choices]
    shortest = min(map(len, cut))
    head = _shared(cut, shortest)
    tail = _shared([pieces[::-1] for pieces in cut], shortest - head)
    return Pieces(
        question=question,
        head=tuple(cut[0][:head]),
        middles=tuple(tuple(pieces[head : len(pieces) - tail]) for pieces in cut),
        tail=tuple(cut[0][len(cut[0]) - tail :]),
    )


def _shared(cut: Sequence[Sequence[str]], most: int) -> int:
    return next((i for i in range(most) if len({pieces[i] for pieces in cut}) > 1), most)
