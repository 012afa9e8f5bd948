import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from data.errors import InputError
from data.heldout.judged_item import JudgedItem
from eval import suites
from eval.harness.tasks import lm_eval_tasks, load_task
from eval.suites import SUITES_DIRECTORY, digest, fixed_texts, load_suite, load_suites, read_through_harness
from eval.tasks.heldout import GENERATORS as HELDOUT_GENERATORS
from eval.tasks.make import make_items
from eval.tasks.templates import GENERATORS as TEMPLATE_GENERATORS
from stages.suites import SuitesConfig
from tests.eval.suite_page import PAGE, shipped, written

MINIMAL = """name = "mine"
axis = "capability"
version = 1
[[tasks]]
name = "{name}"
source = "{source}"
version = 1
limit = 3
"""


def write(path: Path, **fields: str) -> str:
    path.write_text(MINIMAL.format(**{"name": "indent", "source": "template", **fields}), encoding="utf-8")
    return str(path)


def test_every_shipped_suite_loads_and_states_chance_where_it_can() -> None:
    names = [path.stem for path in SUITES_DIRECTORY.glob("*.toml")]
    assert "core" in names
    for suite in load_suites(names):
        for task in suite.tasks:
            assert task.description, task.name
            assert task.source not in ("template", "heldout") or (task.chance is not None and task.moves_at), task.name


def test_the_digest_follows_definitions_and_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "mine.toml")
    first = digest([path])
    assert digest([path]) == first and digest(["core"]) != first
    (tmp_path / "mine.toml").write_text(Path(path).read_text().replace("limit = 3", "limit = 4"))
    assert digest([path]) != first
    write(tmp_path / "mine.toml")
    suites._fixed_texts.cache_clear()
    monkeypatch.setitem(TEMPLATE_GENERATORS, "indent", TEMPLATE_GENERATORS["agreement"])
    assert digest([path]) != first, "a generator that gives other items is another suite"
    suites._fixed_texts.cache_clear()


def test_fixed_texts_are_the_items_with_their_right_answers(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.toml")
    (task,) = load_suite(path).tasks
    texts = [item.choices[item.gold] for item in make_items(task, {})]
    assert list(fixed_texts([path])) == [JudgedItem("indent", str(i), text) for i, text in enumerate(texts)]
    fixed = sum(task.limit for task in load_suite("core").tasks if task.source == "template")
    assert len(list(fixed_texts(["core"]))) == fixed, "held-out items are not fixed texts"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no suite 'nope'; shipped: .*core"),
        ("name = ", "mine.toml"),
        (MINIMAL.format(name="indent", source="template") + "limits = 3\n", "tasks.0.limits"),
        (MINIMAL.format(name="indent", source="elsewhere"), "no source is named .elsewhere.; there are"),
        (
            MINIMAL.format(name="indents", source="template"),
            "no template generator is named 'indents'; there are .*indent",
        ),
        (
            MINIMAL.format(name="indent", source="heldout"),
            "no heldout generator is named .indent.; there are .*word_order",
        ),
        (
            MINIMAL.format(name="bias", source="bias") + "shots = 5\n",
            "task bias: shots has no effect on the source bias",
        ),
        (
            MINIMAL.format(name="boundary", source="boundary") + "seed = 5\n",
            "task boundary: seed has no effect on the source boundary",
        ),
        (
            MINIMAL.format(name="mine", source="throughput") + "settings = { batch_sizes = [0] }\n",
            "task mine: settings.batch_sizes.0: Input should be greater than 0",
        ),
    ],
)
def test_what_is_wrong_with_a_suite_is_named(content: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=words):
        load_suite(str(path) if content is not None else "nope")


def test_a_task_in_two_suites_and_a_needless_waiver_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.toml")
    with pytest.raises(InputError, match="indent stands twice, in core and in mine"):
        load_suites(["core", path])
    with pytest.raises(InputError, match="waived_tasks: piqa"):
        list(fixed_texts([path], waived=["piqa"]))


