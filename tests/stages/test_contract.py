"""What a user of the store relies on: hits, keys, lineage, explanations, conflicts, garbage, a full disk."""

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from data.errors import InputError
from stages import manifest
from stages.base import Facts, Job, Stage, execute
from stages.commands import differences, garbage
from stages.errors import StoreConflict, TryAgain
from stages.journal import Journal, read_events
from stages.resolve import MissingInput, Resolver, lineage
from stages.store import Store
from tests.stages.fake_stages import (
    CHAIN,
    STAGES,
    Empty,
    GatherConfig,
    PartsConfig,
    TrainConfig,
    digests,
    resolver,
    run_chain,
    write_source,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_source(tmp_path)
    return tmp_path


def keys(made: dict) -> dict[str, list[str]]:
    return {name: [artifact.key for artifact in artifacts] for name, artifacts in made.items()}


def test_the_chain_runs_once_and_then_only_hits(root: Path) -> None:
    first = run_chain(resolver(root))
    assert [len(first[name]) for name in CHAIN] == [1, 1, 1, 2, 1]
    stamps = {path: path.stat().st_mtime_ns for path in (root / "artifacts").rglob("*")}
    assert digests(run_chain(resolver(root))) == digests(first)
    assert {path: path.stat().st_mtime_ns for path in (root / "artifacts").rglob("*")} == stamps


def test_runtime_settings_change_no_key(root: Path) -> None:
    first = run_chain(resolver(root))
    again = run_chain(resolver(root, parts=PartsConfig(threads=4), train=TrainConfig(verbose=True)))
    assert keys(again) == keys(first)


def test_an_edit_that_changes_no_output_stops_where_it_stopped_mattering(root: Path) -> None:
    first = run_chain(resolver(root))
    write_source(root, "ABCDEFGHIJ" * 20)
    shouted = run_chain(resolver(root))
    loud = GatherConfig(source=root / "source.txt", upper=True)
    same = run_chain(resolver(root, gather=loud))
    assert keys(shouted)["parts"] != keys(first)["parts"]
    assert keys(same)["gather"] != keys(shouted)["gather"], "another configuration, another key"
    assert keys(same)["parts"] == keys(shouted)["parts"], "the same text, so the same key downstream"


def test_a_runtime_input_is_recorded_and_changes_no_key(root: Path) -> None:
    first = run_chain(resolver(root))
    run_chain(resolver(root), ("plan",))
    (job,) = resolver(root).jobs("train")
    assert job.key == first["train"][0].key
    assert [artifact.stage for artifact in job.inputs["plan"]] == ["plan"]


def test_an_optional_input_that_appears_changes_the_key(root: Path) -> None:
    assert run_chain(resolver(root))["collect"][0].facts["extra"] is False
    run_chain(resolver(root), ("plan",))
    assert run_chain(resolver(root))["collect"][0].facts["extra"] is True


def test_one_job_for_each_checkpoint_and_the_last_one_where_one_is_wanted(root: Path) -> None:
    made = run_chain(resolver(root))
    assert [artifact.facts["step"] for artifact in made["judge"]] == [2, 4]
    (collect,) = resolver(root).jobs("collect")
    assert collect.inputs["last"][0].facts["step"] == 4
    first = resolver(root).derived("checkpoint")[0]
    assert resolver(root).job("judge", model=first).key == made["judge"][0].key


def test_a_wrong_input_is_refused(root: Path) -> None:
    gathered = run_chain(resolver(root), ("gather",))["gather"][0]
    with pytest.raises(InputError, match="judge takes checkpoint as its model"):
        resolver(root).job("judge", model=gathered)


def test_what_is_missing_is_named_with_the_command_that_builds_it(root: Path) -> None:
    with pytest.raises(MissingInput, match=r"python -m stages.gather RECIPE.*--upstream"):
        resolver(root).jobs("parts")


def test_upstream_comes_in_an_order_in_which_it_can_be_built(root: Path) -> None:
    assert resolver(root).order("collect") == ["gather", "parts", "plan", "train", "judge", "collect"]


def test_nothing_is_built_for_an_input_that_a_user_named(root: Path) -> None:
    run_chain(resolver(root))
    plain = resolver(root)
    chosen = Resolver(plain.recipe, plain.store, STAGES, {"model": plain.derived("checkpoint")[0]})
    assert "train" in plain.order("judge") and chosen.order("judge") == ["judge"]
    assert chosen.order("collect") == plain.order("collect"), "it is an input of the stage that was asked for alone"


def test_manifest_says_what_went_in_and_verifies(root: Path) -> None:
    made = run_chain(resolver(root))
    judged = made["judge"][0]
    assert manifest.verify(judged.path, judged.manifest) == []
    assert [(e.stage, e.runtime) for e in made["train"][0].manifest.inputs["parts"]] == [("parts", False)]
    assert made["parts"][0].manifest.provenance["rounding"] == {"threads": 1}
    stages = [stage for _, stage, _, found in lineage(judged, Store(root)) if found]
    assert stages == ["judge", "checkpoint", "parts", "gather"]


def test_measured_files_and_measurements_stay_out_of_the_digest(root: Path) -> None:
    trained = run_chain(resolver(root))["train"][0]
    (timing,) = [entry for entry in trained.manifest.files if entry.path == "timing.json"]
    assert timing.measured
    other = manifest.content_digest(
        "train", tuple(entry for entry in trained.manifest.files if not entry.measured), trained.facts
    )
    assert other == trained.digest


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "add", "facts"])
def test_damage_is_found(root: Path, damage: str) -> None:
    artifact = run_chain(resolver(root), ("gather", "parts"))["parts"][0]
    path = artifact.path / "part-1.txt"
    if damage == "flip":
        content = bytearray(path.read_bytes())
        content[3] ^= 1
        path.write_bytes(content)
    elif damage == "truncate":
        os.truncate(path, 3)
    elif damage == "remove":
        path.unlink()
    elif damage == "add":
        (artifact.path / "more.txt").write_text("x")
    else:
        text = (artifact.path / "manifest.json").read_text()
        (artifact.path / "manifest.json").write_text(text.replace('"num_parts": 3', '"num_parts": 4'))
    read = manifest.read(artifact.path)
    assert read is not None
    (problem,) = manifest.verify(artifact.path, read)
    assert ("part-1.txt" in problem) == (damage in ("flip", "truncate", "remove"))


