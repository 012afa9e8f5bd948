"""What the tasks of the long tail let a suite choose."""

from typing import Literal

from pydantic import Field, field_validator

from eval.settings import Settings
from eval.tasks import heldout, templates

LM_EVAL = "lm_eval/"
Perturbation = Literal["typos", "case", "spacing", "look_alikes", "paraphrase"]


class BaseSettings(Settings):
    """Of a task that asks other tasks' items in another form."""

    bases: tuple[str, ...] = Field(
        min_length=1,
        description="Whose items are asked, in turn: names of template or held-out generators, or lm_eval/NAME for a "
        "multiple-choice task of lm-eval",
    )

    @field_validator("bases")
    @classmethod
    def _exist_once(cls, bases: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(bases)) < len(bases):
            raise ValueError("a base stands twice")
        known = (*templates.GENERATORS, *heldout.GENERATORS)
        for base in bases:
            if base not in known and not base.startswith(LM_EVAL):
                raise ValueError(f"there is no generator {base!r}; there are {', '.join(known)}, or {LM_EVAL}NAME")
        return bases


class PerturbedSettings(BaseSettings):
    """Of `perturbed`."""

    perturbation: Perturbation = Field(description="How the items are changed")
    strength: float = Field(default=0.3, gt=0, le=1, description="Share of the places that are changed; at least one")


class LongContextSettings(BaseSettings):
    """Of `long_context`."""

    positions: tuple[float, ...] = Field(
        default=(0.3, 0.6, 0.9),
        min_length=1,
        description="Where an item begins, as shares of the context before it",
    )
    most_tokens: int = Field(default=1024, ge=16, description="Of the model's context, what is used at most")

    @field_validator("positions")
    @classmethod
    def _inside(cls, positions: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0 < position <= 1 for position in positions):
            raise ValueError("positions lie above 0 and up to 1")
        return positions


class WorstCaseSettings(BaseSettings):
    """Of `worst_case`: at most `rounds` * `candidates` forms of an item are asked."""

    rounds: int = Field(default=2, ge=1, description="Changes that are made one after the other")
    candidates: int = Field(default=6, ge=1, description="Forms tried for each change, of which the worst is kept")


class RareTextSettings(Settings):
    """Of `rare_text`."""

    kind: Literal["rare_domains", "rare_words"] = Field(description="What is rare about the text")
    share: float = Field(default=0.25, gt=0, lt=1, description="Share of the documents, or of the text, that is rare")
    document_bytes: int = Field(default=1000, ge=1, description="Of each document, its beginning is scored")
