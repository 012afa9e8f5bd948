"""What the rules keep and drop: by preset, at each bound, by language."""

import math
import pickle
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.errors import InputError
from data.quality.judgement import judge, measures
from data.quality.rules import RULES, UNCOVERED, Preset, QualityRules, Rule, resolve
from tests.data.quality.quality_texts import CODE, PARAGRAPHS, clean_english, text_with

EVERY_RULE = sorted({rule for rules in RULES.values() for rule in rules}, key=lambda rule: (rule.name, rule.bound))
MULTILINGUAL = Path(__file__).parents[4] / "shared" / "data" / "multilingual" / "sentences-75-languages.parquet"
PUBLISHED = (Preset.GOPHER_QUALITY, Preset.GOPHER_REPETITION, Preset.C4, Preset.FINEWEB)


def column(*texts: str) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def rules_of(*presets: Preset, **settings) -> QualityRules:
    return QualityRules(presets=presets, **settings)


def broken(text: str, rules: QualityRules, language: str | None = None) -> str | None:
    """The name of the first rule that a text breaks."""
    verdict = judge(column(text), None if language is None else [language], rules)
    return rules.names[verdict.rule[0]] if verdict.rule[0] >= 0 else None


@pytest.mark.parametrize("preset", [p for p in Preset if p not in (Preset.AUTO, Preset.NONE, Preset.CODE, Preset.C4)])
def test_the_same_clean_paragraph_is_kept_in_every_language(preset):
    """Its line of 300 characters stands twice in no text, ends in a stop where the language has one, and is long."""
    looser = {"least words": 10.0}
    rules = rules_of(preset, language_rules=dict.fromkeys(PARAGRAPHS, looser))
    verdict = judge(column(*PARAGRAPHS.values()), list(PARAGRAPHS), rules)
    assert {code: rules.names[rule] for code, rule in zip(PARAGRAPHS, verdict.rule, strict=True) if rule >= 0} == {}
    assert verdict.judged.all()


def test_the_same_clean_paragraph_is_kept_without_languages():
    for languages in (None, [""] * len(PARAGRAPHS)):
        verdict = judge(column(*PARAGRAPHS.values()), languages, rules_of(Preset.PROSE))
        assert (verdict.rule == -1).all() and verdict.judged.all()


@pytest.mark.skipif(not MULTILINGUAL.is_file(), reason="the texts in 75 languages are not here")
def test_no_language_is_wiped_out():
    """Texts of ten sentences; what is dropped repeats itself, most of it in Urdu."""
    table = pq.read_table(MULTILINGUAL, columns=["text", "lang"]).to_pylist()
    sentences: dict[str, list[str]] = defaultdict(list)
    for row in table:
        sentences[row["lang"]].append(row["text"])
    texts = [(code, "\n".join(own[i : i + 10])) for code, own in sentences.items() for i in range(0, len(own) - 9, 10)]
    languages = [code for code, _ in texts]
    for preset in (Preset.PROSE, *PUBLISHED):
        verdict = judge(column(*(text for _, text in texts)), languages, rules_of(preset))
        kept: dict[str, list[bool]] = defaultdict(list)
        for language, rule in zip(languages, verdict.rule, strict=True):
            kept[language].append(rule < 0)
        rates = {language: np.mean(own) for language, own in kept.items()}
        assert min(rates.values()) >= 0.5, (preset, rates)
        assert np.mean(list(rates.values())) >= 0.97, (preset, rates)


def test_rules_for_english_say_nothing_of_other_languages():
    foreign = "Ein Satz ohne jedes englische Wort steht hier, und noch einer. " * 2 + "\nZeile ohne Punkt"
    rules = rules_of(Preset.C4)
    verdict = judge(column(foreign, foreign), ["de", "en"], rules)
    assert verdict.rule.tolist() == [-1, rules.names.index("quality: least sentences in kept lines")]
    assert verdict.judged.tolist() == [False, True]
    assert broken(foreign * 5, rules_of(Preset.GOPHER_QUALITY), "en") == "quality: least distinct stop words"
    assert broken(foreign * 5, rules_of(Preset.GOPHER_QUALITY), "de") is None


