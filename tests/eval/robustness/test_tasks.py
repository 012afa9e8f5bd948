import itertools
import json
import random
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from data.errors import InputError
from eval.results import Skipped
from eval.robustness.choice_order import orders
from eval.robustness.questions import Question, read_questions
from eval.run import run_suites
from eval.scoring.scorer import Scorer
from eval.suites import Suite, load_suite
from tests.eval.robustness.stubs import JudgingScorer, Utf8, balance, run, subject, task
from tests.eval.stubs import END, BigramModel

PROSE = (
    "The value of a name was read from the file and then given to another name in the list. "
    "Every reader knows which lines were counted before others came into view. "
)
HELDOUT = {
    "large": [(f"l{i}", f"{PROSE * 8} Number {i}.") for i in range(12)],
    "small": [(f"s{i}", f"Quite zebra{chr(97 + i)} other quokka{chr(97 + i)} words.{PROSE}") for i in range(4)],
}


def test_a_model_that_forgets_loses_most_at_the_last_position() -> None:
    reach = 200  # bytes before an item, after which this model knows nothing

    def forgetful(text: str) -> float:
        return balance(text[text.rindex("\n\n") :]) if len(text) < reach or "\n\n" not in text else 0.0

    def judge(text: str) -> float:
        return forgetful(text if "\n\n" in text else f"\n\n{text}")

    scorer = JudgingScorer(judge, max_length=400)
    settings = {"bases": ["bracket_1"], "positions": [0.2, 0.9], "most_tokens": 300}
    (result,) = run(subject(scorer, HELDOUT), task("long_context", settings, limit=24))
    facts = result.facts()
    assert facts["groups"]["0.2 of the context"]["value"] == 1.0 and facts["clean"] == 1.0
    assert facts["worst_group"]["group"] == "0.9 of the context" and facts["worst_group"]["value"] < 1.0
    assert facts["drop"]["value"] > 0 and facts["context_tokens"] == 300
    asked = [(context, answer) for context, answer in scorer.asked if context]
    assert len(asked) == 2 * 24 and all(len((context + answer).encode()) < 300 for context, answer in asked)
    contexts = [context for context, _ in asked]
    assert contexts[::2] == contexts[1::2] and len(set(contexts)) > 12, "an item's own, the same for its choices"
    fillers = [context.removesuffix("\n\n") for context in contexts]
    texts = [text for pairs in HELDOUT.values() for _, text in pairs]
    assert all(any(filler[:20] in text for text in texts) for filler in fillers)
    assert max(len(filler) for filler in fillers) > 3 * min(len(filler) for filler in fillers)


def test_a_context_without_room_and_text_that_is_not_there_are_said() -> None:
    definition = task("long_context", {"bases": ["bracket_1"]})
    suite = Suite(name="mine", axis="long_tail", version=1, tasks=(definition,))
    for judged, reason in (
        (subject(JudgingScorer(balance, max_length=8), HELDOUT), "no place"),
        (subject(JudgingScorer(balance), {}), "no held-out text"),
    ):
        assert reason in run_suites(judged, [suite]).skipped["mine"]


def test_a_list_is_turned_and_its_answer_with_it() -> None:
    question = Question(context="", choices=("a\n", "b\n", "c\n"), gold=1, base="x", cluster="y")
    turned = orders(question)
    assert [entry.gold for entry in turned] == [1, 0, 2]
    assert turned[1].context.startswith("1. b\n2. c\n3. a\n") and turned[1].choices == (" 1", " 2", " 3")


def test_a_liking_for_a_place_is_told_from_knowing() -> None:
    definition = task("choice_order", {"bases": ["bracket_1"]}, limit=10)

    def first(text: str) -> float:
        return 1.0 if text.endswith(" 1") else 0.0

    def knowing(text: str) -> float:
        lines = dict(line.split(". ", 1) for line in text.splitlines() if ". " in line)
        return balance(lines[text[-1]]) if "Number" in text else balance(text)

    (result,) = run(subject(JudgingScorer(first)), definition)
    facts = result.facts()
    assert (result.value, facts["spread"], facts["consistent"]) == (0.5, 1.0, 0.0)
    assert facts["worst_group"] == {"group": "place 2", "value": 0.0} and len(result.items) == 20
    (result,) = run(subject(JudgingScorer(knowing)), definition)
    facts = result.facts()
    assert (result.value, facts["spread"], facts["consistent"], facts["drop"]["value"]) == (1.0, 0.0, 1.0, 0.0)


