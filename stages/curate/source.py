"""One source of text, as the `[[curate.sources]]` tables of a recipe declare it."""

import re
from enum import StrEnum
from typing import Any

from pydantic import Field, field_validator, model_validator

from data.canaries import DOMAIN as CANARY_DOMAIN
from data.quality.rules import DOMAIN_PRESETS, Preset, resolve
from data.reading.python_environment import DOMAINS
from stages.config import StageConfig

DOMAIN_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,63}$"


class Kind(StrEnum):
    """Where a source's text is."""

    JSONL = "jsonl"
    PARQUET = "parquet"
    TEXT = "text"
    HTML = "html"
    WARC = "warc"
    HUGGINGFACE = "huggingface"
    PYTHON_ENVIRONMENT = "python-environment"
    CANARIES = "canaries"


PATTERNS = {  # what the files of a kind with a path are usually called
    Kind.JSONL: "*.jsonl",
    Kind.PARQUET: "*.parquet",
    Kind.TEXT: "*.txt",
    Kind.HTML: "*.html",
    Kind.WARC: "*.warc.gz",
}
RECORD_FIELDS = {"text_field", "id_field", "group_field"}
FIELDS_OF: dict[Kind, set[str]] = {
    Kind.JSONL: {"path", "domain", *RECORD_FIELDS},
    Kind.PARQUET: {"path", "domain", *RECORD_FIELDS},
    Kind.TEXT: {"path", "domain"},
    Kind.HTML: {"path", "domain"},
    Kind.WARC: {"path", "domain", "id_field", "group_field"},
    Kind.HUGGINGFACE: {"name", "subset", "split", "revision", "domain", *RECORD_FIELDS},
    Kind.PYTHON_ENVIRONMENT: {"domains", "packages", "package_source_bytes"},
    Kind.CANARIES: {"number", "seed"},
}
FIELDS_OF_ALL = {"kind"}
FIELDS_OF_TEXT = {"quality", "max_bytes"}  # of every kind but canaries, which are planted as they are
REQUIRED = {"path", "name", "domain", "number"}
WARC_FIELDS = {"id_field": ("url",), "group_field": ("url", "host")}


class Source(StageConfig):
    """One source of text. Which fields have a meaning depends on `kind`; any other one must be left out."""

    kind: Kind = Field(
        description="jsonl, parquet, text (a file is a document), html (a file is a page), warc (web archives), "
        "huggingface, python-environment (documentation that this installation carries), or canaries (made-up secrets "
        "in a domain of their own, `canary`, by which evaluation finds out what a model learns by heart)"
    )
    domain: str = Field(
        "", description="Domain of its documents; python-environment and canaries have their own domains"
    )
    path: str = Field(
        "",
        description="A file or a glob such as corpus/**/*.jsonl (jsonl, text, html: also .gz, .zst; warc: also .gz)",
    )
    name: str = Field("", description="huggingface: name of the dataset, or a local folder")
    subset: str | None = Field(None, description="huggingface: the dataset's configuration")
    split: str = Field("train", description="huggingface: the split to read")
    revision: str | None = Field(None, description="huggingface: commit or tag; a commit needs no look-up")
    text_field: str = Field("text", description="Field or column of the text")
    id_field: str | None = Field(
        None,
        description="Field that names the document; by default its place in the source does (warc: may be url)",
    )
    group_field: str | None = Field(
        None,
        description="Field whose values are not divided between training and held-out text; default: each text alone "
        "(warc: url or host; default url)",
    )
    domains: tuple[str, ...] = Field(DOMAINS, description="python-environment: which of its domains to take")
    packages: tuple[str, ...] = Field(
        (),
        description="python-environment: packages whose docstrings are read beside the standard library's; * for all",
    )
    package_source_bytes: int | None = Field(
        None, ge=1, description="python-environment: source of packages to parse at most (about 6 MB a second)"
    )
    number: int = Field(0, ge=0, description="canaries: how many to plant")
    seed: int = Field(0, ge=0, description="canaries: of their secrets")
    quality: tuple[Preset, ...] = Field(
        (Preset.AUTO,),
        description="Rules the text is judged by, one preset or several; auto: the domain's own for "
        "python-environment, else prose",
    )
    max_bytes: int | None = Field(None, ge=1, description="Stop reading once a domain of this source has so much text")

    @field_validator("quality", mode="before")
    @classmethod
    def _one_preset_is_a_tuple_of_one(cls, quality: Any) -> Any:
        return (quality,) if isinstance(quality, str) else quality

    @field_validator("quality")
    @classmethod
    def _presets_fit_together(cls, quality: tuple[Preset, ...]) -> tuple[Preset, ...]:
        if not quality:
            raise ValueError('quality is empty; "none" stands for no rules')
        resolve(quality, Preset.PROSE)
        return quality

    @model_validator(mode="after")
    def _fields_fit_the_kind(self) -> "Source":
        fields = FIELDS_OF[self.kind] | (set() if self.planted else FIELDS_OF_TEXT)
        idle = [
            name for name in self.model_fields_set if name not in fields | FIELDS_OF_ALL and not self.is_default(name)
        ]
        if idle:
            raise ValueError(
                f"{', '.join(sorted(idle))} has no effect on a source of kind {self.kind.value}; leave it out"
            )
        missing = [name for name in sorted(fields & REQUIRED) if not getattr(self, name)]
        if missing:
            raise ValueError(f"a source of kind {self.kind.value} needs {' and '.join(missing)}")
        if self.kind is Kind.WARC:
            for name, known in WARC_FIELDS.items():
                value = getattr(self, name)
                if value is not None and value not in known:
                    raise ValueError(f"{name} of a source of kind warc is {' or '.join(known)}, not {value!r}")
        return self

    @field_validator("domain")
    @classmethod
    def _domain_is_a_file_name(cls, domain: str) -> str:
        if domain and not re.fullmatch(DOMAIN_PATTERN, domain):
            raise ValueError(f"{domain!r} cannot name a domain: use lower-case letters, digits, - and _")
        if domain == CANARY_DOMAIN:
            raise ValueError(f"{domain!r} is the domain of planted canaries; give the source another one")
        return domain

    @property
    def planted(self) -> bool:
        """Whether its documents reach training as they are: nothing is judged, edited, compared or held out."""
        return self.kind is Kind.CANARIES

    @property
    def label(self) -> str:
        """The source in a few words, for people."""
        where = self.path or self.name
        return f"{self.kind.value} {where}" if where else self.kind.value

    def presets(self, domain: str) -> tuple[Preset, ...]:
        """The rules by which its documents of a domain are judged; `auto` and `none` are resolved."""
        own = DOMAIN_PRESETS[domain] if self.kind is Kind.PYTHON_ENVIRONMENT else Preset.PROSE
        return resolve(self.quality, own)
