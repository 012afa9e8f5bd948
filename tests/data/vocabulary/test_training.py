"""A user relies on: the same text gives the same vocabulary, declared tokens are there, a refusal names the setting."""

import pytest

from data.errors import InputError
from data.vocabulary.sentencepiece import SentencePieceVocabulary
from data.vocabulary.training import require_special_tokens, train_vocabulary
from tests.data.texts import AWKWARD, prose

CHUNKS = [text[:3000] for text in prose()[:10]]
SPECIAL = ("<|im_start|>", "<|im_end|>")


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_training_twice_gives_the_same_bytes(algorithm: str) -> None:
    first, again = (train_vocabulary(CHUNKS, size=400, algorithm=algorithm) for _ in range(2))
    assert first == again and SentencePieceVocabulary(first).size == 400
    assert SentencePieceVocabulary(first).method == {"bpe": "word table", "unigram": "plain"}[algorithm]


def test_null_character_in_training_text() -> None:
    trained = SentencePieceVocabulary(train_vocabulary(["a\0b word"] * 50, size=272))
    assert trained.decode(trained.encode("a\0b word\0")) == "a\0b word\0"


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_special_tokens_have_ids_and_text_never_becomes_one(algorithm: str) -> None:
    talk = ["<|im_start|>user hello<|im_end|>" * 20] * 20
    trained = SentencePieceVocabulary(
        train_vocabulary([*CHUNKS, *talk], size=480, algorithm=algorithm, special_tokens=SPECIAL)
    )
    assert trained.special_pieces() == {"<s>": 1, "</s>": 2, "<|im_start|>": 3, "<|im_end|>": 4}
    assert trained.size == 480
    for text in (*AWKWARD, *talk[:1], *SPECIAL, "".join(SPECIAL)):
        tokens, _ = trained.encode_documents([text])
        assert tokens.min() == trained.end_id and (tokens < 5).sum() == 1, "its end and nothing else"
        assert trained.decode(tokens) == text
    assert trained.decode([3, *trained.encode("x"), 4]) == "x"


@pytest.mark.parametrize(
    ("tokens", "problem"),
    [
        (("<|a|>", "<|a|>"), "declared twice"),
        (("</s>",), "is there already"),
        (("<0x41>",), "is there already"),
        (("#",), "two characters"),
        (("",), "two characters"),
        (("<a b>",), "white space"),
        (("<\u2581>",), "white space"),
    ],
)
def test_what_cannot_be_a_special_token_is_refused(tokens: tuple[str, ...], problem: str) -> None:
    with pytest.raises(InputError, match=f"tokenizer.special_tokens: .*{problem}"):
        require_special_tokens(tokens)
    require_special_tokens(SPECIAL)


def test_a_special_token_that_llama_cpp_would_join_from_two_pieces_is_refused() -> None:
    """Its tokenizer joins neighbours into whatever the vocabulary holds, control pieces included."""
    with pytest.raises(InputError, match="tokenizer.special_tokens: 'inhe' .*pieces 'in' and 'he'"):
        train_vocabulary(CHUNKS, size=400, special_tokens=("inhe",))


def test_too_little_text_names_the_largest_size() -> None:
    chunks = ["the quick brown fox jumps over the lazy dog"] * 5
    with pytest.raises(InputError, match="at most 336") as raised:
        train_vocabulary(chunks, size=2048, multiple=16)
    assert "too small" in str(raised.value)
    train_vocabulary(chunks, size=336)
    with pytest.raises(InputError, match="at least 288"):
        train_vocabulary(chunks, size=264, multiple=8)
    with pytest.raises(InputError, match="no text"):
        train_vocabulary([], size=300)


def test_a_unigram_model_of_too_little_text_names_a_setting_too() -> None:
    with pytest.raises(InputError, match="too small for a vocabulary of 2048"):
        train_vocabulary(["the quick brown fox jumps over the lazy dog"] * 5, size=2048, algorithm="unigram")
