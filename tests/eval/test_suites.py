import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from data.errors import InputError
from data.heldout.judged_item import JudgedItem
from eval.suites import SUITES_DIRECTORY, digest, fixed_items, fixed_texts, load_suite, load_suites
from eval.tasks.heldout import word_order
from eval.tasks.templates import GENERATORS, template_items

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
        assert all(task.chance is not None for task in suite.tasks if task.source != "lm_eval")


@pytest.mark.parametrize("name", GENERATORS)
def test_template_items_are_a_function_of_seed_and_place(name: str) -> None:
    items = template_items(name, seed=3, limit=120)
    assert len(items) == 120
    assert template_items(name, seed=3, limit=30) == items[:30], "a larger limit only appends"
    assert template_items(name, seed=4, limit=120) != items
    assert len({tuple(sorted(item.choices)) for item in items}) == 120
    for item in items:
        assert len(set(item.choices)) == len(item.choices) and 0 <= item.gold < len(item.choices)


CHANCE = {task.name: task.chance for task in load_suite("core").tasks}


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize(
    "preference",
    [
        lambda choices: 0,
        lambda choices: max(range(len(choices)), key=lambda i: (len(choices[i]), choices[i])),
        lambda choices: min(range(len(choices)), key=lambda i: (len(choices[i]), choices[i])),
        lambda choices: max(range(len(choices)), key=lambda i: choices[i][-1]),
        lambda choices: min(range(len(choices)), key=lambda i: hashlib.sha256(choices[i].encode()).digest()),
    ],
    ids=["first", "longest", "shortest", "last character", "arbitrary"],
)
def test_a_fixed_preference_scores_chance(name: str, preference) -> None:
    """Within four standard errors over 600 items, so that a shortcut that needs no understanding is found."""
    items = template_items(name, seed=0, limit=600)
    right = sum(preference(item.choices) == item.gold for item in items)
    chance = CHANCE[name]
    assert chance is not None
    assert abs(right / 600 - chance) < 4 * (chance * (1 - chance) / 600) ** 0.5


def test_word_order_takes_real_sentences_and_exchanges_two_words() -> None:
    text = "{0} of the tokens were read from the file. A {0} value is not a sentence of words.\n"
    documents = [(f"d{i}", text.format(word)) for i, word in enumerate(("Most", "Some", "None", "Many"))]
    items = word_order(documents, seed=0, limit=10)
    assert items == word_order(documents[::-1], seed=0, limit=10), "the order of the documents does not matter"
    assert len(items) == 4 and {item.cluster for item in items} == {"d0", "d1", "d2", "d3"}
    for item in items:
        right, wrong = item.choices[item.gold], item.choices[1 - item.gold]
        assert any(right in text for _, text in documents) and right != wrong
        assert Counter(right[:-1].split()) == Counter(wrong[:-1].split()) and right.split()[0] == wrong.split()[0]
    assert word_order(documents, seed=0, limit=2) == items[:2]
    assert word_order([("x", "no sentence here")], seed=0, limit=5) == ()


def test_the_digest_follows_definitions_and_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "mine.toml")
    first = digest([path])
    assert digest([path]) == first and digest(["core"]) != first
    (tmp_path / "mine.toml").write_text(Path(path).read_text().replace("limit = 3", "limit = 4"))
    assert digest([path]) != first
    write(tmp_path / "mine.toml")
    monkeypatch.setitem(GENERATORS, "indent", GENERATORS["agreement"])
    assert digest([path]) != first, "a generator that gives other items is another suite"


def test_fixed_texts_are_the_items_with_their_right_answers(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.toml")
    (task,) = load_suite(path).tasks
    texts = [item.choices[item.gold] for item in fixed_items(task)]
    assert list(fixed_texts([path])) == [JudgedItem("indent", str(i), text) for i, text in enumerate(texts)]
    assert len(list(fixed_texts(["core"]))) == 5 * 150, "held-out items are not fixed texts"


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
        (MINIMAL.format(name="indent", source="heldout"), "there is word_order"),
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
    with pytest.raises(InputError, match="not reachable; or name it in suites.waived_tasks"):
        list(fixed_texts([path]))


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