def test_a_search_finds_what_one_draw_does_not_and_keeps_to_its_bound() -> None:
    def fragile(text: str) -> float:
        return -balance(text) if text.startswith("---") else balance(text)

    settings = {"bases": ["bracket_1"], "rounds": 3, "candidates": 5}
    definition = task("worst_case", settings, limit=30)
    scorer = JudgingScorer(fragile)
    (result,) = run(subject(scorer), definition)
    facts = result.facts()
    assert facts["clean"] == 1.0 and 0 < result.value < 1
    assert facts["queries"] <= 30 * 3 * 5 and len(scorer.asked) == 2 * (30 + facts["queries"])
    assert all(item.evidence.startswith("---") for item in result.items if not item.score)
    single = task("perturbed", {"bases": ["bracket_1"], "perturbation": "paraphrase"}, limit=30)
    (once,) = run(subject(JudgingScorer(fragile)), single)
    assert result.value < once.value
    (robust,) = run(subject(JudgingScorer(balance)), definition)
    assert robust.value == 1.0 and robust.facts()["drop"]["value"] == 0.0
    assert [item.prompt_hash for item in robust.items] == [item.prompt_hash for item in result.items]


def test_rare_text_is_that_of_small_domains_and_of_rare_words() -> None:
    def judge(text: str) -> float:
        return -8.0 * len(text.encode()) if "quokka" in text else -4.0 * len(text.encode())

    judged = subject(JudgingScorer(judge), HELDOUT)
    for kind in ("rare_domains", "rare_words"):
        (result,) = run(
            judged, task("rare_text", {"kind": kind}, limit=9, metric="bits_per_byte", higher_is_better=False)
        )
        facts = result.facts()
        assert {item.group for item in result.items} == {"small"} and len(result.items) == 4
        assert result.value == pytest.approx(8 / 0.6931471805599453) and facts["drop"]["value"] > 0
        assert facts["clean"] == pytest.approx(4 / 0.6931471805599453) and facts["worst_group"]["group"] == "small"
        assert all(item.weight == len(dict(HELDOUT["small"])[item.cluster.split("/")[1]]) for item in result.items)
    definition = task("rare_text", {"kind": "rare_domains"})
    suite = Suite(name="mine", axis="long_tail", version=1, tasks=(definition,))
    alone = subject(JudgingScorer(judge), {"large": HELDOUT["large"]})
    assert "fewer than two domains" in run_suites(alone, [suite]).skipped["mine"]


def test_every_request_at_the_boundary_is_answered_and_faults_are_named() -> None:
    definition = task("boundary", {}, limit=1000)

    class Broken(BigramModel):
        """Gives no numbers for a full context."""

        def logits(self, tokens, keep):
            found = super().logits(tokens, keep)
            return found * float("nan") if tokens.shape[1] == self.max_length else found

    class Forgetful(Utf8):
        def encode(self, text: str) -> list[int]:
            if "\ufeff" in text:
                raise ValueError("a byte order mark")
            return super().encode(text)

    def scored(model: BigramModel) -> Scorer:
        return Scorer(model, prefix_token=END, batch_tokens=512)

    (whole,) = run(subject(scored(BigramModel(Utf8.size, max_length=64))), definition)
    assert whole.value == 1.0 and whole.facts()["failed_groups"] == []
    refused = [item for item in whole.items if item.group == "no Unicode"]
    assert len(refused) == 2 and all("refused: UnicodeEncodeError" in item.evidence for item in refused)
    (broken,) = run(subject(scored(Broken(Utf8.size, max_length=64))), definition)
    failed = broken.facts()["failed_groups"]
    assert "length of the context" in failed and "empty" not in failed and "one token" not in failed
    assert all("nan" in item.evidence for item in broken.items if not item.score)
    assert [item.prompt_hash for item in broken.items] == [item.prompt_hash for item in whole.items]


def test_a_context_that_is_too_long_to_be_filled_is_left_alone() -> None:
    long = BigramModel(Utf8.size, max_length=100_000)
    (result,) = run(subject(Scorer(long, prefix_token=END)), task("boundary", {}, limit=1000))
    assert result.value == 1.0 and not any("context" in item.group for item in result.items)
    assert max(len(row) for row in long.inputs) < 1000


def test_every_base_stands_at_every_position() -> None:
    bases = ["bracket_1", "indent", "quote"]
    judged = subject(JudgingScorer(balance, max_length=300), HELDOUT)
    (result,) = run(judged, task("long_context", {"bases": bases}, limit=18))
    for base in bases:
        groups = [item.group for item in result.items if item.cluster.startswith(f"{base}/")]
        assert len(groups) == 6 and len(set(groups)) == 3


