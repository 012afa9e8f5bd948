"""The whole chain on real text, from a shell."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from stages.recipe import CHAIN
from stages.store import Store
from tests.end_to_end.shell import TINY, run, run_here


def test_ten_stages_ran_alone_without_prefect(tiny_root: Path) -> None:
    store = Store(tiny_root)
    assert all(list(store.all(stage)) for stage in CHAIN)
    assert len(list(store.all("evaluate"))) == len(list(store.all("checkpoint"))) == 2


def test_evaluation_needs_lm_eval_and_says_so(tiny_root: Path, tmp_path: Path) -> None:
    """The negative control: the absent packages of the other stages really are absent."""
    result = run(
        "stages.evaluate", TINY, "--root", tiny_root, "--set", "evaluate.seed=3", absent=("prefect", "lm_eval")
    )
    assert result.returncode == 2 and "lm-eval, which is not installed here: `pip install lm-eval`" in result.stderr


def test_conservation_from_text_to_tokens(tiny_root: Path) -> None:
    store = Store(tiny_root)
    (corpus,), (tokens,) = store.all("curate"), store.all("pretokenize")
    for name, domain in corpus.facts["domains"].items():
        for unit in ("documents", "bytes"):
            gone = sum(reason[unit] for reason in domain["dropped"].values())
            gone += sum(domain["edited"].values()) if unit == "bytes" else 0
            assert domain[f"{unit}_in"] == domain[f"train_{unit}"] + domain[f"heldout_{unit}"] + gone
        assert tokens.facts["domains"][name]["train_documents"] == domain["train_documents"]


def test_a_second_run_only_finds_what_is_there(tiny_root: Path) -> None:
    result = run_here("stages.report", TINY, "--upstream", "--root", tiny_root)
    assert result.returncode == 0, result.stderr
    assert "started" not in result.stderr
    assert len(re.findall("up to date", result.stderr)) == len(CHAIN) + 1, "ten stages, two evaluations"


def test_events_are_json_lines(tiny_root: Path) -> None:
    result = run("stages.plan", TINY, "--root", tiny_root, "--events")
    (event,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert (event["kind"], event["stage"], event["hit"]) == ("artifact", "plan", True)


def test_commands_on_the_store(tiny_root: Path, tmp_path: Path) -> None:
    store = Store(tiny_root)
    (report,) = store.all("report")
    listed = run_here("stages", "list", "--root", tiny_root)
    assert all(artifact.key in listed.stdout for artifact in store.all())
    lineage = run_here("stages", "lineage", report.key[:8], "--root", tiny_root)
    assert all(f"{stage} " in lineage.stdout for stage in (*CHAIN, "checkpoint"))
    assert run_here("stages", "verify", "--root", tiny_root).returncode == 0
    kept = run_here("stages", "gc", TINY, "--root", tiny_root)
    assert kept.returncode == 0 and "tiny-" not in kept.stdout, "an artifact of the recipe is no garbage"
    other = run_here("stages.plan", TINY, "--root", tiny_root, "--set", "pretrain.num_steps=41")
    first, second = [artifact.key for artifact in store.all("plan")]
    explained = run_here("stages", "explain", first, second, "--root", tiny_root)
    assert other.returncode == 0 and "pretrain.num_steps: 4" in explained.stdout
    removed = run_here("stages", "gc", TINY, "--root", tiny_root, "--delete")
    assert "plan" in removed.stdout and len(list(store.all("plan"))) == 1


def line(text: str) -> str:
    return json.dumps({"text": text}) + "\n"


PROSE = "The harbour was quiet in the morning, and the boats lay side by side along the old stone wall. "


@pytest.fixture
def corpus_recipe(tmp_path: Path) -> Path:
    """A recipe whose corpus is corpus.jsonl beside it."""
    path = tmp_path / "recipe.toml"
    path.write_text(
        'name = "own"\n[[curate.sources]]\nkind = "jsonl"\ndomain = "prose"\n'
        f'path = "{tmp_path / "corpus.jsonl"}"\nquality = "none"\n'
    )
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such file"),
        ("", "empty"),
        (line(" ") * 5, "empty"),
        (line(PROSE * 3), "at least two groups"),
    ],
    ids=["missing source", "empty file", "nothing but blanks", "one document"],
)
def test_a_corpus_that_cannot_be_used(corpus_recipe: Path, tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "corpus.jsonl").write_text(content)
    result = run_here("stages.curate", corpus_recipe, "--root", tmp_path)
    assert result.returncode == 2, result.stderr
    assert re.search(message, result.stderr) and "Traceback" not in result.stderr
    assert list(Store(tmp_path).all()) == []


def test_a_record_that_is_not_utf8_is_counted_and_the_others_are_kept(corpus_recipe: Path, tmp_path: Path) -> None:
    documents = [line(f"{PROSE} Number {number}. " + f"word{number} " * 20).encode() for number in range(40)]
    (tmp_path / "corpus.jsonl").write_bytes(b"".join(documents) + b'{"text": "\xff\xfe"}\n')
    result = run_here("stages.curate", corpus_recipe, "--root", tmp_path)
    assert result.returncode == 0, result.stderr
    (corpus,) = Store(tmp_path).all("curate")
    domain = corpus.facts["domains"]["prose"]
    assert domain["documents_in"] == 41
    assert any("UTF-8" in reason and drop["documents"] == 1 for reason, drop in domain["dropped"].items())


def test_a_truncated_archive_loses_no_tail_in_silence(corpus_recipe: Path, tmp_path: Path) -> None:
    import gzip

    whole = gzip.compress("".join(line(f"{PROSE}{number}") for number in range(2000)).encode())
    (tmp_path / "corpus.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    text = corpus_recipe.read_text().replace("corpus.jsonl", "corpus.jsonl.gz")
    corpus_recipe.write_text(text)
    result = run_here("stages.curate", corpus_recipe, "--root", tmp_path)
    assert result.returncode == 2, result.stderr
    assert "corpus.jsonl.gz: the file is cut off or damaged" in result.stderr and "Traceback" not in result.stderr


def test_bad_recipes_exit_with_two(tmp_path: Path) -> None:
    for setting, message in (
        ("pretrain.lerning_rate=1", "did you mean learning_rate"),
        ("pretrain.num_steps=x", "'x'"),
    ):
        result = run_here("stages.plan", TINY, "--root", tmp_path, "--set", setting)
        assert result.returncode == 2 and message in result.stderr and "Traceback" not in result.stderr


def test_a_stage_whose_input_is_not_there_names_the_command(tmp_path: Path) -> None:
    result = run_here("stages.tokenizer", TINY, "--root", tmp_path)
    assert result.returncode == 2
    assert "python -m stages.curate RECIPE" in result.stderr and "--upstream" in result.stderr


def test_real_stages_on_a_full_disk(tiny_root: Path, tmp_path: Path) -> None:
    """The disk is full at pretokenize; what was finished before stays, and with more space the same command goes on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        for stage in ("curate", "tokenizer"):
            shutil.copytree(tiny_root / "artifacts" / stage, disk / "artifacts" / stage)
        finished = {artifact.stage: artifact.digest for artifact in Store(disk).all()}
        used = sum(path.stat().st_blocks * 512 for path in disk.rglob("*") if path.is_file())
        subprocess.run(["mount", "-o", f"remount,size={used + (700 << 10)}", disk], check=True)
        full = run("stages.pretokenize", TINY, "--upstream", "--root", disk)
        assert full.returncode == 75, full.stderr
        assert "is full; free some space and run the same command again" in full.stderr
        assert "Traceback" not in full.stderr
        assert {artifact.stage: artifact.digest for artifact in Store(disk).all()} == finished
        assert finished.keys() == {"curate", "tokenizer"}
        subprocess.run(["mount", "-o", "remount,size=40m", disk], check=True)
        assert run_here("stages.pretokenize", TINY, "--upstream", "--root", disk).returncode == 0
        assert run_here("stages", "verify", "--root", disk).returncode == 0
        undisturbed = {artifact.stage: artifact.digest for artifact in Store(tiny_root).all()}
        left = {artifact.stage: artifact.digest for artifact in Store(disk).all()}
        assert left == {stage: undisturbed[stage] for stage in ("curate", "tokenizer", "pretokenize")}
    finally:
        subprocess.run(["umount", disk], check=True)
