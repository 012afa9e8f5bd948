"""Bits per byte of held-out text that training text held little of.

rare_domains  documents of the smallest domains, which together hold at most a share of the held-out text
rare_words    the documents whose words stand in no other held-out document more often than those of the others

An item is the beginning of a document, its weight the bytes. Clean are as many of the other documents.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

from eval.compare.clusters import clustered
from eval.compare.intervals import Z
from eval.results import ItemResult, Skipped, TaskResult
from eval.robustness.settings import RareTextSettings
from eval.scoring.scorer import Progress, bits
from eval.subject import Document, Subject, beginnings
from eval.suites import Suite, TaskDefinition

WORD = re.compile(r"[^\W\d_]{3,}")
LEAST_DISTINCT_WORDS = 20


def run_task(suite: Suite, task: TaskDefinition, subject: Subject, progress: Progress | None) -> TaskResult:
    """Groups are the domains, the worst one needs the most bits per byte. Raises Skipped where no text is rarer than
    other text.
    """
    settings = task.chosen(RareTextSettings)
    texts = beginnings(subject.heldout, settings.document_bytes)
    rare, common = CHOICES[settings.kind](texts, settings.share)
    chosen = [_drawn(found, task) for found in (rare, common)]
    if not all(chosen):
        raise Skipped("no held-out text is rarer than other held-out text")
    encode = subject.tokenizer.encode
    scores = iter(subject.scorer.rolling([encode(text.text) for found in chosen for text in found], progress))
    items, others = (
        [
            ItemResult(
                item=i,
                cluster=f"{text.domain}/{text.id}",
                prompt_hash=text.hash,
                score=bits(next(scores).log_likelihood) / text.num_bytes,
                weight=text.num_bytes,
                group=text.domain,
            )
            for i, text in enumerate(found)
        ]
        for found in chosen
    )
    return TaskResult(
        suite=suite.name, axis=suite.axis, definition=task, items=tuple(items), details=_details(items, others)
    )


def rare_domains(texts: Sequence[Document], share: float) -> tuple[list[Document], list[Document]]:
    """Texts of the smallest domains, which hold at most `share` of the bytes, at least the smallest one; and of the
    others. Raises Skipped for fewer than two domains.
    """
    sizes: Counter[str] = Counter()
    for text in texts:
        sizes[text.domain] += text.num_bytes
    if len(sizes) < 2:
        raise Skipped("the held-out text has fewer than two domains")
    small: set[str] = set()
    for domain in sorted(sizes, key=lambda domain: (sizes[domain], domain))[:-1]:
        if small and sum(sizes[name] for name in (*small, domain)) > share * sizes.total():
            break
        small.add(domain)
    return [text for text in texts if text.domain in small], [text for text in texts if text.domain not in small]


def rare_words(texts: Sequence[Document], share: float) -> tuple[list[Document], list[Document]]:
    """The `share` of the documents with the most words (of their distinct ones) that no other document has, and the
    others; only documents of 20 distinct words or more.
    """
    words = [frozenset(word.casefold() for word in WORD.findall(text.text)) for text in texts]
    documents = Counter(word for found in words for word in found)
    rarity = {
        place: sum(documents[word] == 1 for word in found) / len(found)
        for place, found in enumerate(words)
        if len(found) >= LEAST_DISTINCT_WORDS
    }
    order = sorted(rarity, key=lambda place: (-rarity[place], texts[place].domain, texts[place].id))
    cut = round(share * len(order))
    return [texts[place] for place in order[:cut]], [texts[place] for place in order[cut:]]


Choice = Callable[[Sequence[Document], float], tuple[list[Document], list[Document]]]
CHOICES: dict[str, Choice] = {"rare_domains": rare_domains, "rare_words": rare_words}


def _drawn(texts: Sequence[Document], task: TaskDefinition) -> list[Document]:
    def key(text: Document) -> bytes:
        return hashlib.sha256(f"rare_text/{task.seed}/{text.domain}/{text.id}".encode()).digest()

    return sorted(texts, key=key)[: task.limit]


def _details(items: Sequence[ItemResult], others: Sequence[ItemResult]) -> dict[str, object]:
    value, clean = _mean(items), _mean(others)
    errors = [
        clustered(
            [item.score for item in found], [item.cluster for item in found], [item.weight for item in found]
        ).standard_error
        for found in (items, others)
    ]
    groups = {
        group: {"value": _mean(found), "num_items": len(found)}
        for group in sorted({item.group for item in items})
        if (found := [item for item in items if item.group == group])
    }
    worst = max(groups, key=lambda group: groups[group]["value"])
    return {
        "clean": clean,
        "drop": _drop(value - clean, *errors),
        "worst_group": {"group": worst, "value": groups[worst]["value"]},
        "groups": groups,
    }


def _drop(value: float, *errors: float | None) -> dict[str, float | None]:
    """The difference of two sets of documents, with its 95 % interval by the normal approximation."""
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return {"value": value, "low": None, "high": None, "standard_error": None}
    error = math.hypot(*known)
    return {"value": value, "low": value - Z * error, "high": value + Z * error, "standard_error": error}


def _mean(items: Sequence[ItemResult]) -> float:
    return math.fsum(item.score * item.weight for item in items) / math.fsum(item.weight for item in items)