def test_without_languages_rules_for_english_hold_for_text_in_ascii_letters():
    rules = rules_of(Preset.C4)
    assert broken("No end of a sentence here", rules) == "quality: least sentences in kept lines"
    assert broken(PARAGRAPHS["ru"], rules) is None
    assert broken("No end of a sentence here", rules, "") is None  # looked for, and not known


@pytest.mark.parametrize("uncovered", ["keep", "drop"])
def test_a_language_that_no_rule_covers_is_kept_or_dropped_as_told(uncovered):
    texts, languages = column("short", "short", "short"), ["en", "tlh", "qq"]
    rules = rules_of(Preset.PROSE, uncovered=uncovered, language_rules={"qq": {"least words": 1}})
    verdict = judge(texts, languages, rules)
    reasons = [rules.names[rule] if rule >= 0 else None for rule in verdict.rule]
    assert reasons == ["quality: least words", UNCOVERED if uncovered == "drop" else None, None]
    assert verdict.judged.tolist() == [True, False, True]


def test_code_and_tables_are_judged_whatever_their_language_is_taken_for():
    for preset in (Preset.CODE, Preset.TECHNICAL):
        verdict = judge(column("x = 1", CODE), ["tlh", "tlh"], rules_of(preset, uncovered="drop"))
        assert verdict.judged.all() and verdict.rule.tolist() == [0, -1]


def test_a_text_in_a_script_without_spaces_is_judged_by_its_script_whatever_its_language():
    for language in ("zh", "en", "", "ru"):
        assert broken(PARAGRAPHS["zh"], rules_of(Preset.PROSE), language) is None
    assert broken("一二三四五。" * 60, rules_of(Preset.PROSE), "zh") is not None


def test_bounds_of_a_language_replace_those_of_the_preset():
    text = clean_english(40)
    rules = rules_of(Preset.PROSE, language_rules={"en": {"least words": 41}})
    verdict = judge(column(text, text), ["en", "fr"], rules)
    assert verdict.rule.tolist() == [0, -1] and verdict.bound.tolist() == [41, 0] and verdict.value.tolist() == [40, 0]
    assert rules.bounds[0] == 30


def test_bounds_of_the_library_for_a_language_are_never_stricter_than_the_preset():
    long = " ".join(["Donaudampfschifffahrt", "Gesellschaft", "Kapitän"] * 12)
    assert broken(long, rules_of(Preset.TECHNICAL), "fi") != "quality: most mean word length"


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: f"{rule.name}-{rule.bound:g}")
def test_a_value_at_a_bound_is_kept_and_beyond_it_dropped(rule):
    """Each text has a known value; the bound is put below it, at it, and above it."""
    text, value = text_with(rule.measure)
    found = float(measures(column(text))[rule.measure][0])
    assert found == pytest.approx(value, abs=1e-12) and found > 0

    def verdict(bound: float) -> bool:
        """Whether the text is dropped by this rule at that bound."""
        preset = next(preset for preset, rules in RULES.items() if rule in rules)
        rules = rules_of(preset, language_rules={"en": {**unbounded(preset), rule.name: bound}})
        judged = judge(column(text), ["en"], rules)
        reason = rules.names[judged.rule[0]] if judged.rule[0] >= 0 else None
        assert reason in (None, f"quality: {rule.name}")
        assert reason is None or judged.value[0] == found and judged.bound[0] == bound
        return reason is not None

    below, above = np.nextafter(found, -math.inf), np.nextafter(found, math.inf)
    expected = (False, False, True) if rule.kind == "least" else (True, False, False)
    assert (verdict(below), verdict(found), verdict(above)) == expected


def unbounded(preset: Preset) -> dict[str, float]:
    """Bounds that nothing breaks."""
    return {rule.name: -1.0 if rule.kind == "least" else math.inf for rule in RULES[preset]}


def test_digits_only_is_dropped_for_prose():
    digits = " ".join(f"{i:05}" for i in range(200))
    assert broken(digits, rules_of(Preset.PROSE)) == "quality: least share of words with a letter"