def test_explain_follows_a_difference_to_where_it_began(root: Path) -> None:
    a = run_chain(resolver(root), ("gather", "parts"))["parts"][0]
    loud = GatherConfig(source=root / "source.txt", upper=True)
    b = run_chain(resolver(root, gather=loud), ("gather", "parts"))["parts"][0]
    lines = "\n".join(differences(a, b, Store(root)))
    assert "input text" in lines and "gather: upper: False / True" in lines
    assert list(differences(a, a, Store(root))) == []


def unstable(result: dict) -> Stage:
    return Stage(name="gather", revision=1, config=Empty, inputs={}, run=lambda *_: Facts(facts=dict(result)))


def test_a_second_different_result_under_one_key_is_refused(root: Path) -> None:
    result = {"loss": 1.0}
    job = Job(stage=unstable(result), config=Empty(), externals={}, inputs={}, label="x")
    first = execute(job, Store(root))
    assert execute(job, Store(root), rebuild=True).digest == first.digest
    result["loss"] = 2.0
    with pytest.raises(StoreConflict, match=r"loss: 1.0 at first, 2.0 now"):
        execute(job, Store(root), rebuild=True)
    assert execute(job, Store(root)).facts == {"loss": 1.0}


def test_an_unwritten_measured_file_is_our_error(root: Path) -> None:
    stage = Stage(
        name="x", revision=1, config=Empty, inputs={}, run=lambda *_: Facts(facts={}, measured_files=("a.json",))
    )
    with pytest.raises(AssertionError, match="a.json"):
        execute(Job(stage=stage, config=Empty(), externals={}, inputs={}, label="x"), Store(root))


def test_garbage_is_what_no_recipe_uses_and_nothing_else(root: Path) -> None:
    made = run_chain(resolver(root))
    run_chain(resolver(root, train=TrainConfig(steps=2)))
    store = Store(root)
    kept = {found.path for _, _, _, found in lineage(made["collect"][0], store) if found}
    kept |= {artifact.path for artifact in made["train"]}
    (root / "artifacts" / "parts" / ".work-0123456789ab").mkdir()
    busy = store.lease("parts", "ba9876543210")
    busy.acquire()
    store.work_path("parts", "ba9876543210").mkdir()
    doomed = garbage(store, kept, {made["train"][0].key})
    busy.release()
    names = sorted(f"{path.parent.name}/{path.name.split('-')[0]}" for path in doomed)
    short = resolver(root, train=TrainConfig(steps=2)).jobs("train")[0].key
    assert names == sorted(["checkpoint/fake", "collect/fake", "train/fake", "parts/.work", f"runs/{short}"])
    assert not any("ba9876543210" in path.name for path in doomed), "a work directory in use is no garbage"
    assert not kept & set(doomed)
    for path in doomed:
        store.remove(path)
    assert digests(run_chain(resolver(root))) == digests(made)


def test_a_copy_under_another_name_is_no_artifact(root: Path) -> None:
    artifact = run_chain(resolver(root), ("gather",))["gather"][0]
    for name in (f"old-{artifact.path.name}", f"{artifact.path.name}.backup"):
        shutil.copytree(artifact.path, artifact.path.with_name(name))
    store = Store(root)
    assert [found.path for found in store.all()] == [artifact.path]
    key = artifact.key
    store.remove(artifact.path)
    assert store.find("gather", key) is None


