"""What a recipe may say, and what is answered when it says something else."""

import json
from pathlib import Path

import pytest

from data.errors import InputError
from stages.config import StageConfig, shared_fields
from stages.fingerprint import identity
from stages.recipe import STAGES, Recipe, load, parse

REPOSITORY = Path(__file__).parents[2]
RECIPES = sorted((REPOSITORY / "deployments" / "recipes").glob("*.toml"))


def recipe(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_shipped_recipes_load_and_survive_json(path: Path) -> None:
    loaded = load(path)
    assert Recipe.model_validate_json(loaded.model_dump_json()) == loaded
    assert parse(json.loads(loaded.model_dump_json())) == loaded


def test_defaults_survive_json_too() -> None:
    default = Recipe(name="x")
    assert Recipe.model_validate_json(default.model_dump_json()) == default


def test_shared_tables_reach_every_stage_that_reads_them(tmp_path: Path) -> None:
    loaded = load(recipe(tmp_path, 'name = "x"\n[model]\nhidden_size = 64\n[pretrain]\nnum_steps = 7\n'))
    assert loaded.pretrain.model.hidden_size == 64
    for name in STAGES:
        config = loaded.config_for(name)
        for field in shared_fields(type(config)):
            assert getattr(config, field) == getattr(loaded, field), f"{name}.{field}"


def test_a_shared_table_is_written_once(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"\[pretrain.model\] is read from the recipe's own table: write it as \[model\]"
    ):
        load(recipe(tmp_path, 'name = "x"\n[pretrain.model]\nhidden_size = 64\n'))


def test_settings_override_the_file(tmp_path: Path) -> None:
    path = recipe(tmp_path, 'name = "x"\n[pretrain]\nnum_steps = 7\n')
    loaded = load(path, ["pretrain.num_steps=9", "pretrain.precision=fp32", "name=y", "pretrain.mixture={a=1}"])
    assert (loaded.name, loaded.pretrain.num_steps, loaded.pretrain.precision) == ("y", 9, "fp32")
    assert loaded.pretrain.mixture == {"a": 1.0}


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ('name = "x"\n[pretrian]\n', [], r"pretrian: unknown key; did you mean pretrain\?"),
        (
            'name = "x"\n[pretrain]\nlearning_rat = 1\n',
            [],
            r"pretrain.learning_rat: unknown key; did you mean learning_rate\?",
        ),
        (
            'name = "x"\n[[curate.sources]]\nknd = "text"\n',
            [],
            r"curate.sources.0.knd: unknown key; did you mean kind\?",
        ),
        ('name = "x"\n[pretrain]\nzzz = 1\n', [], "pretrain.zzz: unknown key; known here: "),
        ('name = "x"\n[pretrain]\nnum_steps = "many"\n', [], "pretrain.num_steps: .*valid integer.*'many'"),
        ('name = "x"\n', ["pretrain.batch_ramp=[[5, 16]]"], r"batch_ramp.0: .*table, in braces, got \[5, 16\]"),
        ('name = "x"\n', ["pretrain.mixture=code"], "pretrain.mixture: .*table, in braces, got 'code'"),
        ('name = "x"\n', ["pretrain.trackers=wandb"], "pretrain.trackers: .*list, in square brackets, got 'wandb'"),
        ('name = "x"\n[pretrain]\nnum_steps = -1\n', [], "pretrain.num_steps: .*greater than or equal to 1"),
        ('name = "x"\npretrain = 3\n', [], "pretrain"),
        ("[pretrain]\n", [], "name: missing"),
        ('name = "a/b"\n', [], "name: "),
        ('name = "x"\n[suites]\nnmes = 1\n', [], r"valid recipe:\n  suites.nmes: unknown key; did you mean names\?$"),
        ("name = \n", [], "cannot be read as a recipe.*line 1"),
        ('name = "x"\n', ["pretrain.num_steps"], "not of the form table.field=value"),
        ('name = "x"\n', ["name.deep=1"], "name is not a table"),
        ('name = "x"\n', ["pretrain.learning_rat=1"], r"did you mean learning_rate\?"),
    ],
)
def test_what_is_wrong_is_named_with_the_way_to_mend_it(
    tmp_path: Path, text: str, settings: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load(recipe(tmp_path, text), settings)


def test_a_missing_file_says_where_recipes_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no recipe .*deployments/recipes"):
        load(tmp_path / "absent.toml")


def fields(config: type[StageConfig], where: str) -> list[tuple[str, object]]:
    found = []
    for name, field in config.model_fields.items():
        found.append((f"{where}.{name}", field))
        for candidate in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(candidate, type) and issubclass(candidate, StageConfig):
                found += fields(candidate, f"{where}.{name}")
    return found


def test_every_field_is_described_and_shows_its_default() -> None:
    for name, field in fields(Recipe, "recipe"):
        assert field.description, f"{name} has no description"  # type: ignore[attr-defined]
        assert field.default_factory is None, f"{name}: the form cannot show a default that is made by a function"  # type: ignore[attr-defined]


def test_every_configuration_can_be_fingerprinted() -> None:
    for name in STAGES:
        assert identity(Recipe(name="x").config_for(name)) is not None
