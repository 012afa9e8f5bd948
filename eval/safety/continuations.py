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
    room = max(1, subject.scorer.model.max_length - settings.max_new_tokens)
    contexts = [list(subject.tokenizer.encode(prompt.text))[-room:] for prompt, _ in asked]
    new = subject.scorer.generate(
        contexts,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        seed=seed,
        progress=progress,
    )
    return tuple(
        Continuation(prompt=prompt, sample=sample, text=subject.tokenizer.decode(tokens))
        for (prompt, sample), tokens in zip(asked, new, strict=True)
    )


def evidence(prompt: str, continued: str) -> str:
    """Both, for a person to look at."""
    text = f"{prompt} ⟶ {continued}"
    return text if len(text) <= MOST_EVIDENCE else text[: MOST_EVIDENCE - 1] + "…"
