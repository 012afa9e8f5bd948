import argparse
import os

import pytest

from data.errors import InputError
from stages import fingerprint, manifest
from stages.commands import add_commands, garbage
from stages.compare.baselines import current, promote, promoted
from stages.errors import TryAgain
from stages.store import Store
from tests.stages.compare.made import core, documents, publish_evaluation, publish_model


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


@pytest.fixture
def evaluations(store):
    return [
        publish_evaluation(store, publish_model(store, step, last=True), core(step), scores=documents())
        for step in (1, 2)
    ]


def test_the_newest_of_a_name_counts(store, evaluations):
    first, second = evaluations
    assert current(store, "main") is None
    old = promote(store, first, "main", "the first release")
    assert current(store, "main").key == old.key
    new = promote(store, second, "main")
    promote(store, first, "small")
    assert current(store, "main").key == new.key
    assert [baseline.facts["serial"] for baseline in promoted(store, "main")] == [1, 2]
    back = promote(store, first, "main")
    assert (current(store, "main").key, back.facts["serial"], back.facts["evaluation"]) == (back.key, 3, first.key)
    assert old.key not in (new.key, back.key)


def test_promoting_what_is_current_already_changes_nothing(store, evaluations):
    first = promote(store, evaluations[0], "main")
    assert promote(store, evaluations[0], "main").key == first.key
    assert len(promoted(store)) == 1


def test_it_is_recorded_and_whole_without_the_evaluation(store, evaluations):
    baseline = promote(store, evaluations[0], "main", "the first release")
    made = baseline.manifest
    assert made.provenance["note"] == "the first release"
    assert made.provenance["promoted_by"] and made.provenance["finished"]
    assert made.inputs["evaluation"][0].key == evaluations[0].key
    assert baseline.facts["of"] == evaluations[0].facts
    tables = {entry.path for entry in made.files}
    assert tables == {"items.parquet", "measured.parquet", "documents.parquet"}
    shared = [os.stat(folder / "items.parquet").st_ino for folder in (baseline.path, evaluations[0].path)]
    assert shared[0] == shared[1]
    store.remove(evaluations[0].path)
    assert manifest.verify(baseline.path, made) == []


def test_only_an_evaluation_can_be_promoted(store, evaluations):
    with pytest.raises(InputError, match="only an evaluation can be promoted"):
        promote(store, next(store.all("checkpoint")), "main")


def test_a_broken_evaluation_is_not_promoted(store, evaluations):
    table = evaluations[0].path / "items.parquet"
    whole = table.read_bytes()
    table.write_bytes(whole[:-7])
    with pytest.raises(InputError, match="items.parquet.*stages.evaluate RECIPE` again"):
        promote(store, evaluations[0], "main")
    assert current(store, "main") is None
    table.write_bytes(whole)
    assert promote(store, evaluations[0], "main").facts["serial"] == 1


def test_two_do_not_promote_under_one_name_at_once(store, evaluations):
    first, second = evaluations
    with store.lease("baseline", fingerprint.key(name="main")):
        with pytest.raises(TryAgain):
            promote(store, first, "main")
        assert promote(store, first, "other").facts["serial"] == 1
    assert [promote(store, each, "main").facts["serial"] for each in (first, second, second, first)] == [1, 2, 2, 3]


def test_the_commands_promote_list_and_keep(store, evaluations, tmp_path, capsys):
    parser = argparse.ArgumentParser()
    add_commands(parser)

    def run(*words):
        arguments = parser.parse_args([*words, "--root", str(tmp_path)])
        arguments.command(arguments)
        return capsys.readouterr().out

    assert run("promote", evaluations[1].key, "--note", "shipped").startswith(
        f"main 1: evaluation {evaluations[1].key}"
    )
    (line,) = run("baselines").splitlines()
    assert line.startswith("main 1  current") and line.endswith("shipped")
    with pytest.raises(InputError, match="--name"):
        run("promote", evaluations[1].key, "--name", "../main")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('name = "other"\n')
    run("gc", str(recipe), "--delete")
    assert [artifact.stage for artifact in Store(tmp_path).all()] == ["baseline"]
    assert garbage(store, set(), set()) == [current(store, "main").path]
