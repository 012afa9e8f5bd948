import os
import subprocess
import sys
from pathlib import Path

import pytest
from lm_eval.tasks import TaskManager

from data.errors import InputError
from eval.harness import clustered_standard_error, encode_pair, load_task, run_suites
from eval.scoring.scorer import Scorer
from eval.suites import Suite, TaskDefinition
from eval.tasks.make import make_items
from tests.eval.stubs import END, BigramModel, PieceTokenizer, characters


def suite(*tasks: TaskDefinition) -> Suite:
    return Suite(name="mine", axis="capability", version=1, tasks=tasks)


def task(name: str = "indent", **fields) -> TaskDefinition:
    return TaskDefinition(**{"name": name, "source": "template", "version": 1, "limit": 7, "chance": 0.5, **fields})


def scorer(tokenizer: PieceTokenizer, *, seed: int = 0, batch_tokens: int = 4096) -> Scorer:
    return Scorer(BigramModel(tokenizer.size, max_length=512, seed=seed), prefix_token=END, batch_tokens=batch_tokens)


@pytest.mark.parametrize(
    ("context", "answer", "head", "tail"),
    [
        ("Ans", "wer", "", "Answer"),
        ("Q:", " C", "Q", ": C"),
        ("Q: ", "C", "Q", ": C"),
        ("x ", "y", "x", " y"),
        ("", "abc", "", "abc"),
        ("abc", "d", "abc", "d"),
        ("Answer", " Answer", "Answer", " Answer"),
    ],
)
def test_an_answer_has_its_tokens_wherever_the_tokenizer_cuts(context: str, answer: str, head: str, tail: str) -> None:
    tokenizer = characters("Answer", ": C")
    before, scored = encode_pair(tokenizer.encode, context, answer)
    assert (tokenizer.decode(before), tokenizer.decode(scored)) == (head, tail)
    assert len(scored) >= 1 and before + scored == tokenizer.encode(context + answer)
    found = scorer(tokenizer).score([(before, scored)])[0]
    model = BigramModel(tokenizer.size, max_length=512)
    assert found.log_likelihood == pytest.approx(
        model.log_likelihood([END, *before, *scored], 1 + len(before)), abs=1e-4
    )


def test_a_token_that_ends_in_the_context_alone_is_no_reason_for_an_empty_answer() -> None:
    """The whole text has fewer tokens than its context."""
    tokenizer = characters("abcdef")
    assert encode_pair(tokenizer.encode, "abcde", "f") == ([], tokenizer.encode("abcdef"))
    assert encode_pair(tokenizer.encode, "abc", "") == (tokenizer.encode("abc"), [])


def test_scores_do_not_depend_on_the_batch_and_count_each_item_once(tmp_path: Path) -> None:
    tokenizer = characters()
    found = []
    for batch_tokens in (1, 97, 4096):
        results = run_suites(
            scorer(tokenizer, batch_tokens=batch_tokens),
            tokenizer,
            [suite(task("keyword_4way", chance=0.25), task())],
            heldout=list,
            directory=tmp_path,
        )
        assert [len(result.items) for result in results.tasks] == [7, 7] and results.skipped == {}
        assert [[item.item for item in result.items] for result in results.tasks] == [list(range(7))] * 2
        found.append([(result.value, [item.predicted for item in result.items]) for result in results.tasks])
    assert found[0] == found[1] == found[2]


def test_two_models_are_both_asked(tmp_path: Path) -> None:
    """No answer of one checkpoint is served to another."""
    tokenizer = characters()

    class Opinionated(BigramModel):
        """Likes or dislikes a closing bracket after anything."""

        def __init__(self, liking: float) -> None:
            super().__init__(tokenizer.size, max_length=512)
            self.table.zero_()
            self.table[:, tokenizer.encode(")")[0]] = liking

    definition = task("bracket_1", limit=60)
    values = []
    for liking in (50.0, -50.0):
        (result,) = run_suites(
            Scorer(Opinionated(liking), prefix_token=END),
            tokenizer,
            [suite(definition)],
            heldout=list,
            directory=tmp_path,
        ).tasks
        round_items = [item for item in result.items if item.cluster.endswith("(")]
        values.append({item.score for item in round_items})
    assert values == [{1.0}, {0.0}]


