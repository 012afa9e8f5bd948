"""The `[curate]` table of a recipe, and its list of sources."""

from enum import StrEnum

from pydantic import Field, field_validator, model_validator

from data.banding import NearDuplicateSettings
from data.python_environment import DOMAINS
from data.quality_rules import Preset
from stages.config import StageConfig, runtime, shared
from stages.suites import SuitesConfig

DOMAIN_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,63}$"


class Kind(StrEnum):
    """Where a source's text is."""

    JSONL = "jsonl"
    PARQUET = "parquet"
    TEXT = "text"
    HUGGINGFACE = "huggingface"
    PYTHON_ENVIRONMENT = "python-environment"


RECORD_FIELDS = {"text_field", "id_field", "group_field"}
FIELDS_OF: dict[Kind, set[str]] = {
    Kind.JSONL: {"path", "domain", *RECORD_FIELDS},
    Kind.PARQUET: {"path", "domain", *RECORD_FIELDS},
    Kind.TEXT: {"path", "domain"},
    Kind.HUGGINGFACE: {"name", "subset", "split", "revision", "domain", *RECORD_FIELDS},
    Kind.PYTHON_ENVIRONMENT: {"domains", "packages", "package_source_bytes"},
}
FIELDS_OF_ALL = {"kind", "quality", "max_bytes"}
REQUIRED = {"path", "name", "domain"}


class Source(StageConfig):
    """One source of text. Which fields have a meaning depends on `kind`; any other one must be left out."""

    kind: Kind = Field(
        description="jsonl, parquet, text (a file is a document), huggingface, or python-environment (documentation "
        "that this installation carries)"
    )
    domain: str = Field("", description="Domain of its documents; python-environment has its own domains")
    path: str = Field(
        "",
        description="jsonl, parquet, text: a file or a glob such as corpus/**/*.jsonl (jsonl and text: also .gz, .zst)",
    )
    name: str = Field("", description="huggingface: name of the dataset, or a local folder")
    subset: str | None = Field(None, description="huggingface: the dataset's configuration")
    split: str = Field("train", description="huggingface: the split to read")
    revision: str | None = Field(None, description="huggingface: commit or tag; a commit needs no look-up")
    text_field: str = Field("text", description="Field or column of the text")
    id_field: str | None = Field(
        None, description="Field that names the document; by default its place in the source does"
    )
    group_field: str | None = Field(
        None,
        description="Field whose values are not divided between training and held-out text; default: each text alone",
    )
    domains: tuple[str, ...] = Field(DOMAINS, description="python-environment: which of its domains to take")
    packages: tuple[str, ...] = Field(
        (),
        description="python-environment: packages whose docstrings are read beside the standard library's; * for all",
    )
    package_source_bytes: int | None = Field(
        None, ge=1, description="python-environment: source of packages to parse at most (about 6 MB a second)"
    )
    quality: Preset = Field(
        Preset.AUTO,
        description="Rules the text is judged by; auto: the domain's own for python-environment, else prose",
    )
    max_bytes: int | None = Field(None, ge=1, description="Stop reading once a domain of this source has so much text")

    @model_validator(mode="after")
    def _fields_fit_the_kind(self) -> "Source":
        fields = FIELDS_OF[self.kind]
        idle = [
            name
            for name in self.model_fields_set
            if name not in fields | FIELDS_OF_ALL and getattr(self, name) != type(self).model_fields[name].default
        ]
        if idle:
            raise ValueError(
                f"{', '.join(sorted(idle))} has no effect on a source of kind {self.kind.value}; leave it out"
            )
        missing = [name for name in sorted(fields & REQUIRED) if not getattr(self, name)]
        if missing:
            raise ValueError(f"a source of kind {self.kind.value} needs {' and '.join(missing)}")
        return self

    @field_validator("domain")
    @classmethod
    def _domain_is_a_file_name(cls, domain: str) -> str:
        import re

        if domain and not re.fullmatch(DOMAIN_PATTERN, domain):
            raise ValueError(f"{domain!r} cannot name a domain: use lower-case letters, digits, - and _")
        return domain

    @property
    def label(self) -> str:
        """The source in a few words, for people."""
        where = self.path or self.name
        return f"{self.kind.value} {where}" if where else self.kind.value


class CurateConfig(StageConfig):
    """What to read and what to keep of it."""

    sources: tuple[Source, ...] = Field(
        (Source(kind=Kind.PYTHON_ENVIRONMENT),), min_length=1, description="Where the text comes from"
    )
    heldout_fraction: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="Share of groups (files, packages) set apart for evaluation, per domain at least one",
    )
    heldout_max_bytes: int = Field(1_000_000, ge=1, description="Held-out text of a domain at most")
    heldout_seed: int = Field(0, ge=-(2**63), lt=2**63, description="Draws the held-out groups")
    near_threshold: float = Field(
        0.8, gt=0, le=1, description="Jaccard similarity of word n-grams from which a text is a near duplicate"
    )
    near_ngram_words: int = Field(
        5, ge=2, le=50, description="Words in an n-gram; shorter texts are compared exactly only"
    )
    near_bands: int = Field(14, ge=1, le=256, description="MinHash bands: more find more pairs")
    near_rows: int = Field(
        8, ge=1, le=64, description="MinHash rows of a band: more find fewer pairs below the threshold"
    )
    overlap_ngram_words: int = Field(13, ge=5, le=50, description="Words in an n-gram for decontamination")
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
    suites: SuitesConfig = shared(SuitesConfig)
    warn_lost_share: float = runtime(
        0.5, ge=0, le=1, description="Warn if a domain loses more than this share of its bytes"
    )
    workers: int = runtime(2, ge=1, description="Threads; the result does not depend on them")

    @model_validator(mode="after")
    def _near_duplicates_are_found(self) -> "CurateConfig":
        self.near_duplicates()
        return self

    def near_duplicates(self) -> NearDuplicateSettings:
        return NearDuplicateSettings(
            threshold=self.near_threshold, ngram_words=self.near_ngram_words, bands=self.near_bands, rows=self.near_rows
        )
