"""The kernels of the quality measures against plain Python."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data.quality.judgement import judge, measures
from data.quality.rules import Preset, QualityRules
from tests.data.quality import quality_reference as reference

FOUR = QualityRules(presets=(Preset.GOPHER_QUALITY, Preset.GOPHER_REPETITION, Preset.C4, Preset.FINEWEB))


def column(*texts: str) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def units(text: str) -> list[str]:
    """The units of one line as the kernel cuts them."""
    from data.quality.characters import character_classes
    from data.quality.word_measures import NUM_TOTALS, scan_line

    values = np.frombuffer(text.encode(), np.uint8)
    hashes, ends = np.zeros(len(values), np.uint64), np.zeros(len(values) + 1, np.int64)
    totals = np.zeros(NUM_TOTALS, np.int64)
    n, *_ = scan_line(values, 0, len(values), character_classes(), hashes, ends, 0, totals)
    found, rest = [], text
    for size in np.diff(ends[: n + 1]):
        rest = rest.lstrip()
        found.append(rest[:size])
        rest = rest[size:]
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The quick (brown) fox, isn't it?", "The quick ( brown ) fox , isn 't it ?"),
        ("It’s 3.14 or 1,000 at example.com...", "It ’s 3.14 or 1,000 at example.com ..."),
        ("Mr. Smith of the U.S. met J. Doe, e.g. here.", "Mr. Smith of the U.S. met J. Doe , e.g. here ."),
        ("A well-known and/or 4-7 o'clock", "A well - known and / or 4 - 7 o'clock"),
        ("see https://a.b/c-d/e?f=g, or -5 in /usr in C++", "see https://a.b/c-d/e?f=g , or -5 in /usr in C++"),
        ("one—two end.Begin ==== !! $5", "one — two end . Begin ==== ! ! $ 5"),
        ("café naïve Привет हिन्दी", "café naïve Привет हिन्दी"),
        ("図書館ーは。", "図 書 館ー は 。"),
        ("ที่นี่", "ที่ นี่"),
        ("한국어 문장.", "한국어 문장 ."),
    ],
)
def test_a_line_is_cut_into_words_and_marks(text, expected):
    assert units(text) == expected.split(" ") == reference.units(text).texts


WORDS = "a bb the The be é ß 한글 図 ーの ที่ े 1 23 Mr. e.g. don't x's é. javascript Lorem privacy policy cookies"
MARKS = "# . .. ... … , ; : :// ' ’ “ ” - -- — – / = == < _ $ ( ) [ ] [3] [edit] { • | @ ! ?! 。 ؟ © ¶ 🙂"
SPACES = [" ", "  ", "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u2028", "\u200d"]
PHRASES = ["lorem ipsum", "Privacy Policy", "uses cookies", "a b c d e f", "One two three.", "the end of it all."]
PIECES = st.sampled_from([*WORDS.split(" "), *MARKS.split(" "), *SPACES, *PHRASES, "x" * 70, "yy " * 30])
TEXTS = st.lists(st.one_of(PIECES, st.just(" ")), max_size=80).map("".join)


@given(st.lists(st.one_of(TEXTS, st.text(max_size=60)), min_size=1, max_size=4))
@settings(max_examples=250, deadline=None)
@example(["... ."])
@example(["--#...#"])
@example(["-/^-+!x -/^-+.x -/..+x a-/!x"])
@example(["a" * 64 + "b c", "a" * 63 + " b", "x" * 129])
@example(["one two three. [1]\n\n[2] one [3].\n \none two three. [1]"])
def test_measures_are_those_of_the_reference(texts):
    measured = measures(column(*texts))
    for i, text in enumerate(texts):
        expected = reference.measures(text)
        assert {name: found[i] for name, found in measured.items()} == pytest.approx(expected), text


@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "cc", "d.", "e"]), max_size=60).map(" ".join), min_size=1, max_size=3)
)
@settings(max_examples=100, deadline=None)
def test_shares_below_their_bounds_may_be_left_out_but_no_verdict_changes(texts):
    measured, verdict = measures(column(*texts)), judge(column(*texts), ["en"] * len(texts), FOUR)
    for i in range(len(texts)):
        broken = [
            k
            for k, rule in enumerate(FOUR.rules)
            if (
                measured[rule.measure][i] < rule.bound
                if rule.kind == "least"
                else measured[rule.measure][i] > rule.bound
            )
        ]
        assert verdict.rule[i] == (broken[0] if broken else -1)
        if broken:
            assert verdict.value[i] == measured[FOUR.rules[broken[0]].measure][i]


SENTENCES = st.sampled_from(
    [
        "One two three.",
        "It is so [1] [2]",
        "Said he [12].",
        "a b.",
        "We use cookies here.",
        "JavaScript is off now.",
        "Yes it is!",
    ]
    + [
        'He said "so it is"',
        "and so on...",
        "- a list of things",
        "x" * 1001 + " y z.",
        "",
        "  ",
        "Two of them. And more? Yes.",
    ]
)


@given(st.lists(st.lists(SENTENCES, max_size=12).map("\n".join), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_c4_leaves_the_lines_that_the_reference_leaves(texts):
    rules = QualityRules(presets=(Preset.C4,), language_rules={"en": {"least sentences in kept lines": 0}})
    before = column(*texts)
    verdict = judge(before, ["en"] * len(texts), rules)
    assert (verdict.rule == -1).all()
    assert verdict.texts.to_pylist() == [reference.edited(text) for text in texts]
    removed = [len(text.encode()) - len(reference.edited(text).encode()) for text in texts]
    assert verdict.removed_bytes.tolist() == removed
    assert (verdict.texts is before) == (not any(removed))


def test_many_distinct_lines_are_all_told_apart():
    lines = [f"line number {i}" for i in range(5000)]
    share = "share of repeated lines"
    assert measures(column("\n".join(lines)))[share][0] == 0
    assert measures(column("\n".join(lines + lines[:500])))[share][0] == pytest.approx(500 / 5500)


def test_measures_do_not_depend_on_the_neighbours_nor_on_the_place_in_a_column():
    texts = ["x " * 500, "", "a\nb\na\nb", "Ein Satz. " * 9, "図書館 " * 40, "y" * 200, "the end"]
    together = measures(column(*texts))
    window = measures(column("before", *texts, "behind").slice(1, len(texts)))
    for name, values in together.items():
        assert np.array_equal(values, window[name])
        assert np.array_equal(values, [measures(column(text))[name][0] for text in texts])


def test_a_text_of_more_units_than_are_held_is_measured_on_its_first_ones():
    from data.quality import repetition as quality_repetition

    distinct = " ".join(f"w{i}" for i in range(quality_repetition.ROOM))
    shares = measures(column(distinct + " again and again" * 1000))
    assert shares["share of the top 2-gram"][0] == shares["share of repeated 5-grams"][0] == 0
    assert shares["words"][0] == quality_repetition.ROOM + 3000


def test_a_long_run_of_marks_is_looked_through_once():
    """A look from each of its marks to its end would take hours."""
    measured = measures(column("-/" * 1_000_000 + "!a"))
    assert measured["words"].tolist() == [1]
