"""Requests at the edge of what a model can be given: does it answer all of them, and with numbers that can be right?

A request passes if its log-likelihood is finite and not above zero, its tokens are all counted, and an answer in two
parts gets what it gets as a whole, to within a tolerance. A text that is no Unicode passes if it is refused by a
ValueError or a TypeError, which says what is wrong with it. Whatever else is raised is no answer, but a broken run.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eval.results import ItemResult, TaskResult, hashed
from eval.robustness.questions import plain_tokens
from eval.scoring.scorer import Progress, Score
from eval.subject import Subject
from eval.suites import Suite, TaskDefinition

LONGEST_CONTEXT = 2048  # that is filled: of a longer one that alone would take minutes
TOLERANCE = 1e-3  # nats a token: batches of other shapes move low-order bits
WORDS = "The file was read and its lines were counted, one after another. "
TEXTS = {
    "empty": ["", "\n", " "],
    "one token": ["a", ".", "0"],
    "only white space": [" " * 40, "\n" * 40, "\t \r\n" * 10, "\u3000\u00a0\u2028"],
    "control characters": ["\x00", "\x07\x1b[31m\x7f", "a\x00b", "\x85\x9f", "\ufeffa", "\ufffe\uffff"],
    "unusual text": ["\U0001f469\u200d\U0001f52c" * 3, "e" + "\u0301" * 30, "\u202eabc\u202c", "\u0e01\u0e33" * 8],
    "one character again and again": ["a" * 300, "(" * 300, "\U0001f600" * 60],
    "no Unicode": ["\ud800", "a\udfffb"],
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """Tokens to be scored after tokens. `refused`: why there are none."""

    group: str
    name: str
    context: Sequence[int] = ()
    answer: Sequence[int] = ()
    refused: str = ""


def run_task(suite: Suite, task: TaskDefinition, subject: Subject, progress: Progress | None) -> TaskResult:
    """Groups are the kinds of requests; `evidence` says why one did not pass. At most `limit` requests, the first."""
    asked = list(requests(subject))[: task.limit]
    pairs: list[tuple[Sequence[int], Sequence[int]]] = []
    start = () if subject.scorer.always_prefix else (subject.scorer.prefix_token,)
    for request in asked:
        half = len(request.answer) // 2
        head, rest = request.answer[:half], request.answer[half:]
        before = (*request.context, *head) if request.context or not head else (*start, *head)
        pairs += [(request.context, request.answer), (request.context, head), (before, rest)]
    scores = subject.scorer.score(pairs, progress)
    items = []
    for i, request in enumerate(asked):
        whole, first, second = scores[3 * i : 3 * i + 3]
        faults = list(_faults(request, whole, first, second, subject.scorer.model.max_length))
        items.append(
            ItemResult(
                item=i,
                cluster=f"{request.group}/{request.name}",
                prompt_hash=hashed(request.group, request.name),
                score=float(not faults),
                group=request.group,
                evidence="; ".join(faults) or request.refused,
            )
        )
    failed = sorted({item.group for item in items if item.score == 0})
    return TaskResult(
        suite=suite.name, axis=suite.axis, definition=task, items=tuple(items), details={"failed_groups": failed}
    )


def requests(subject: Subject) -> Iterator[Request]:
    """Every request: texts, and lengths about the model's context, unless that is a long one."""
    for group, texts in TEXTS.items():
        for text in texts:
            name = ascii(text) if len(text) < 20 else f"{ascii(text[:8])} ({len(text)} characters)"
            try:
                yield Request(group=group, name=name, answer=tuple(plain_tokens(subject, text)))
            except (ValueError, TypeError) as error:
                refused = f"refused: {type(error).__name__}: {error}"
                yield Request(group=group, name=name, refused=refused if group == "no Unicode" else "")
    words = plain_tokens(subject, WORDS)
    most = subject.scorer.model.max_length
    if most > LONGEST_CONTEXT or not words:
        return

    def of(length: int) -> tuple[int, ...]:
        return tuple((words * (length // len(words) + 1))[:length])

    for name, length in (
        ("one less", most - 1),
        ("as long", most),
        ("one more", most + 1),
        ("twice and more", 2 * most + 3),
    ):
        yield Request(group="length of the context", name=name, answer=of(length))
    for name, length in (("fills it", most - 1), ("exceeds it", most), ("twice and more", 2 * most + 3)):
        yield Request(group="one token after a long context", name=name, context=of(length), answer=tuple(words[:1]))


def _faults(request: Request, whole: Score, first: Score, second: Score, max_length: int) -> Iterator[str]:
    if request.refused:
        return
    num = len(request.answer)
    if whole.num_tokens != num:
        yield f"{whole.num_tokens} of {num} tokens were counted"
    values = [score.log_likelihood for score in (whole, first, second)]
    if not all(math.isfinite(value) for value in values):
        yield f"log-likelihoods are {', '.join(map(str, values))}"
        return
    if max(values) > TOLERANCE:
        yield f"a log-likelihood is {max(values)}, above zero"
    fits = len(request.context) + num <= max_length  # beyond, the parts are seen with other contexts
    if fits and abs(whole.log_likelihood - first.log_likelihood - second.log_likelihood) > TOLERANCE * max(1, num):
        yield f"{whole.log_likelihood} as a whole, {first.log_likelihood} and {second.log_likelihood} in parts"
