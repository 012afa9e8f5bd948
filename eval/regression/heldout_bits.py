"""Bits per byte as a task: a held-out document is an item, so that two models are compared document by document.

Many beginnings of documents say more than a few whole ones: how hard a text is differs between documents, and that
cancels in pairs, whereas the number of documents is the number of independent pairs.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eval.regression.settings import HeldoutBitsSettings
from eval.results import ItemResult, Skipped, TaskResult
from eval.subject import Document, Subject, beginnings
from eval.suites import Suite, TaskDefinition

if TYPE_CHECKING:
    from eval.scoring.scorer import Progress


def chosen_documents(
    heldout: Mapping[str, Sequence[tuple[str, str]]], *, seed: int, limit: int, document_bytes: int
) -> list[Document]:
    """The beginnings, at most `document_bytes` of UTF-8 cut at a character, of `limit` documents, or of all if there
    are fewer: taken from the domains in turns, in each in an order drawn by `seed` from domain and id. A larger limit
    appends.
    """

    def drawn(document: Document) -> bytes:
        return hashlib.sha256(f"{seed}/{document.domain}/{document.id}".encode("utf-8", "surrogatepass")).digest()

    by_domain: dict[str, list[Document]] = {}
    for document in beginnings(heldout, document_bytes):
        by_domain.setdefault(document.domain, []).append(document)
    queues = [sorted(documents, key=drawn) for documents in by_domain.values()]
    turns = [queue[turn] for turn in range(max(map(len, queues), default=0)) for queue in queues if turn < len(queue)]
    return turns[:limit]


def run_task(suite: Suite, task: TaskDefinition, subject: Subject, progress: "Progress | None") -> TaskResult:
    """Bits per byte of each document, weighed by its bytes. Raises Skipped where there is no held-out text."""
    from eval.scoring.scorer import bits

    settings = task.chosen(HeldoutBitsSettings)
    documents = chosen_documents(
        subject.heldout, seed=task.seed, limit=task.limit, document_bytes=settings.document_bytes
    )
    if not documents:
        raise Skipped("the corpus has no held-out text")
    scores = subject.scorer.rolling([subject.tokenizer.encode(document.text) for document in documents], progress)
    items = tuple(
        ItemResult(
            item=number,
            cluster=f"{document.domain}/{document.id}",
            prompt_hash=document.hash,
            score=bits(score.log_likelihood) / document.num_bytes,
            weight=float(document.num_bytes),
            group=document.domain,
            evidence=document.id,
        )
        for number, (document, score) in enumerate(zip(documents, scores, strict=True))
    )
    return TaskResult(suite=suite.name, axis=suite.axis, definition=task, items=items)