def test_a_rebuild_starts_from_nothing_and_leaves_nothing_behind(root: Path) -> None:
    made = run_chain(resolver(root), ("gather", "parts"))["parts"][0]
    work = Store(root).work_path("parts", made.key)
    work.mkdir()
    (work / "part-0.txt").write_text("left by another attempt")
    (job,) = resolver(root).jobs("parts")
    assert execute(job, Store(root), rebuild=True).digest == made.digest
    forgotten: list[str] = []
    stage = replace(unstable({"x": random.random()}), forget=lambda store, key: forgotten.append(key))
    job = Job(stage=stage, config=Empty(), externals={}, inputs={}, label="x")
    execute(job, Store(root))
    with pytest.raises(StoreConflict):
        execute(replace(job, stage=replace(stage, run=lambda *_: Facts(facts={"x": 2}))), Store(root), rebuild=True)
    assert forgotten == [job.key]
    assert list((root / "artifacts").glob("*/.work-*")) == []


def test_lookup_by_key_prefix_name_and_path(root: Path) -> None:
    artifact = run_chain(resolver(root), ("gather",))["gather"][0]
    store = Store(root)
    for name in (artifact.key, artifact.key[:6], artifact.path.name, str(artifact.path)):
        assert store.lookup(name).key == artifact.key
    with pytest.raises(InputError, match="no artifact.*stages list"):
        store.lookup("ffffffffffff")


def test_a_torn_journal_line_is_passed_over_and_the_next_attempt_starts_afresh(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps({"kind": "a"}) + "\n" + '{"kind": "to')
    journal = Journal(path, stage="x", clock=lambda: 1.0)
    journal.event("b", text="a\u2028b\ud83d")
    journal.close()
    assert [event["kind"] for event in read_events(path)] == ["a", "b"]


def test_progress_is_cheap_and_always_ends(tmp_path: Path) -> None:
    seen: list[dict] = []
    journal = Journal(tmp_path / "e", stage="x", listeners=(seen.append,), clock=lambda: 1.0)
    for done in range(1, 1001):
        journal.progress("count", done, 1000)
    assert [event["done"] for event in seen] == [1, 1000]


FILL_DISK = """
import sys
from pathlib import Path
from stages.cli import run_and_exit
from tests.stages.fake_stages import resolver, run_chain, STAGES
root = Path(sys.argv[1])
run_and_exit(lambda: run_chain(resolver(root), ("gather", "parts")))
"""


def test_a_full_disk_is_explained_and_loses_nothing(tmp_path: Path) -> None:
    """On a real, small file system."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2400k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a small file system")
    try:
        write_source(disk, "abcdefghij" * 90_000)
        result = subprocess.run([sys.executable, "-c", FILL_DISK, str(disk)], capture_output=True, text=True)
        assert result.returncode == 75, result.stderr
        assert "is full; free some space and run the same command again" in result.stderr
        assert "Traceback" not in result.stderr
        store = Store(disk)
        assert [artifact.stage for artifact in store.all()] == ["gather"]
        assert all(manifest.verify(artifact.path, artifact.manifest) == [] for artifact in store.all())
        subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
        made = digests(run_chain(resolver(disk), ("gather", "parts")))
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    clean = tmp_path / "clean"
    write_source(clean, "abcdefghij" * 90_000)
    assert digests(run_chain(resolver(clean), ("gather", "parts"))) == made


def test_the_word_of_the_system_for_a_full_disk_is_understood_wherever_it_stands(tmp_path: Path) -> None:
    """Without a small file system: the error itself, and one that a library wrapped."""

    def run(*_: object) -> Facts:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise KeyError("the library's own") from error

    stage = Stage(name="x", revision=1, config=Empty, inputs={}, run=run)
    with pytest.raises(TryAgain, match="is full; free some space"):
        execute(Job(stage=stage, config=Empty(), externals={}, inputs={}, label="x"), Store(tmp_path))
    assert not Store(tmp_path).is_being_built("x", "0" * 12) and list(Store(tmp_path).all()) == []


def test_a_full_disk_that_a_library_reports_in_words_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object) -> Facts:
        raise RuntimeError("failed writing tensor")

    stage = Stage(name="x", revision=1, config=Empty, inputs={}, run=run)
    job = Job(stage=stage, config=Empty(), externals={}, inputs={}, label="x")
    with pytest.raises(RuntimeError, match="failed writing"):
        execute(job, Store(tmp_path))
    monkeypatch.setattr("stages.disk.FULL_BYTES", 1 << 60)
    with pytest.raises(TryAgain, match="is full"):
        execute(job, Store(tmp_path))


def test_stages_are_declared_once() -> None:
    assert all(name == stage.name for name, stage in STAGES.items())
