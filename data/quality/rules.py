"""Presets of quality rules: named bounds on the measures of data/quality/judgement.py. A value *at* a bound is kept.

`prose`, `technical` and `code` are this project's own. `gopher-quality` and `gopher-repetition` are the rules of Rae et
al. 2021 (section A.1.1, table A1), `c4` those of Raffel et al. 2020 (section 2.2), `fineweb` the custom filters of
Penedo et al. 2024 (section 3.6).
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Literal

from data.errors import InputError


class Preset(StrEnum):
    """Which rules a source's text is judged by. AUTO is the domain's own for python-environment, and prose for
    everything else."""

    AUTO = "auto"
    PROSE = "prose"
    TECHNICAL = "technical"
    CODE = "code"
    GOPHER_QUALITY = "gopher-quality"
    GOPHER_REPETITION = "gopher-repetition"
    C4 = "c4"
    FINEWEB = "fineweb"
    NONE = "none"


@dataclass(frozen=True)
class Rule:
    """A bound on one measure. `kind` "least": a smaller value is dropped; "most": a larger one is.

    scope: the languages that the rule is for: every one, those of data/quality/languages.py and of the recipe, or
    English alone.
    """

    measure: str
    kind: Literal["least", "most"]
    bound: float
    scope: Literal["every", "covered", "english"] = "covered"

    @property
    def name(self) -> str:
        return f"{self.kind} {self.measure}"


def _repetition(
    lines: float, line_text: float, top: Sequence[float], repeated: Mapping[int, float]
) -> tuple[Rule, ...]:
    """Bounds on repetition; top: for n = 2, 3, 4. repeated: by n."""
    return (
        Rule("share of repeated lines", "most", lines),
        Rule("share of text in repeated lines", "most", line_text),
        *(Rule(f"share of the top {n}-gram", "most", bound) for n, bound in enumerate(top, 2)),
        *(Rule(f"share of repeated {n}-grams", "most", bound) for n, bound in repeated.items()),
    )


def _of_every_language(*rules: Rule) -> tuple[Rule, ...]:
    """Rules for text that a language cannot be told of: code, tables of functions."""
    return tuple(replace(rule, scope="every") for rule in rules)


RULES: Mapping[Preset, tuple[Rule, ...]] = {
    Preset.PROSE: (
        Rule("words", "least", 30),
        Rule("words", "most", 100_000),
        Rule("mean word length", "least", 3.0),
        Rule("mean word length", "most", 10.0),
        Rule("hash marks per unit", "most", 0.1),
        Rule("ellipses per unit", "most", 0.1),
        Rule("share of words with a letter", "least", 0.8),
        Rule("share of lines with a bullet", "most", 0.9),
        Rule("share of lines ending in an ellipsis", "most", 0.3),
        *_repetition(0.3, 0.2, (0.20, 0.18, 0.16), {5: 0.20, 10: 0.10}),
    ),
    Preset.TECHNICAL: _of_every_language(
        Rule("words", "least", 20),
        Rule("mean word length", "least", 2.0),
        Rule("mean word length", "most", 20.0),
        Rule("share of words with a letter", "least", 0.4),
        *_repetition(0.5, 0.5, (0.3,), {10: 0.5}),
    ),
    Preset.CODE: _of_every_language(
        Rule("words", "least", 10),
        Rule("characters of the longest line", "most", 1000),
        Rule("mean characters of a line", "most", 100),
        Rule("share of letters and digits", "least", 0.25),
        Rule("share of words with a letter", "least", 0.3),
        Rule("share of text in repeated lines", "most", 0.7),
    ),
    Preset.GOPHER_QUALITY: (
        Rule("words", "least", 50),
        Rule("words", "most", 100_000),
        Rule("mean word length", "least", 3.0),
        Rule("mean word length", "most", 10.0),
        Rule("hash marks per unit", "most", 0.1),
        Rule("ellipses per unit", "most", 0.1),
        Rule("share of lines with a bullet", "most", 0.9),
        Rule("share of lines ending in an ellipsis", "most", 0.3),
        Rule("share of units with a letter", "least", 0.8),
        Rule("distinct stop words", "least", 2, scope="english"),
    ),
    Preset.GOPHER_REPETITION: (
        Rule("share of repeated paragraphs", "most", 0.3),
        Rule("share of text in repeated paragraphs", "most", 0.2),
        *_repetition(0.3, 0.2, (0.20, 0.18, 0.16), {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}),
    ),
    Preset.C4: (
        Rule("kept lines with lorem ipsum", "most", 0, scope="english"),
        Rule("kept lines with a curly bracket", "most", 0, scope="english"),
        Rule("sentences in kept lines", "least", 5, scope="english"),
    ),
    Preset.FINEWEB: (
        Rule("share of lines ending in punctuation", "least", 0.12),
        Rule("share of short lines", "most", 0.67),
        Rule("share of text in repeated lines", "most", 0.01),
        Rule("newlines per unit", "most", 0.3),
    ),
    Preset.NONE: (),
}

DOMAIN_PRESETS: Mapping[str, Preset] = {
    "reference": Preset.TECHNICAL,
    "code": Preset.CODE,
    "readme": Preset.TECHNICAL,
    "licence": Preset.TECHNICAL,
}

RULE_NAMES = frozenset(rule.name for rules in RULES.values() for rule in rules)
UNCOVERED = "quality: no rules for the language"


def resolve(chosen: Preset | Sequence[Preset], own: Preset) -> tuple[Preset, ...]:
    """The presets that a source's documents are judged by: `own` in place of AUTO, without NONE and without doubles.
    Raises InputError if AUTO or NONE stands beside others."""
    presets = tuple(dict.fromkeys(map(Preset, (chosen,) if isinstance(chosen, str) else chosen)))
    if len(presets) > 1 and {Preset.AUTO, Preset.NONE} & set(presets):
        raise InputError(f'quality = {[str(p) for p in presets]}: "auto" and "none" stand alone; take them out')
    presets = tuple(own if preset is Preset.AUTO else preset for preset in presets)
    return tuple(preset for preset in presets if preset is not Preset.NONE)


@dataclass(frozen=True, kw_only=True)
class QualityRules:
    """What documents are judged by.

    presets: those of `resolve`; where two bound the same measure in the same direction, the stricter bound holds.
    language_rules: by language, bounds by rule name, which replace those of the presets; a language that stands here
    counts as covered. uncovered: what happens to a document whose language no rule covers.
    """

    presets: tuple[Preset, ...]
    language_rules: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    uncovered: Literal["keep", "drop"] = "keep"

    def __post_init__(self) -> None:
        for language, bounds in self.language_rules.items():
            for name in bounds:
                if name not in RULE_NAMES:
                    near = difflib.get_close_matches(name, RULE_NAMES, 1)
                    hint = f"did you mean {near[0]!r}?" if near else f"the names are {', '.join(sorted(RULE_NAMES))}"
                    raise InputError(f"language_rules.{language}: there is no rule {name!r}; {hint}")

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of all presets, in their order."""
        found: dict[str, Rule] = {}
        for preset in self.presets:
            for rule in RULES[preset]:
                known = found.setdefault(rule.name, rule)
                stricter = rule.bound > known.bound if rule.kind == "least" else rule.bound < known.bound
                if stricter:
                    found[rule.name] = rule
        return tuple(found.values())

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The reason of each index of `Verdict.rule`; the last is that of an uncovered language."""
        return (*(f"quality: {rule.name}" for rule in self.rules), UNCOVERED)

    @cached_property
    def bounds(self) -> tuple[float, ...]:
        """The presets' bound of each index of `Verdict.rule`; what held for one document is in `Verdict.bound`."""
        return (*(rule.bound for rule in self.rules), 0.0)
