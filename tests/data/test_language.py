from data.language import UNKNOWN, identify

TEXTS = {
    "en": "The river was wide and slow, and nobody in the village remembered a time when it had been otherwise.",
    "de": "Der Fluss war breit und langsam, und niemand im Dorf erinnerte sich an eine Zeit, in der es anders war.",
    "fr": "La rivière était large et lente, et personne au village ne se souvenait d'un temps où il en fut autrement.",
    "ru": "Река была широкой и медленной, и никто в деревне не помнил, чтобы когда-нибудь было иначе.",
    "zh": "河水宽阔而缓慢，村里没有人记得它曾经是别的样子。",
    "ja": "川は広くてゆっくりと流れ、村の誰もそうでなかった時代を覚えていなかった。",
    "ar": "كان النهر واسعا وبطيئا، ولم يتذكر أحد في القرية زمنا كان فيه غير ذلك.",
}


def test_languages_are_known() -> None:
    assert identify(list(TEXTS.values())) == list(TEXTS)


def test_lines_are_read_as_one() -> None:
    assert identify([TEXTS["de"].replace(" ", "\n")]) == ["de"]


def test_only_the_beginning_is_looked_at() -> None:
    assert identify([TEXTS["fr"] * 12 + TEXTS["en"] * 100]) == ["fr"]


def test_what_is_no_language_is_unknown() -> None:
    assert identify(["", " \n\t", "12 34 56", "\0", "x"]) == [UNKNOWN] * 5
    assert identify(["a lone surrogate \ud83d is no reason to fail"])[0] in ("en", UNKNOWN)
    assert identify([]) == []