def test_a_tokenizer_that_puts_a_start_token_puts_it_once() -> None:
    class Starting(Utf8):
        def encode(self, text: str) -> list[int]:
            return [END, *super().encode(text)]

    model = BigramModel(Utf8.size, max_length=96)
    scorer = Scorer(model, prefix_token=END, always_prefix=False)
    judged = replace(subject(scorer, HELDOUT), tokenizer=Starting())
    boundary, late = run(judged, task("boundary", {}), task("long_context", {"bases": ["bracket_1"]}, name="late"))
    assert boundary.value == 1.0, boundary.facts()["failed_groups"]
    unpadded = ["".join(map(chr, row)).rstrip(chr(END)) for row in model.inputs]
    assert len(unpadded) > 100 and not any(chr(END) in row[1:] for row in unpadded)
    assert {item.group for item in late.items} == {f"{position} of the context" for position in (0.3, 0.6, 0.9)}


def test_a_task_of_lm_eval_can_be_a_base_and_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(kind: str) -> SimpleNamespace:
        return SimpleNamespace(
            OUTPUT_TYPE=kind,
            multiple_input=0,
            multiple_target=0,
            eval_docs=[{"n": n} for n in range(5)],
            config=SimpleNamespace(target_delimiter=" "),
            doc_to_text=lambda doc: f"Question {doc['n']}:",
            doc_to_choice=lambda doc: ["yes", "no"],
            doc_to_target=lambda doc: doc["n"] % 2,
        )

    kinds = iter(["multiple_choice", "generate_until"])
    fake = SimpleNamespace(
        lm_eval_tasks=lambda: None, load_task=lambda manager, name: {"tasks": {name: made(next(kinds))}}
    )
    monkeypatch.setitem(sys.modules, "eval.harness.tasks", fake)
    monkeypatch.setitem(sys.modules, "eval.harness", SimpleNamespace(tasks=fake))
    definition = task("perturbed", {"bases": ["lm_eval/some"], "perturbation": "typos"}, limit=3)
    found = read_questions(definition, ["lm_eval/some"], subject(JudgingScorer(balance)))
    assert [(entry.question.context, entry.question.choices, entry.question.gold) for entry in found] == [
        (f"Question {n}:", (" yes", " no"), n % 2) for n in range(3)
    ]
    with pytest.raises(InputError, match="lm_eval/some: only a task with one context"):
        read_questions(definition, ["lm_eval/some"], subject(JudgingScorer(balance)))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bases": ["brackets"], "perturbation": "typos"}, "no generator 'brackets'; there are .*bracket_1"),
        ({"bases": ["bracket_1", "bracket_1"], "perturbation": "typos"}, "stands twice"),
        ({"bases": ["bracket_1"], "perturbation": "typo"}, "perturbation"),
        ({"bases": [], "perturbation": "typos"}, "bases"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        task("perturbed", settings)
    with pytest.raises(ValueError, match="positions lie above 0"):
        task("long_context", {"bases": ["bracket_1"], "positions": [0.0]})


def test_the_shipped_suite_runs_and_its_facts_can_be_written() -> None:
    rng = random.Random(0)
    words = [f"{first}{last}" for first in ("coun", "val", "tre", "lin", "gre") for last in ("ts", "ues", "es", "ens")]
    heldout = {
        domain: [
            (f"{domain}{i}", " ".join(f"The {' '.join(rng.sample(words, 9))}." for _ in range(9))) for i in range(n)
        ]
        for domain, n in (("a", 20), ("b", 3))
    }
    judged = subject(Scorer(BigramModel(Utf8.size, max_length=96), prefix_token=END), heldout)
    suite = load_suite("long_tail")
    small = suite.model_copy(
        update={"tasks": tuple(entry.model_copy(update={"limit": min(entry.limit, 12)}) for entry in suite.tasks)}
    )
    first, again = (run_suites(judged, [small]) for _ in range(2))
    assert first.skipped == {} and len(first.tasks) == len(suite.tasks)
    facts = [{result.definition.name: result.facts() for result in results.tasks} for results in (first, again)]
    assert json.dumps(facts[0], allow_nan=False) == json.dumps(facts[1]), "the same every time"
    for result in first.tasks:
        assert len({item.item for item in result.items}) == len(result.items)
        assert not result.measured


def test_bases_take_turns() -> None:
    found = read_questions(
        task("choice_order", {"bases": ["bracket_1", "indent"]}, limit=5),
        ["bracket_1", "indent"],
        subject(JudgingScorer(balance)),
    )
    assert [entry.item for entry in found] == list(range(5))
    assert [entry.question.base for entry in found] == list(
        itertools.islice(itertools.cycle(["bracket_1", "indent"]), 5)
    )
    with pytest.raises(Skipped, match="word_order"):
        read_questions(task("choice_order", {"bases": ["word_order"]}), ["word_order"], subject(JudgingScorer(balance)))
