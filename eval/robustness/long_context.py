"""Items after held-out text that has nothing to do with them: does a model still know it late in its context?"""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eval.results import ItemResult, Skipped, TaskResult
from eval.robustness.drop import with_drop
from eval.robustness.questions import is_right, plain_tokens, predicted, read_questions
from eval.robustness.settings import LongContextSettings
from eval.suites import Suite, TaskDefinition

if TYPE_CHECKING:
    from eval.scoring.scorer import Progress
    from eval.subject import Subject

SEPARATOR = "\n\n"


def run_task(suite: Suite, task: TaskDefinition, subject: "Subject", progress: "Progress | None") -> TaskResult:
    """Each question is asked after filler of its own, cut so that its longest choice ends in the context. Groups are
    the positions, which the questions of each base take in turn. Clean is the question alone. Raises Skipped where
    there is too little held-out text or context.
    """
    settings = task.chosen(LongContextSettings)
    window = min(subject.scorer.model.max_length, settings.most_tokens)
    separator = plain_tokens(subject, SEPARATOR)
    whole = subject.tokenizer.encode(SEPARATOR)
    start = whole[: len(whole) - len(separator)]
    numbered = read_questions(task, settings.bases, subject)
    found = []
    requests: list[tuple[Sequence[int], Sequence[int]]] = []
    filler = _Filler(subject, task.seed)
    for entry in numbered:
        choices = [plain_tokens(subject, text) for text in entry.question.texts]
        position = settings.positions[entry.item // len(settings.bases) % len(settings.positions)]
        num_tokens = int(position * (window - 1 - max(map(len, choices)) - len(separator)))
        if num_tokens < 1:
            continue
        context = [*start, *filler.take(num_tokens, entry.item), *separator]
        found.append((entry, position, context))
        requests += [((), choice) for choice in choices] + [(context, choice) for choice in choices]
    if not found:
        raise Skipped(f"a context of {window} tokens has no place for text before an item")
    scores = iter(subject.scorer.score(requests, progress))
    items, clean_scores = [], []
    for entry, position, context in found:
        clean, after = (tuple(next(scores).log_likelihood for _ in entry.question.choices) for _ in range(2))
        clean_scores.append(is_right(entry.question, clean))
        items.append(
            ItemResult(
                item=entry.item,
                cluster=entry.question.cluster,
                prompt_hash=entry.question.hash(subject.tokenizer.decode(context)),
                score=is_right(entry.question, after),
                group=f"{position:g} of the context",
                gold=entry.question.gold,
                predicted=predicted(after),
                log_likelihoods=after,
            )
        )
    return with_drop(suite, task, items, clean_scores, {"context_tokens": window})


class _Filler:
    """Held-out text, a document after another in an order drawn by `seed`."""

    def __init__(self, subject: "Subject", seed: int) -> None:
        self._subject = subject
        self._seed = seed
        self._documents = sorted(pair for pairs in subject.heldout.values() for pair in pairs if pair[1].strip())
        if not self._documents:
            raise Skipped("there is no held-out text to put before an item")

    def take(self, num_tokens: int, item: int) -> list[int]:
        """Exactly `num_tokens` tokens, drawn by the item's number."""
        rng = random.Random(f"filler/{self._seed}/{item}")
        tokens: list[int] = []
        while len(tokens) < num_tokens:
            _, text = rng.choice(self._documents)
            # Of a long document only what is needed is encoded: a token is at least a byte.
            begin = rng.randrange(max(1, len(text) - 8 * num_tokens))
            tokens += plain_tokens(self._subject, text[begin : begin + 8 * num_tokens])
        return tokens[:num_tokens]
