"""Language identification: the same answers as fastText's own program, right on real sentences, and a damaged model
is refused."""

import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data.errors import InputError
from data.language import fasttext_kernels, language_kernels
from data.language import identification as language
from data.language.fasttext_file import read_fasttext
from data.language.identification import (
    LEAST_CONFIDENCE,
    LOOKED_AT_CHARACTERS,
    UNKNOWN,
    identify,
    identify_column,
    model_path,
)
from data.reading.tables import text_buffers

MULTILINGUAL = Path(__file__).parents[4] / "shared" / "data" / "multilingual"
TEXTS = {
    "en": "The river was wide and slow, and nobody in the village remembered a time when it had been otherwise.",
    "de": "Der Fluss war breit und langsam, und niemand im Dorf erinnerte sich an eine Zeit, in der es anders war.",
    "fr": "La rivière était large et lente, et personne au village ne se souvenait d'un temps où il en fut autrement.",
    "ru": "Река была широкой и медленной, и никто в деревне не помнил, чтобы когда-нибудь было иначе.",
    "zh": "河水宽阔而缓慢，村里没有人记得它曾经是别的样子。",
    "ja": "川は広くてゆっくりと流れ、村の誰もそうでなかった時代を覚えていなかった。",
    "ar": "كان النهر واسعا وبطيئا، ولم يتذكر أحد في القرية زمنا كان فيه غير ذلك.",
}
# By number of speakers, first and second language, of those of which there are sentences.
LARGEST = tuple(
    language
    for line in ("en zh hi es fr ar bn pt ru ur id de ja mr te", "tr ta vi ko fa it th gu pl uk pa ro nl tl sw")
    for language in line.split()
)
ALPHABET = st.sampled_from("abc déñ .,\n\t\0'1ßЖш한글中文の、ไทهذ😀<>_")
STRINGS = st.one_of(st.text(ALPHABET, max_size=80), st.text(max_size=40))


