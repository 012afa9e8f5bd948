"""A recipe: one TOML (or JSON) file with a table per stage that describes a whole run, and `--set table.field=value`
over it.

The same model is the parameter of the flows, so that the Prefect form shows what the file may hold.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from data.errors import InputError
from stages.adopt import STAGE as ADOPT
from stages.adopt import AdoptConfig
from stages.alerts import AlertsConfig
from stages.base import Stage
from stages.compare import STAGE as COMPARE
from stages.compare import CompareConfig
from stages.config import LABEL_PATTERN, StageConfig, shared_fields
from stages.curate import STAGE as CURATE
from stages.curate import CurateConfig
from stages.evaluate import STAGE as EVALUATE
from stages.evaluate import EvaluateConfig
from stages.export import STAGE as EXPORT
from stages.export import ExportConfig
from stages.plan import STAGE as PLAN
from stages.plan import PlanConfig
from stages.preflight import STAGE as PREFLIGHT
from stages.preflight import PreflightConfig
from stages.pretokenize import STAGE as PRETOKENIZE
from stages.pretokenize import PretokenizeConfig
from stages.pretrain import STAGE as PRETRAIN
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.report import STAGE as REPORT
from stages.report import ReportConfig
from stages.run_settings import RunConfig
from stages.suites import SuitesConfig
from stages.tables import faults, read_tables
from stages.tokenizer import STAGE as TOKENIZER
from stages.tokenizer import TokenizerConfig

STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        CURATE,
        TOKENIZER,
        PRETOKENIZE,
        PLAN,
        PREFLIGHT,
        PRETRAIN,
        ADOPT,
        EVALUATE,
        COMPARE,
        EXPORT,
        REPORT,
    )
}
CHAIN = tuple(name for name in STAGES if name != ADOPT.name)  # adopting is for models from elsewhere


class Recipe(StageConfig):
    """Everything that a run depends on. Tables that several stages read stand once, at the top level."""

    name: str = Field(description="Label of the artifacts; never part of their keys", pattern=LABEL_PATTERN)
    suites: SuitesConfig = Field(default=SuitesConfig(), description="What every checkpoint is judged by")
    alerts: AlertsConfig = Field(default=AlertsConfig(), description="Who is told that a model got worse")
    run: RunConfig = Field(default=RunConfig(), description="How stages are watched, and tried again")
    model: ModelConfig = Field(default=ModelConfig(), description="The architecture")
    curate: CurateConfig = Field(default=CurateConfig(), description="Raw text to clean, deduplicated documents")
    tokenizer: TokenizerConfig = Field(default=TokenizerConfig(), description="The vocabulary")
    pretokenize: PretokenizeConfig = Field(default=PretokenizeConfig(), description="Documents to token shards")
    plan: PlanConfig = Field(default=PlanConfig(), description="Arithmetic before anything is spent")
    preflight: PreflightConfig = Field(default=PreflightConfig(), description="Checks that gate the training")
    pretrain: PretrainConfig = Field(default=PretrainConfig(), description="The training")
    adopt: AdoptConfig = Field(default=AdoptConfig(), description="A model trained elsewhere, to be judged too")
    evaluate: EvaluateConfig = Field(default=EvaluateConfig(), description="Scores of every healthy checkpoint")
    compare: CompareConfig = Field(default=CompareConfig(), description="When a score has become worse")
    export: ExportConfig = Field(default=ExportConfig(), description="The forms in which the model ships")
    report: ReportConfig = Field(default=ReportConfig(), description="One page that shows all of it")

    @model_validator(mode="before")
    @classmethod
    def _fill_shared(cls, tables: Any) -> Any:
        if not isinstance(tables, Mapping):
            return tables
        raw = {
            name: value.model_dump(mode="json") if isinstance(value, StageConfig) else value
            for name, value in tables.items()
        }
        for name, stage in STAGES.items():
            table = raw.get(name, {})
            if isinstance(table, dict):
                raw[name] = _filled(stage.config, table, raw, name)
        return raw

    def config_for(self, stage: str) -> StageConfig:
        """The configuration of a stage, its shared tables filled in."""
        return getattr(self, stage)


def _filled(config: type[StageConfig], table: dict[str, Any], raw: dict[str, Any], where: str) -> dict[str, Any]:
    filled = dict(table)
    for name in shared_fields(config):
        field_type = config.model_fields[name].annotation
        assert isinstance(field_type, type) and issubclass(field_type, StageConfig)
        own = raw.get(name, {})
        if not isinstance(own, dict):
            continue
        own = _filled(field_type, own, raw, name)
        if filled.get(name) not in (None, own, field_type().model_dump(mode="json")):
            raise ValueError(f"[{where}.{name}] is read from the recipe's own table: write it as [{name}]")
        filled[name] = own
    return filled


def load(path: Path, settings: Sequence[str] = ()) -> Recipe:
    """The recipe in a file, with `table.field=value` settings over it. Raises InputError for anything a user can
    mend, naming the field."""
    where = "recipes to start from are in deployments/recipes/"
    return parse(read_tables(path, "recipe", where, settings), str(path))


def parse(tables: dict[str, Any], origin: str = "the recipe") -> Recipe:
    """A recipe from its tables. Raises InputError."""
    try:
        return Recipe.model_validate(tables)
    except ValidationError as error:
        lines = faults(error, Recipe, "recipe", skip=_is_copy)
        raise InputError(f"{origin} does not hold a valid recipe:\n{lines}") from None


def _is_copy(where: Sequence[Any]) -> bool:
    """Whether a fault stands in a stage's copy of a shared table; it is told where the user wrote it."""
    stage = STAGES.get(str(where[0])) if len(where) > 1 else None
    return stage is not None and where[1] in shared_fields(stage.config)
