import os
import subprocess
import sys
from pathlib import Path

import lm_eval
import pytest
from lm_eval.tasks import TaskManager

from data.errors import InputError
from eval.harness import HarnessModel, load_task, tasks
from eval.scoring.scorer import Scorer
from eval.suites import Suite
from eval.tasks.make import make_items
from tests.eval.harness.judged import run, scorer, task
from tests.eval.stubs import END, BigramModel, characters


def test_scores_do_not_depend_on_the_batch_and_count_each_item_once(tmp_path: Path) -> None:
    found = []
    for batch_tokens in (1, 97, 4096):
        judged = [task("keyword_4way", chance=0.25), task()]
        results = run(scorer(batch_tokens=batch_tokens), judged, tmp_path / str(batch_tokens))
        assert [len(result.items) for result in results.tasks] == [7, 7] and results.skipped == {}
        assert [[item.item for item in result.items] for result in results.tasks] == [list(range(7))] * 2
        found.append([(result.value, [item.predicted for item in result.items]) for result in results.tasks])
    assert found[0] == found[1] == found[2]


def test_two_models_are_both_asked(tmp_path: Path) -> None:
    """No answer of one checkpoint is served to another."""

    class Opinionated(BigramModel):
        """Likes or dislikes a closing bracket after anything."""

        def __init__(self, liking: float) -> None:
            super().__init__(characters().size, max_length=512)
            self.table.zero_()
            self.table[:, characters().encode(")")[0]] = liking

    definition = task("bracket_1", limit=60)
    right = [item.choices[item.gold].rstrip().endswith(")") for item in make_items(definition, {})]
    values = []
    for liking in (50.0, -50.0):
        judged = Scorer(Opinionated(liking), prefix_token=END)
        (result,) = run(judged, [definition], tmp_path).tasks  # one folder: what is cached there is not an answer
        values.append({item.score for item, is_round in zip(result.items, right, strict=True) if is_round})
    assert values == [{1.0}, {0.0}]


def prompts(directory: Path, *, limit: int = 8, batch_tokens: int = 4096) -> list[str]:
    """The hash of each item's prompt with three solved examples."""
    (result,) = run(scorer(batch_tokens=batch_tokens), [task(limit=limit, shots=3)], directory).tasks
    return [item.prompt_hash for item in result.items]


IN_ANOTHER_PROCESS = """
import sys
from pathlib import Path
from tests.eval.harness.test_tasks import prompts
print(*prompts(Path(sys.argv[1])))
"""


def test_solved_examples_do_not_depend_on_the_process_and_follow_the_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "7", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path / "other")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    here = prompts(tmp_path / "here")
    assert done.stdout.split() == here == prompts(tmp_path / "batch", batch_tokens=1) and len(set(here)) == 8
    monkeypatch.setattr(tasks, "FEWSHOT_SEED", 2)
    assert all(a != b for a, b in zip(here, prompts(tmp_path / "seed"), strict=True))


def test_a_limit_changes_no_prompt(tmp_path: Path) -> None:
    """Solved examples are drawn from all items of the task, and how many are asked is another matter."""
    definition = task(limit=20, shots=3)
    tasks.render(definition, make_items(definition, {}), tmp_path)
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    suite = Suite(name="mine", axis="capability", version=1, tasks=(definition,))
    model = HarnessModel(scorer(), characters())
    hashes = {
        limit: [
            item.prompt_hash
            for item in tasks._run_task(model, manager, "indent", suite, task(limit=limit, shots=3)).items
        ]
        for limit in (5, 20)
    }
    assert len(hashes[20]) == 20 and hashes[5] == hashes[20][:5]


def test_an_item_is_never_its_own_example(tmp_path: Path) -> None:
    model = BigramModel(characters().size, max_length=512)
    definition = task(limit=4, shots=3)
    run(Scorer(model, prefix_token=END, batch_tokens=1), [definition], tmp_path)
    texts = [characters().decode(row) for row in model.inputs]
    for item in make_items(definition, {}):
        right, wrong = item.choices[item.gold].rstrip(), item.choices[1 - item.gold].rstrip()
        asked = [text for text in texts if text.endswith((right, wrong))]
        assert len(asked) == 2, "its two choices"
        assert [text.count(right) for text in asked if text.endswith(right)] == [1]
        assert [text.count(right) for text in asked if text.endswith(wrong)] == [0]


def test_what_was_asked_and_chosen_is_kept(tmp_path: Path) -> None:
    """Pairs of sentences have an empty prompt: their hash tells them apart all the same."""
    definition = task("keyword_4way", chance=0.25, limit=30)
    (result,) = run(scorer(), [definition], tmp_path).tasks
    assert len({item.prompt_hash for item in result.items}) == len(make_items(definition, {}))
    for found, item in zip(result.items, make_items(definition, {}), strict=True):
        assert found.gold == item.gold and found.predicted is not None
        parts = [" ".join(item.choices[number].split()) for number in dict.fromkeys((item.gold, found.predicted))]
        assert found.evidence == " | ".join(parts)


def test_a_task_without_text_is_left_out_with_the_reason(tmp_path: Path) -> None:
    order = task("word_order", source="heldout")
    results = run(scorer(), [order, task()], tmp_path, heldout={"code": [("a", "none")]})
    assert [result.definition.name for result in results.tasks] == ["indent"] and list(results.skipped) == [
        "word_order"
    ]


def test_a_task_of_lm_eval_runs_by_name_and_says_what_is_missing_without_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    def unreachable(*arguments, **settings):
        raise ConnectionError("Couldn't reach 'baber/piqa' on the Hub")

    # The index of every task takes many seconds to make.
    few = TaskManager(include_path=str(Path(lm_eval.__file__).parent / "tasks" / "piqa"), include_defaults=False)
    monkeypatch.setattr(tasks, "lm_eval_tasks", lambda: few)
    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(
        InputError, match="'piqa' is neither in the local cache nor reachable.*take the task out of the suite"
    ):
        run(scorer(), [task("piqa", source="lm_eval")], tmp_path)


def test_a_task_that_lm_eval_does_not_know_is_named() -> None:
    with pytest.raises(InputError, match="lm-eval knows no task 'piqaa'"):
        load_task(TaskManager(include_defaults=False), "piqaa")


def test_an_unknown_metric_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no metric 'f1'; lm-eval gives acc for it"):
        run(scorer(), [task(metric="f1")], tmp_path)