def prompts(directory: Path, *, limit: int = 8, seed: int = 1, batch_tokens: int = 4096) -> list[str]:
    """The hash of each item's prompt with three solved examples."""
    tokenizer = characters()
    model = scorer(tokenizer, batch_tokens=batch_tokens)
    suites = [suite(task(limit=limit, shots=3))]
    (result,) = run_suites(model, tokenizer, suites, heldout=list, directory=directory, fewshot_seed=seed).tasks
    return [item.prompt_hash for item in result.items]


IN_ANOTHER_PROCESS = """
import sys
from pathlib import Path
from tests.eval.test_harness import prompts
print(*prompts(Path(sys.argv[1])))
"""


def test_solved_examples_do_not_depend_on_the_process_and_follow_the_seed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "7", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path / "other")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    here = prompts(tmp_path / "here")
    assert done.stdout.split() == here == prompts(tmp_path / "batch", batch_tokens=1) and len(set(here)) == 8
    assert all(a != b for a, b in zip(here, prompts(tmp_path / "seed", seed=2), strict=True))


def test_an_item_is_never_its_own_example(tmp_path: Path) -> None:
    tokenizer = characters()
    model = scorer(tokenizer, batch_tokens=1)
    definition = task(limit=4, shots=3)
    run_suites(model, tokenizer, [suite(definition)], heldout=list, directory=tmp_path)
    texts = [tokenizer.decode(row) for row in model.model.inputs]
    assert len(texts) == 8, "two choices of four items"
    for item in make_items(definition, {}):
        right, wrong = item.choices[item.gold].rstrip(), item.choices[1 - item.gold].rstrip()
        asked = [text for text in texts if text.endswith((right, wrong))]
        assert [text.count(right) for text in asked if text.endswith(right)] == [1]
        assert [text.count(right) for text in asked if text.endswith(wrong)] == [0]


def test_a_task_without_text_is_left_out_with_the_reason(tmp_path: Path) -> None:
    tokenizer = characters()
    order = task("word_order", source="heldout")
    results = run_suites(
        scorer(tokenizer), tokenizer, [suite(order, task())], heldout=lambda: [("a", "none")], directory=tmp_path
    )
    assert [result.definition.name for result in results.tasks] == ["indent"] and "no sentence" in results.skipped[
        "word_order"
    ]


def test_a_task_of_lm_eval_runs_by_name_and_says_what_is_missing_without_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    def unreachable(*arguments, **settings):
        raise ConnectionError("Couldn't reach 'baber/piqa' on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    tokenizer = characters()
    hub = task("piqa", source="lm_eval")
    with pytest.raises(
        InputError, match="'piqa' is neither in the local cache nor reachable.*take the task out of the suite"
    ):
        run_suites(scorer(tokenizer), tokenizer, [suite(hub)], heldout=list, directory=tmp_path)


def test_a_task_that_lm_eval_does_not_know_is_named() -> None:
    with pytest.raises(InputError, match="lm-eval knows no task 'piqaa'"):
        load_task(TaskManager(include_defaults=False), "piqaa")


def test_an_unknown_metric_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    tokenizer = characters()
    with pytest.raises(InputError, match="no metric 'f1'; lm-eval gives acc for it"):
        run_suites(scorer(tokenizer), tokenizer, [suite(task(metric="f1"))], heldout=list, directory=tmp_path)


def test_errors_are_over_clusters() -> None:
    import numpy as np

    scores = np.array([1.0, 1, 1, 0, 0, 0, 1, 0])
    single = clustered_standard_error(scores, [str(i) for i in range(8)])
    assert single == pytest.approx(scores.std(ddof=1) / 8**0.5), "one cluster an item: the usual error"
    doubled = clustered_standard_error(np.repeat(scores, 2), [str(i) for i in range(8) for _ in range(2)])
    assert doubled == pytest.approx(single), "each item twice is no new evidence"
    assert clustered_standard_error(scores, ["one"] * 8) is None