def column(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


@cache
def library() -> Any:
    import fasttext

    return fasttext.load_model(str(model_path()))


def of_the_library(texts: list[str]) -> list[tuple[str, float]]:
    """(language, probability) of each text by fastText's program."""
    model = library()
    lines = [text[:LOOKED_AT_CHARACTERS].replace("\n", " ") for text in texts]
    found = [model.predict(line, k=1, threshold=0.0) for line in lines]
    return [(labels[0].removeprefix("__label__"), probabilities[0]) for labels, probabilities in found]


def require_equal(texts: list[str]) -> None:
    languages, confidences = identify_column(column(texts))
    for text, ours, confidence, (name, probability) in zip(
        texts, languages.to_pylist(), confidences, of_the_library(texts), strict=True
    ):
        if not text[:LOOKED_AT_CHARACTERS].strip(" \n\r\t\v\f\0"):
            assert (ours, confidence) == (UNKNOWN, 0)
            continue
        assert confidence == pytest.approx(min(probability, 1), abs=3e-6), text
        if abs(probability - LEAST_CONFIDENCE) > 3e-6:
            assert ours == (name if probability >= LEAST_CONFIDENCE else UNKNOWN), text


def sentences() -> pa.Table:
    path = MULTILINGUAL / "sentences-75-languages.parquet"
    if not path.exists():
        pytest.skip("the multilingual sentences are not here")
    return pq.read_table(path)


def test_languages_are_known() -> None:
    assert identify(list(TEXTS.values())) == list(TEXTS)


def test_lines_are_read_as_one() -> None:
    assert identify([TEXTS["de"].replace(" ", "\n")]) == ["de"]


def test_only_the_beginning_is_looked_at() -> None:
    assert identify([TEXTS["fr"] * 12 + TEXTS["en"] * 100]) == ["fr"]
    beginning = (TEXTS["ru"] * 20)[:LOOKED_AT_CHARACTERS]
    short, long = identify_column(column([beginning, beginning + TEXTS["zh"] * 100]))[1]
    assert short == long


def test_what_is_no_language_is_unknown() -> None:
    assert identify(["", " \n\t", "12 34 56", "\0", "x"]) == [UNKNOWN] * 5
    assert identify(["a lone surrogate \ud83d is no reason to fail"])[0] in ("en", UNKNOWN)
    assert identify([]) == []


@given(st.lists(STRINGS, min_size=1, max_size=8))
@example(["__label__en x", "__label__", "a __label__xx b", "the of and", "x" * 40 + " " + "x" * 33, "<>", "< >"])
@example(["word " * 400, "å" * 999 + " b", "中" * 1001])
@settings(max_examples=40, deadline=None)
def test_answers_are_those_of_the_library(texts: list[str]) -> None:
    require_equal([text for text in texts if "</s>" not in text])


def test_the_name_of_the_end_of_a_line_does_not_end_a_text() -> None:
    """The library reads no further than a literal </s>."""
    texts = ["</s> " + TEXTS["de"], TEXTS["de"]]
    languages, confidences = identify_column(column(texts))
    assert languages.to_pylist() == ["de", "de"] and confidences == pytest.approx(confidences[1], abs=0.05)
    assert of_the_library(texts)[0][1] < 0.5


def test_answers_on_real_text_are_those_of_the_library() -> None:
    table = sentences()
    require_equal(table["text"].to_pylist()[::5])


def test_sentences_of_the_largest_languages_are_named_rightly() -> None:
    table = sentences()
    found = np.array(identify_column(table["text"].cast(pa.large_string()).combine_chunks())[0].to_pylist())
    truth = np.array(table["lang"].to_pylist())
    accuracy = {name: float((found[truth == name] == name).mean()) for name in LARGEST}
    assert len(accuracy) == 30
    assert np.mean(list(accuracy.values())) >= 0.98, accuracy
    assert min(accuracy.values()) > 0.7, accuracy


def test_a_text_has_one_answer_whatever_stands_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [text[i:] for text in TEXTS.values() for i in range(0, 20, 3)]
    together = identify_column(column(texts))[1]
    alone = [identify_column(column([text]))[1][0] for text in texts]
    monkeypatch.setattr(language, "KEPT_WORDS", 2)  # words push one another out
    crowded = identify_column(column(texts[::-1]))[1][::-1]
    assert together.tolist() == alone == crowded.tolist()


def test_a_slice_of_a_column_and_columns_without_texts() -> None:
    whole = column([*TEXTS.values()])
    assert identify_column(whole.slice(2, 3))[0].to_pylist() == list(TEXTS)[2:5]
    assert len(identify_column(whole.slice(7))[0]) == 0
    dictionaries = [identify_column(part)[0].dictionary for part in (whole, whole.slice(0, 0))]
    assert dictionaries[0].equals(dictionaries[1]), "columns can be put behind one another"


def test_threads_find_the_same() -> None:
    texts = column(list(TEXTS.values()) * 40)
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(identify_column(texts)[0].to_pylist())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [list(TEXTS) * 40] * 3


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3, 1000, 2_000_000, 2**21, 2**31 - 1]))
@settings(max_examples=200, deadline=None)
def test_buckets_are_remainders(hashed: int, num_buckets: int) -> None:
    shift = 31 + num_buckets.bit_length()
    out = np.zeros(2, np.int64)
    everything = np.full(num_buckets // 512 + 1, 2**64 - 1, np.uint64)
    n = fasttext_kernels.kept_buckets(
        np.array([hashed], np.uint32), 1, everything, num_buckets, np.uint64((1 << shift) // num_buckets),
        np.uint64(shift), out,
    )  # fmt: skip
    assert n == 1 and out[0] == hashed % num_buckets


def test_a_model_file_is_read_whole() -> None:
    model = read_fasttext(model_path())
    assert len(model.labels) == 176 and set(LARGEST) <= set(model.labels)
    assert model.rows.shape == (len(model.words) + len(model.buckets), 16)
    assert ((model.left == fasttext_kernels.LEAF) == (np.arange(351) < 176)).all()


def test_a_cut_or_changed_model_is_refused(tmp_path: Path) -> None:
    content = model_path().read_bytes()
    damaged = [content[:cut] for cut in (0, 3, 8, 56, 60, 100, 50_000, 200_000, 600_000, len(content) - 1)]
    damaged.append(content + b"\0")
    # The magic number, the version, the dimension, the numbers of entries and of kept n-grams.
    for place, value in ((0, b"\0"), (4, b"\x0b"), (8, b"\xff" * 4), (64, b"\xff" * 4), (84, b"\xff" * 8)):
        damaged.append(content[:place] + value + content[place + len(value) :])
    path = tmp_path / "damaged.ftz"
    for changed in damaged:
        path.write_bytes(changed)
        with pytest.raises(InputError, match="install the package again"):
            read_fasttext(path)
    with pytest.raises(InputError, match="install the package again"):
        read_fasttext(tmp_path / "missing.ftz")


def test_a_changed_byte_is_refused_or_gives_a_model_that_can_be_used(tmp_path: Path) -> None:
    content = model_path().read_bytes()
    path = tmp_path / "changed.ftz"
    values, offsets = text_buffers(column(list(TEXTS.values())))
    drawn = np.random.default_rng(5)
    refused = 0
    for place in [*range(8, 100, 6), *drawn.integers(0, len(content), 20)]:
        path.write_bytes(content[:place] + bytes([drawn.integers(256)]) + content[place + 1 :])
        try:
            model = read_fasttext(path)
        except InputError:
            refused += 1
            continue
        labels, confidences = np.empty(7, np.int32), np.empty(7, np.float32)
        language_kernels.predict(values, offsets, 1000, language._tables(model), 64, labels, confidences)
        assert ((labels >= 0) & (labels < len(model.labels))).all() and (confidences <= 1).all()
    assert refused >= 5
