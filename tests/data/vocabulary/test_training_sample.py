"""A user relies on: the tokenizer sees all the text that was drawn, each domain in its share, and the same text every
time.
"""

import pyarrow as pa
import pytest

from data.errors import InputError
from data.vocabulary.sentencepiece import SentencePieceVocabulary
from data.vocabulary.training import train_vocabulary
from data.vocabulary.training_sample import CHUNK_BYTES, draw_sample


def column(*texts: str) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(texts, pa.large_string())])


def test_long_documents_are_trained_on_whole() -> None:
    long = column(*["filler words of no interest " * 400 + " zyzzyva" * 20 for _ in range(100)], "short", "", "tail")
    assert min(len(text.as_py()) for text in long.slice(0, 100)) > 10_000
    sample = draw_sample({"prose": long}, budget_bytes=10_000_000, seed=1)
    assert sample.skipped_bytes == 0 and sum(sample.sampled_bytes.values()) == sum(
        len(t.as_py().encode()) for t in long
    )
    assert max(len(chunk.encode()) for chunk in sample.chunks) <= CHUNK_BYTES
    assert len(SentencePieceVocabulary(train_vocabulary(sample.chunks, size=305)).encode(" zyzzyva")) == 1


def test_text_beside_the_trainers_reserved_characters_is_trained_on() -> None:
    """SentencePiece's trainer leaves out every sentence with U+2585; the negative control shows it."""
    texts = [f"line {i} of the log \u2585\u2585 zyzzyva zyzzyva" for i in range(300)]
    sample = draw_sample({"logs": column(*texts)}, budget_bytes=10_000_000, seed=1)
    assert sample.skipped_bytes == 0 and sample.reserved_bytes == 300 * 6
    assert len(SentencePieceVocabulary(train_vocabulary(sample.chunks, size=310)).encode(" zyzzyva")) == 1
    base = [f"line {i} of the log" for i in range(300)]
    assert len(SentencePieceVocabulary(train_vocabulary(base + texts, size=285)).encode(" zyzzyva")) > 1


def test_sample_is_bounded_stratified_and_follows_the_seed() -> None:
    texts = {
        "big": column(*[f"{i} " + "big words " * 40 for i in range(500)]),
        "small": column(*[f"{i} tiny" for i in range(20)]),
    }
    sample = draw_sample(texts, budget_bytes=20_000, seed=3)
    assert 19_990 <= sum(sample.sampled_bytes.values()) <= 20_000 and set(sample.sampled_bytes) == {"big", "small"}
    assert sample == draw_sample(texts, budget_bytes=20_000, seed=3)
    assert sample.chunks != draw_sample(texts, budget_bytes=20_000, seed=4).chunks
    even = draw_sample(texts, budget_bytes=20_000, seed=3, weights={"big": 1, "small": 1})
    have = sum(len(t.as_py()) for t in texts["small"])
    assert even.sampled_bytes["small"] == have and sum(even.sampled_bytes.values()) >= 19_990


def test_sample_cuts_no_character() -> None:
    sample = draw_sample({"d": column("\u00e9" * 50_000, "\U0001f680" * 30_000)}, budget_bytes=100_001, seed=0)
    assert sample.skipped_bytes == 0 and 99_995 <= sum(sample.sampled_bytes.values()) <= 100_001


def test_sample_refuses_what_the_trainer_cannot_count_and_unknown_domains() -> None:
    with pytest.raises(InputError, match="at most 2000000000"):
        draw_sample({"d": column("a")}, budget_bytes=2**31, seed=0)
    with pytest.raises(InputError, match=r"\['proze'\]"):
        draw_sample({"d": column("a")}, budget_bytes=10, seed=0, weights={"d": 1, "proze": 1})
