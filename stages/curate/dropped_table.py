"""Dropped documents as a person reads them, on a terminal or a pipe."""

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stages.curate import query
from stages.curate.query import Query
from stages.store import Artifact

PIPE_COLUMNS = 160


def show(corpus: Artifact, asked: Query, *, most: int) -> None:
    """Print how many documents went for which reason, and the first of them; for one document all that is known."""
    console = Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS, highlight=False, markup=False)
    reasons = query.counts(corpus, asked)
    total = sum(documents for documents, _ in reasons.values())
    if not asked.id:
        rows = [(reason, f"{documents:,}", f"{size:,}") for reason, (documents, size) in reasons.items()]
        console.print(_table(("reason", "documents", "bytes"), rows, right=(1, 2)))
    found = query.first(corpus, asked, most)
    if found:
        console.print(
            _table(
                ("id", "domain", "language", "bytes", "reason", "measured", "detail", "repeats"),
                [
                    (
                        row["id"],
                        row["domain"],
                        row["language"],
                        f"{row['num_bytes']:,}",
                        row["reason"],
                        "" if row["score"] is None else f"{row['score']:.6g}",
                        row["detail"],
                        row["survivor"] or "",
                    )
                    for row in found
                ],
                right=(3, 5),
            )
        )
    if asked.id:
        _show_document(console, corpus, asked.id, dropped=bool(found))
    elif total > len(found):
        console.print(f"{total - len(found):,} more; --show N shows some, --out FILE writes them all")
    elif not total:
        console.print("no document was dropped for that")


def _show_document(console: Console, corpus: Artifact, id: str, *, dropped: bool) -> None:
    for excerpt in query.excerpts(corpus, id):
        console.print(Text(_printable(excerpt, keep="\n\t")))
    kept = query.kept(corpus, id)
    for side, domain in kept:
        console.print(f"{_printable(id)} is in the {'training' if side == 'train' else 'held-out'} text of {domain}")
    if not dropped and not kept:
        console.print(f"the corpus neither holds nor dropped a document {_printable(id)!r}")


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(names):
        table.add_column(name, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_printable(value)) for value in row))
    return table


def _printable(text: str, keep: str = "") -> str:
    """Without characters that would move the cursor or colour the terminal: text comes from anywhere."""
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode() for char in text
    )
