"""What a model writes behind prompts, sampled by seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eval.safety.prompts import Prompt
from eval.safety.settings import ContinuationSettings
from eval.subject import Subject

if TYPE_CHECKING:
    from eval.scoring.scorer import Progress

MOST_EVIDENCE = 240  # characters


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """sample: of several of one prompt. text: without the prompt."""

    prompt: Prompt
    sample: int
    text: str


def continuations(
    subject: Subject,
    prompts: Sequence[Prompt],
    settings: ContinuationSettings,
    *,
    limit: int,
    seed: int,
    progress: "Progress | None",
) -> tuple[Continuation, ...]:
    """`settings.samples` continuations of each prompt, all samples of one prompt together, at most `limit` in all. What
    is sampled is a function of the seed and of the place in this order alone.
    """
    asked = [(prompt, sample) for prompt in prompts for sample in range(settings.samples)][:limit]
    texts = continued(
        subject,
        [prompt.text for prompt, _ in asked],
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        seed=seed,
        progress=progress,
    )
    return tuple(
        Continuation(prompt=prompt, sample=sample, text=text)
        for (prompt, sample), text in zip(asked, texts, strict=True)
    )


def continued(
    subject: Subject,
    texts: Sequence[str],
    *,
    max_new_tokens: int,
    temperature: float,
    seed: int,
    progress: "Progress | None",
) -> list[str]:
    """What follows each text; of a long one the end is read, so that there is room for it."""
    room = subject.scorer.room(max_new_tokens)
    new = subject.scorer.generate(
        [list(subject.tokenizer.encode(text))[-room:] for text in texts],
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        progress=progress,
    )
    return [subject.tokenizer.decode(tokens) for tokens in new]


def evidence(prompt: str, answer: str) -> str:
    """Both, for a person to look at."""
    text = f"{prompt} ⟶ {answer}"
    return text if len(text) <= MOST_EVIDENCE else text[: MOST_EVIDENCE - 1] + "…"