def test_a_hub_task_without_network_needs_a_waiver(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.toml", name="piqa", source="lm_eval")
    assert list(fixed_texts([path], waived=["piqa"])) == []


def test_items_of_lm_eval_are_named_by_task_and_one_that_cannot_be_read_names_the_waiver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def texts(name: str) -> Iterator[str]:
        yield f"{name} asks and answers"
        if reachable:
            yield "another"
        else:
            raise InputError("its data set is not reachable")

    monkeypatch.setitem(sys.modules, "eval.harness", SimpleNamespace(task_texts=texts))
    path, reachable = write(tmp_path / "mine.toml", name="piqa", source="lm_eval"), True
    assert list(fixed_texts([path])) == [
        JudgedItem("piqa", "0", "piqa asks and answers"),
        JudgedItem("piqa", "1", "another"),
    ]
    reachable = False
    with pytest.raises(InputError, match="not reachable; or name piqa in suites.waived_tasks"):
        list(fixed_texts([path]))


def test_items_that_are_asked_in_another_form_are_fixed_texts_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "eval.harness", SimpleNamespace(task_texts=lambda name: iter([f"of {name}"])))
    path = write(tmp_path / "mine.toml", name="mine", source="choice_order")
    with open(path, "a", encoding="utf-8") as file:
        file.write('settings = { bases = ["lm_eval/piqa", "keyword_4way"] }\n')
    texts = [item.text for item in fixed_texts([path])]
    assert texts[-1] == "of piqa" and read_through_harness([path])
    assert any("1. " in text and text.endswith("Which one is right? Number 3") for text in texts)
    assert len({item.name for item in fixed_texts([path])}) == len(texts), "each has a number of its own"
    waived = [item.text for item in fixed_texts([path], waived=["mine"])]
    assert waived == texts[:-1] and not read_through_harness([path], waived=["mine"])


def test_items_of_lm_eval_need_lm_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "mine.toml", name="piqa", source="lm_eval")
    monkeypatch.setattr("eval.suites.importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="`pip install lm-eval`"):
        list(fixed_texts([path]))


def test_items_survive_json_lines(tmp_path: Path) -> None:
    from eval.tasks.items import Item, write_items

    item = Item(choices=("a\u2028b\x85\n", "\u4e2d'{{x}}\""), gold=1, cluster="c")
    write_items(tmp_path / "items.jsonl", [item])
    (line,) = (tmp_path / "items.jsonl").read_text().splitlines()
    assert json.loads(line) == item.record()


def test_the_page_tells_of_every_shipped_task() -> None:
    """Else: `python -m tests.eval.suite_page`."""
    assert PAGE.read_text(encoding="utf-8") == written()


def test_the_suite_of_the_page_can_be_used(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    recipe, suite = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "mine.toml"
    path.write_text(suite, encoding="utf-8")
    loaded = load_suite(str(path))
    assert [task.made_by for task in loaded.tasks] == ["bracket_3", "sciq"]
    names = SuitesConfig.model_validate(tomllib.loads(recipe)["suites"])
    assert set(names.names) <= {suite.name for suite in shipped()}
    for name in (*TEMPLATE_GENERATORS, *HELDOUT_GENERATORS):
        assert f"`{name}`" in page


@pytest.mark.slow
def test_the_standard_suite_names_tasks_and_metrics_of_lm_eval() -> None:
    index = lm_eval_tasks().task_index
    for task in load_suite("standard").tasks:
        entry = index[task.made_by]
        metrics = [metric["metric"] for metric in (entry.cfg or {}).get("metric_list", [])]
        assert task.metric in metrics or not metrics or (entry.cfg or {}).get("unsafe_code"), (task.name, metrics)
        if task.limit > 100 and task.chance is not None and entry.kind.name == "TASK":
            assert entry.cfg["output_type"] == "multiple_choice", task.name


def test_a_task_that_runs_programs_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ALLOW_CODE_EVAL", raising=False)
    with pytest.raises(InputError, match="HF_ALLOW_CODE_EVAL=1"):
        load_task(lm_eval_tasks(), "humaneval")
