"""Codes of languages in a recipe: those that the identifier gives, and a message that names the right one."""

import pytest
from pydantic import ValidationError

from data.language.fasttext_file import read_fasttext
from data.language.identification import model_path
from data.quality.languages import LANGUAGE_BOUNDS
from stages.curate import CurateConfig
from stages.curate.languages import CODE_OF, CODES


def test_the_codes_are_those_of_the_model():
    assert set(read_fasttext(model_path()).labels) == CODES


def test_every_other_way_to_write_a_code_leads_to_one():
    assert set(CODE_OF.values()) <= CODES and not CODES & set(CODE_OF) and len(set(CODE_OF.values())) >= 30


def test_languages_with_rules_of_their_own_can_be_named():
    CurateConfig(languages=(*sorted(set(LANGUAGE_BOUNDS) & CODES), "unknown"))


@pytest.mark.parametrize(
    ("written", "code"),
    [("deu", "de"), ("ger", "de"), ("DE", "de"), ("pt-BR", "pt"), ("zh_CN", "zh"), ("Cmn", "zh"), ("nb", "no")],
)
def test_a_code_that_is_written_otherwise_is_named(written, code):
    with pytest.raises(ValidationError, match=f"'{written}' is no code that a document can have; write '{code}'"):
        CurateConfig(languages=("en", written))
    with pytest.raises(ValidationError, match=f"write '{code}'"):
        CurateConfig(language_rules={written: {"least words": 3}})


@pytest.mark.parametrize("written", ["xx", "english", "", "Unknown"])
def test_a_code_of_no_language_is_refused(written):
    with pytest.raises(
        ValidationError, match=f"'{written}' is unknown to the identifier of languages; it knows af, .*"
    ):
        CurateConfig(languages=(written,))


def test_no_rules_can_be_given_for_texts_of_no_known_language():
    with pytest.raises(ValidationError, match="'unknown' is unknown to the identifier"):
        CurateConfig(language_rules={"unknown": {"least words": 3}})
