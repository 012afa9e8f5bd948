"""Which bounds a text is judged by, from its language and its script.

* The language is known: the presets' bounds, loosened by those of data/quality/languages.py, replaced by those of the
  recipe. Rules for English hold for English alone. If it is none of these languages, only rules for every language
  hold.
* It is not known, or more than 0.3 of the letters are of scripts without word spaces and the language is none of them:
  bounds for such scripts; where more than half of the letters are beyond ASCII, bounds that languages of all other
  scripts meet; else the presets' own. Rules for English hold for these last ones where no language is known of any
  text, as without language identification.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from data.quality.languages import ENGLISH, LANGUAGE_BOUNDS, OTHER_SCRIPT, SPACELESS, SPACELESS_LANGUAGES
from data.quality.rules import QualityRules, Rule

SPACELESS_SHARE = 0.3
OTHER_SCRIPT_SHARE = 0.5
_SPACELESS, _OTHER, _LATIN = -3, -2, -1


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Texts that are judged alike: one group for each language that occurs, then three for scripts.

    of_texts: int64[n], the group by language alone. bounds: float64[num_groups, num_rules], infinite where a rule says
    nothing. english, covered, spaceless: bool[num_groups]: whether rules for English hold, whether any rule does,
    whether the language has no word spaces.
    """

    rules: tuple[Rule, ...]
    of_texts: np.ndarray
    bounds: np.ndarray
    english: np.ndarray
    covered: np.ndarray
    spaceless: np.ndarray

    @classmethod
    def of(cls, languages: Sequence[str] | pa.Array | None, n: int, rules: QualityRules) -> "Groups":
        """languages: an ISO code of each of n texts, "" where it is not known; None where none is known."""
        array = pa.array([""] * n if languages is None else languages, None if n else pa.string())
        encoded = array if isinstance(array, pa.DictionaryArray) else array.dictionary_encode()
        codes = encoded.dictionary.to_pylist()
        english = np.array([code == ENGLISH for code in codes] + [False, False, languages is None])
        by_language = [_bounds_of_language(code, rules) for code in codes]
        by_script = [
            [_bound(rule, loosened, {}, "covered") for rule in rules.rules] for loosened in (SPACELESS, OTHER_SCRIPT)
        ]
        latin = [_bound(rule, {}, {}, "english" if languages is None else "covered") for rule in rules.rules]
        bounds = np.array([*by_language, *by_script, latin], np.float64).reshape(len(codes) + 3, len(rules.rules))
        known = np.array([code != "" for code in codes], bool)
        of_texts = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(
            rules=rules.rules,
            of_texts=np.where(known[of_texts], of_texts, len(codes) + 3 + _LATIN),
            bounds=bounds,
            english=english,
            covered=np.array([np.isfinite(row).any() for row in bounds]),
            spaceless=np.array([code in SPACELESS_LANGUAGES for code in codes] + [True, False, False]),
        )

    def limits(self) -> np.ndarray:
        """float64[num_groups, NUM_SHARES]: what `measure_repetition` need not look below. The script of a text shows
        only later, so that each group has the lowest bound of its own and of the scripts' groups."""
        from data.quality.repetition import share_names

        lowest = np.minimum(self.bounds, self.bounds[_SPACELESS:].min(axis=0))
        column = {rule.measure: k for k, rule in enumerate(self.rules)}
        nothing = np.full(len(lowest), np.inf)
        return np.stack([lowest[:, column[name]] if name in column else nothing for name in share_names()], axis=1)

    def by_script(self, measured: Mapping[str, np.ndarray]) -> np.ndarray:
        """int64[n]: the group of each text, by language and script."""
        num_groups = len(self.bounds)
        group = self.of_texts.copy()
        beyond_ascii = measured["share of letters beyond ASCII"] > OTHER_SCRIPT_SHARE
        group[(group == num_groups + _LATIN) & beyond_ascii] = num_groups + _OTHER
        without_spaces = measured["share of letters without word spaces"] > SPACELESS_SHARE
        group[without_spaces & ~self.spaceless[group] & self.covered[group]] = num_groups + _SPACELESS
        return group


def _bounds_of_language(language: str, rules: QualityRules) -> list[float]:
    """The bound of each rule for a language."""
    own = rules.language_rules.get(language, {})
    if language not in LANGUAGE_BOUNDS and language not in rules.language_rules:
        return [_bound(rule, OTHER_SCRIPT, {}, "every") for rule in rules.rules]
    scope = "english" if language == ENGLISH else "covered"
    return [_bound(rule, LANGUAGE_BOUNDS.get(language, OTHER_SCRIPT), own, scope) for rule in rules.rules]


def _bound(rule: Rule, loosened: Mapping[str, float], own: Mapping[str, float], scope: str) -> float:
    """A rule's bound for texts that rules of `scope`, and of wider scopes, are for; infinite, so that nothing breaks
    it, if the rule is none of them."""
    if rule.name in own:
        return own[rule.name]
    scopes = {"every": ("every",), "covered": ("every", "covered"), "english": ("every", "covered", "english")}
    if rule.scope not in scopes[scope]:
        return -np.inf if rule.kind == "least" else np.inf
    other = loosened.get(rule.name, rule.bound)
    return min(rule.bound, other) if rule.kind == "least" else max(rule.bound, other)
