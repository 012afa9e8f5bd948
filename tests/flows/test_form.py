"""The run form: what its JSON schema shows of every field, and what comes back from it."""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

# isort: split
import numpy as np
import pytest
from prefect import Flow

from data.errors import InputError
from flows import evaluation, pipeline, single_stage
from flows.parameters import MOST_BYTES, require_json, validated
from stages.bounds import described
from stages.config import LABEL_PATTERN, PATTERNS, StageConfig, shared_fields
from stages.curate import CurateConfig
from stages.recipe import STAGES, Recipe, load, parse
from tests.end_to_end.shell import REPOSITORY
from tests.flows.form import submitted

RECIPES = sorted((REPOSITORY / "deployments" / "recipes").glob("*.toml"))
FLOWS: tuple[Flow[..., Any], ...] = (
    pipeline.pipeline,
    single_stage.single_stage,
    evaluation.evaluate_checkpoint,
    evaluation.regression,
)
CHANGES = (
    ["pretrain.num_steps=900"],
    ["model.rope_scaling={rope_type='linear', factor=2.0}", "pretrain.mixture={}"],
    ["curate.sources=[{kind='jsonl', path='a/*.jsonl', domain='x', quality='code'}, {kind='canaries', number=3}]"],
    ["pretrain.mixture_schedule=[{from_step=9, weights={code=1}}]", "plan.step_seconds=2", "evaluate.cpus=[1, 3]"],
    ["suites.names=['core']", "compare.baseline='a.b'", "alerts.blocks=['webhook/ops']", "name='x'"],
)


def shown(flow: Flow[..., Any]) -> dict[str, Any]:
    """The schema that the form of a deployment is made of."""
    return flow.parameters.model_dump()


def tables(config: type[StageConfig], where: str) -> Iterator[tuple[str, type[StageConfig]]]:
    """Every table that a recipe may hold, once for each place."""
    yield where, config
    for name, field in config.model_fields.items():
        if name not in shared_fields(config):
            for each in (field.annotation, *get_args(field.annotation)):
                if isinstance(each, type) and issubclass(each, StageConfig):
                    yield from tables(each, f"{where}.{name}")


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_every_field_has_a_description_and_a_default_that_the_form_can_show(flow: Flow[..., Any]) -> None:
    schema, seen = shown(flow), 0
    assert all(entry.get("description") for entry in schema["properties"].values())
    for where, config in tables(Recipe, "recipe"):
        own = schema["definitions"][config.__name__]["properties"]
        assert set(own) == set(config.model_fields) - set(shared_fields(config)), where
        for name, field in config.model_fields.items():
            assert field.default_factory is None, f"{where}.{name}: the form shows no made default"
            if name in shared_fields(config):
                continue
            seen += 1
            assert len(own[name]["description"]) > 5 and own[name]["title"] == name, f"{where}.{name}"
            if field.is_required():
                continue
            assert "default" in own[name], f"{where}.{name}"
            if isinstance(field.default, StageConfig):
                assert field.default == type(field.default)(), "else tables() could not leave it out"
    assert seen > 150


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_the_schema_holds_no_copy_of_a_shared_table(flow: Flow[..., Any]) -> None:
    """Not among the fields, nor in the default of a table: whoever edited a copy would be refused."""
    schema = shown(flow)

    def require_own(value: dict[str, Any], config: type[StageConfig]) -> None:
        assert not set(value) & set(shared_fields(config)), config
        for name, inner in value.items():
            kind = config.model_fields[name].annotation
            if isinstance(inner, dict) and isinstance(kind, type) and issubclass(kind, StageConfig):
                require_own(inner, kind)

    for stage in STAGES.values():
        entry = schema["definitions"]["Recipe"]["properties"][stage.name]
        require_own(entry["default"], stage.config)
        require_own(dict.fromkeys(schema["definitions"][stage.config.__name__]["properties"]), stage.config)


def test_bounds_are_said_in_words() -> None:
    words = {
        "TokenizerConfig.size": "(320 to 1048576)",
        "TokenizerConfig.seed": "(0 to 2^63 - 1)",
        "CurateConfig.heldout_seed": "(-2^63 to 2^63 - 1)",
        "CurateConfig.heldout_fraction": "(above 0, below 1)",
        "CurateConfig.near_recall": "(at least 0.5, below 1)",
        "PretrainConfig.learning_rate": "(above 0)",
        "PretrainConfig.num_steps": "(at least 1)",
        "PretrainConfig.cache_bytes": "(at least 1)",
        "PretrainConfig.shard_processes": "(at least 2)",
        "ExportConfig.forms": "(hf, gguf-f32, gguf-q4_0; at least 1)",
        "CurateConfig.executor": "(threads, ray)",
        "Recipe.name": f"({PATTERNS[LABEL_PATTERN]})",
    }
    schema = Recipe.model_json_schema()
    for place, wanted in words.items():
        table, _, field = place.partition(".")
        entry = (schema if table == "Recipe" else schema["$defs"][table])["properties"][field]
        assert entry["description"].endswith(wanted), (place, entry["description"])


@pytest.mark.parametrize(("table", "config"), list(tables(Recipe, "recipe")))
def test_no_bound_goes_without_words(table: str, config: type[StageConfig]) -> None:
    """A number's schema with a bound, a pattern or a least length has words that hold it."""
    schema = config.model_json_schema()
    for name, entry in schema["properties"].items():
        said = entry["description"]
        for each in (entry, *entry.get("anyOf", ())):
            if {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "pattern", "minItems"} & each.keys():
                words = described("", each, PATTERNS).strip(" ()")
                assert words and words in said, f"{table}.{name}: {said}"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: changes[0].partition("=")[0])
