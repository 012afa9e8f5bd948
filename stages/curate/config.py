"""The `[curate]` table of a recipe."""

from enum import StrEnum
from typing import Literal

from pydantic import Field, field_validator, model_validator

from data.dedup.banding import NearDuplicateSettings
from data.pii.kinds import DEFAULT_KINDS, PiiKind
from data.quality.rules import Preset, QualityRules
from stages.config import StageConfig, runtime, shared
from stages.curate.languages import require_code
from stages.curate.source import Kind, Source
from stages.suites import SuitesConfig


class Uncovered(StrEnum):
    """What becomes of a document in a language that no quality rule covers."""

    KEEP = "keep"
    DROP = "drop"


class CurateConfig(StageConfig):
    """What to read and what to keep of it."""

    sources: tuple[Source, ...] = Field(
        (Source(kind=Kind.PYTHON_ENVIRONMENT),), description="Where the text comes from, at least one"
    )
    heldout_fraction: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="Share of groups (files, packages) set apart for evaluation, per domain at least one",
    )
    heldout_max_bytes: int = Field(1_000_000, ge=1, description="Held-out text of a domain at most")
    heldout_seed: int = Field(0, ge=-(2**63), lt=2**63, description="Draws the held-out groups")
    identify_languages: bool = Field(
        True,
        description="Find out each document's language; without it, text whose letters are mostly ASCII is judged as "
        "English, and other text by the rules for all languages",
    )
    languages: tuple[str, ...] = Field(
        (), description="Languages to keep, as en, zh or unknown (ISO codes); empty: all of them"
    )
    uncovered_languages: Uncovered = Field(
        Uncovered.KEEP, description="A document in a language that no quality rule covers: keep it or drop it"
    )
    language_rules: dict[str, dict[str, float]] = Field(
        {},
        description="Language: bounds that replace the preset's there, by name; for fi, say, most mean word length: 14",
    )
    pii: tuple[PiiKind, ...] = Field(
        DEFAULT_KINDS, description="What to replace by a placeholder: secret, email, iban, card, ip, phone; [] for none"
    )
    classifier: str = runtime("", description="Path of a quality classifier (stages.curate.train); empty: none")
    classifier_least: float = Field(
        0.5, ge=0, le=1, description="Documents that the classifier scores lower are dropped"
    )
    perplexity_model: str = runtime("", description="Path of an n-gram model (stages.curate.train); empty: none")
    perplexity_most: float = Field(
        8.0, gt=0, description="Bits per byte by the n-gram model above which a document is dropped"
    )
    repeated_line_documents: int = Field(
        0, ge=0, description="A line that stands in more documents than this is removed from all; 0: none is"
    )
    repeated_line_characters: int = Field(
        40, ge=1, description="Lines of fewer characters are never removed for being repeated"
    )
    near_threshold: float = Field(
        0.8, gt=0, le=1, description="Jaccard similarity of word n-grams from which a text is a near duplicate"
    )
    near_ngram_words: int = Field(
        5, ge=2, le=50, description="Words in an n-gram; shorter texts are compared exactly only"
    )
    near_recall: float = Field(
        0.99, ge=0.5, lt=1, description="Wanted probability of finding a pair at the threshold: sets bands and rows"
    )
    overlap_ngram_words: int = Field(13, ge=5, le=50, description="Words in an n-gram for decontamination")
    overlap_short_words: int = Field(
        8,
        ge=1,
        le=50,
        description="Suite items of fewer words are not looked for; of more, but no n-gram, as a whole",
    )
    overlap_text_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="A training text goes if this share of its n-grams stands in held-out text or in suite items",
    )
    overlap_item_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="A training text goes if it holds this share of the n-grams of one held-out text or suite item",
    )
    known_corpora: tuple[str, ...] = runtime(
        (), description="Folders of curated corpora: what repeats their documents is dropped"
    )
    suites: SuitesConfig = shared(SuitesConfig)
    warn_lost_share: float = runtime(
        0.5, ge=0, le=1, description="Warn if a domain loses more than this share of its bytes"
    )
    most_lost_share: float = runtime(
        0.95, ge=0, le=1, description="Fail if a source or a language loses more than this share of its bytes"
    )
    lost_share_documents: int = runtime(
        100,
        ge=1,
        description="Sources and languages of fewer documents do not fail for what they lose; a source without text "
        "does",
    )
    workers: int = runtime(2, ge=1, description="Threads; the result does not depend on them")
    executor: Literal["threads", "ray"] = runtime("threads", description="Where shards are worked on")
    ray_address: str = runtime("", description="Address of a Ray cluster; empty: one of this machine's own")

    @field_validator("sources")
    @classmethod
    def _something_is_read(cls, sources: tuple[Source, ...]) -> tuple[Source, ...]:
        if not sources:
            raise ValueError("sources is empty; name at least one source")
        if sum(source.planted for source in sources) > 1:
            raise ValueError("several sources are of kind canaries; plant them by one, with a larger number")
        return sources

    @field_validator("languages")
    @classmethod
    def _languages_are_codes(cls, languages: tuple[str, ...]) -> tuple[str, ...]:
        for language in languages:
            require_code(language, unknown=True)
        return languages

    @field_validator("language_rules")
    @classmethod
    def _rules_are_for_codes(cls, rules: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        for language in rules:
            require_code(language, unknown=False)
        return rules

    @model_validator(mode="after")
    def _settings_agree(self) -> "CurateConfig":
        self.near_duplicates()
        self.quality_rules(())
        if not self.identify_languages and (self.languages or self.language_rules):
            raise ValueError("languages and language_rules have no effect unless identify_languages is true")
        if self.executor == "threads" and self.ray_address:
            raise ValueError('ray_address has no effect unless executor = "ray"')
        return self

    def idle(self) -> list[str]:
        """The settings that were made and have no effect, for want of another one."""
        needs = {
            "classifier_least": self.classifier,
            "perplexity_most": self.perplexity_model,
            "repeated_line_characters": self.repeated_line_documents,
            "uncovered_languages": self.identify_languages,
        }
        defaults = type(self).model_fields
        return [name for name, need in needs.items() if not need and getattr(self, name) != defaults[name].default]

    def near_duplicates(self) -> NearDuplicateSettings:
        return NearDuplicateSettings(
            threshold=self.near_threshold, ngram_words=self.near_ngram_words, recall=self.near_recall
        )

    def quality_rules(self, presets: tuple[Preset, ...]) -> QualityRules:
        """The rules of a source's presets, with the recipe's own bounds."""
        return QualityRules(
            presets=tuple(preset for preset in presets if preset is not Preset.NONE),
            language_rules=self.language_rules,
            uncovered=self.uncovered_languages.value,
        )