@pytest.mark.parametrize(("letters", "kept"), [(79, False), (80, True), (81, True)])
def test_the_share_of_words_with_a_letter_is_a_least_one(letters, kept):
    text = " ".join([f"{'abcdefghij'[i % 10]}{'klmnopqrst'[i // 10]}x" for i in range(letters)])
    text += " " + " ".join(f"{i:03}" for i in range(100 - letters))
    assert (broken(text, rules_of(Preset.PROSE)) is None) == kept


def test_code_is_not_judged_by_rules_for_prose():
    assert broken(CODE, rules_of(Preset.PROSE)) is not None
    assert broken(CODE, rules_of(Preset.CODE)) is None and broken(CODE, rules_of()) is None
    line = "data = '" + "ab12" * 300 + "'\n"
    assert broken(line + CODE, rules_of(Preset.CODE)) == "quality: most characters of the longest line"


def test_boilerplate_that_repeats_is_dropped_with_the_measured_value():
    rules = rules_of(Preset.GOPHER_REPETITION)
    verdict = judge(column("Click here to subscribe to our newsletter today. " * 40), ["en"], rules)
    assert "gram" in rules.names[verdict.rule[0]] and verdict.value[0] > verdict.bound[0]


def test_clean_english_passes_all_published_rules_and_loses_the_lines_that_c4_does_not_want():
    text = clean_english(120)
    whole = f"Menu\n{text}\nEnable JavaScript to read on, please.\nTerms of use apply to all of this."
    verdict = judge(column(text, whole, "too short"), ["en"] * 3, rules_of(*PUBLISHED))
    assert verdict.rule.tolist() == [-1, -1, 0]
    assert verdict.texts.to_pylist() == [text, text, "too short"]
    assert verdict.removed_bytes.tolist() == [0, len(whole) - len(text), 0]


def test_of_two_presets_the_stricter_bound_holds():
    rules = rules_of(Preset.GOPHER_REPETITION, Preset.FINEWEB)
    (bound,) = [
        bound for name, bound in zip(rules.names, rules.bounds, strict=True) if "text in repeated lines" in name
    ]
    assert bound == 0.01
    assert len(set(rules.names)) == len(rules.names) == len(rules.bounds)


def test_every_rule_of_every_preset_has_a_measure():
    measured = measures(column("x"))
    for preset, rules in RULES.items():
        assert len({rule.name for rule in rules}) == len(rules), preset
        assert all(rule.measure in measured for rule in rules)


def test_presets_of_a_source():
    assert resolve("auto", Preset.CODE) == (Preset.CODE,) and resolve(Preset.NONE, Preset.CODE) == ()
    assert resolve([Preset.C4, Preset.FINEWEB, Preset.C4], Preset.PROSE) == (Preset.C4, Preset.FINEWEB)
    with pytest.raises(InputError, match="stand alone"):
        resolve([Preset.AUTO, Preset.C4], Preset.PROSE)


def test_an_unknown_rule_of_a_language_is_refused_with_a_suggestion():
    with pytest.raises(
        InputError, match="language_rules.de: there is no rule 'least word'; did you mean 'least words'"
    ):
        rules_of(Preset.PROSE, language_rules={"de": {"least word": 3}})


def test_rules_travel_between_processes_and_columns_of_no_text_are_fine():
    rules = pickle.loads(pickle.dumps(rules_of(*PUBLISHED)))
    assert rules.names == rules_of(*PUBLISHED).names
    for languages in (None, [], pa.array([], pa.string())):
        verdict = judge(column(), languages, rules)
        assert len(verdict.rule) == len(verdict.judged) == len(verdict.texts) == 0
    assert judge(column(""), ["en"], rules).rule.tolist() == [0]


def test_languages_may_be_any_arrow_column():
    texts = column(clean_english(40), "short", clean_english(60))
    plain = judge(texts, ["en", "de", ""], rules_of(Preset.PROSE))
    for languages in (pa.array(["en", "de", ""]), pa.array(["en", "de", ""]).dictionary_encode()):
        assert np.array_equal(judge(texts, languages, rules_of(Preset.PROSE)).rule, plain.rule)


def test_a_rule_is_named_by_its_direction():
    assert Rule("words", "least", 3).name == "least words"