def test_what_the_form_submits_is_the_recipe(path: Path, changes: list[str]) -> None:
    """Every field with its value, tables without a form as JSON, fields of other kinds of source at their defaults."""
    recipe = load(path, changes)
    for flow in FLOWS:
        back = submitted(shown(flow), {"recipe": recipe.tables()})["recipe"]
        assert parse(json.loads(json.dumps(back))) == recipe
    assert keys(parse(back)) == keys(recipe)
    assert parse(json.loads(json.dumps(recipe.tables()))) == recipe


def keys(recipe: Recipe) -> dict[str, Any]:
    """What the keys of all stages follow from."""
    return {name: recipe.config_for(name).model_dump(mode="json") for name in STAGES}


def test_a_browser_has_one_kind_of_number() -> None:
    recipe = load(RECIPES[0])
    tables = recipe.tables()
    tables["pretrain"] |= {"num_steps": float(recipe.pretrain.num_steps), "seed": "1", "learning_rate": "3e-3"}
    assert parse(tables) == recipe


def test_tables_hold_what_a_user_would_write() -> None:
    assert parse({"name": "a"}).tables() == {"name": "a"}
    written = {
        "name": "a",
        "model": {"rope_scaling": {"rope_type": "linear", "factor": 2}},
        "curate": {"sources": [{"kind": "text", "path": "x", "domain": "d", "quality": ["code"]}], "pii": []},
        "plan": {"step_seconds": 1.5},
    }
    assert parse(written).tables() == written
    assert CurateConfig().tables() == {}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_default_parameters_come_back_from_json_and_are_small(flow: Flow[..., Any], path: Path) -> None:
    recipe = load(path)
    known, more = shown(flow)["properties"], {"stage": "curate", "checkpoint": "0123"}
    given = {"recipe": recipe.tables(), **{name: value for name, value in more.items() if name in known}}
    text = json.dumps(submitted(shown(flow), given))
    assert len(text) < 32_000
    values = validated(signature(flow), json.loads(text))
    assert values.keys() == known.keys() and values["recipe"] == recipe
    for name, parameter in signature(flow).parameters.items():
        if parameter.default is not parameter.empty:
            assert values[name] == parameter.default and type(values[name]) is type(parameter.default)


def signature(flow: Flow[..., Any]) -> inspect.Signature:
    return inspect.signature(flow.fn, eval_str=True)


def nothing() -> None: ...


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (Path("corpus"), "recipe.curate.sources.0.path"),
        (np.float64(0.5), "recipe.pretrain.learning_rate"),
        (np.float32(0.5), "recipe.pretrain.learning_rate"),
        (float("nan"), "recipe.pretrain.learning_rate"),
        (float("inf"), "root"),
        (nothing, "root"),
        ({1: 0.5}, "recipe.pretrain.mixture"),
        (b"bytes", "root"),
        ({"a"}, "models"),
    ],
    ids=lambda each: getattr(each, "__name__", type(each).__name__),
)
def test_what_is_no_json_is_refused_with_its_name(value: Any, where: str) -> None:
    *parents, name = where.split(".")
    given: dict[str, Any] = {"recipe": {"name": "a", "curate": {"sources": [{}]}, "pretrain": {}}}
    place: Any = given
    for parent in parents:
        place = place[int(parent) if isinstance(place, list) else parent]
    place[name] = value
    with pytest.raises(InputError, match=f"^{where}: "):
        require_json(given)
    with pytest.raises(InputError, match=f"{where}: "):
        validated(signature(evaluation.regression), given)


def test_what_is_too_large_is_named() -> None:
    sources = [{"kind": "text", "path": f"corpus/{number:05}.txt", "domain": "x"} for number in range(10_000)]
    recipe = {"name": "a", "curate": {"sources": sources}}
    assert len(json.dumps(recipe)) > MOST_BYTES
    for given in (recipe, parse(recipe)):
        with pytest.raises(InputError, match=r"recipe\.curate\.sources alone is"):
            require_json({"recipe": given, "root": "."})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"recipe": {"name": "a", "pretrain": {"num_step": 3}}},
            "pretrain.num_step: unknown key; did you mean num_steps?",
        ),
        ({"recipe": {"name": "a", "pretrain": {"learning_rate": None}}}, "pretrain.learning_rate: "),
        ({"recipe": {}}, "name: missing"),
        ({"recipe": "demo.toml"}, "recipe"),
        ({"models": "a"}, "models: Input should be a valid list"),
        ({"root": 5}, "root: Input should be a valid string, got 5"),
    ],
)
def test_faults_of_parameters_are_said_in_words(more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as told:
        validated(signature(evaluation.regression), {"recipe": {"name": "a"}, **more})
    assert words in str(told.value) and "pydantic" not in str(told.value)


def test_all_faults_are_told_at_once() -> None:
    recipe = {"name": "a", "pretrain": {"num_steps": 0}, "export": {"form": "hf"}}
    with pytest.raises(InputError) as told:
        validated(signature(evaluation.regression), {"recipe": recipe, "root": 5, "models": 1})
    for place in ("pretrain.num_steps: ", "export.form: unknown key; did you mean forms?", "root: ", "models: "):
        assert place in str(told.value)
