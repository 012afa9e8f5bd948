"""The pretokenize stage: nothing lost, nothing added, and the same bytes whatever happened on the way."""

import multiprocessing
import os
import signal
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from data.errors import InputError
from data.shards.files import TokenShard, shard_name, write_shard
from data.shards.index import FILE, read_index
from data.vocabulary.vocabulary import Vocabulary
from stages import manifest
from stages.journal import Event
from stages.shard_plan import plan_shards
from stages.store import Artifact, Store
from tests.data.texts import prose
from tests.stages.token_chain import corpus, pretokenize, small_corpus, tokenizer


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Artifact, Artifact, Artifact]:
    store = Store(tmp_path_factory.mktemp("chain"))
    text = corpus(store)
    model = tokenizer(store, text)
    return store, text, model, pretokenize(store, text, model)


def shards_of(tokens: Artifact, split: str) -> dict[str, list[TokenShard]]:
    """Domain -> its shards, as the index has them."""
    index = read_index(tokens.path / split)
    return {
        domain: [TokenShard(tokens.path / split / name, index.header) for name in dict.fromkeys(index.shard[rows])]
        for domain, rows in index.domains().items()
    }


def documents_of(tokens: Artifact, split: str, domain: str) -> list[np.ndarray]:
    shards = shards_of(tokens, split).get(domain, [])
    return [shard.read()[first:end] for shard in shards for first, end in pairwise(shard.offsets)]


def copy_inputs(root: Path) -> tuple[Store, Artifact, Artifact]:
    store = Store(root)
    text = corpus(store)
    return store, text, tokenizer(store, text)


def test_every_document_comes_back_from_its_tokens(chain: tuple[Store, Artifact, Artifact, Artifact]) -> None:
    _, _, model, tokens = chain
    vocabulary = Vocabulary.load_folder(model.path)
    for split, domains in small_corpus().items():
        assert set(shards_of(tokens, split)) == {domain for domain, texts in domains.items() if texts}
        for domain, texts in domains.items():
            documents = documents_of(tokens, split, domain)
            assert [vocabulary.decode(document[:-1]) for document in documents] == texts
            assert all(document[-1] == vocabulary.end_id for document in documents)
            ids = [name for shard in shards_of(tokens, split).get(domain, []) for name in shard.ids()]
            assert ids == [f"{split}/{domain}/{i}" for i in range(len(texts))]


def test_counts_are_conserved(chain: tuple[Store, Artifact, Artifact, Artifact]) -> None:
    _, text, model, tokens = chain
    end_id = model.facts["eos_id"]
    for domain, counted in tokens.facts["domains"].items():
        for split in ("train", "heldout"):
            documents = documents_of(tokens, split, domain)
            assert counted[f"{split}_tokens"] == sum(map(len, documents))
            assert counted[f"{split}_documents"] == sum(int((document == end_id).sum()) for document in documents)
            assert counted[f"{split}_lossy_documents"] == 0
            for what in ("documents", "bytes"):
                assert counted[f"{split}_{what}"] == text.facts["domains"][domain][f"{split}_{what}"]
    facts = tokens.facts
    assert facts["train_tokens"] == sum(d["train_tokens"] for d in facts["domains"].values())
    assert (facts["dtype"], facts["vocabulary_size"], facts["padded_vocabulary_size"]) == ("uint16", 512, 512)
    assert facts["eos_id"] == end_id and facts["encoding"]["method"] == "word table" and facts["encoding"]["why"]


def test_the_binary_digits_of_the_lengths_are_counted(chain: tuple[Store, Artifact, Artifact, Artifact]) -> None:
    tokens = chain[3]
    for domain, counted in tokens.facts["domains"].items():
        lengths = [len(document) for document in documents_of(tokens, "train", domain)]
        bits = counted["train_length_bits"]
        assert bits == [sum(length >> bit & 1 for length in lengths) for bit in range(max(lengths).bit_length())]
        assert sum(number << bit for bit, number in enumerate(bits)) == counted["train_tokens"]


def test_shards_are_bounded_but_never_divide_a_document(chain: tuple[Store, Artifact, Artifact, Artifact]) -> None:
    _, text, _, tokens = chain
    plans = plan_shards(text.path, 60_000)
    assert {plan.path for plan in plans} | {f"train/{FILE}", f"heldout/{FILE}"} == {
        path.relative_to(tokens.path).as_posix() for path in tokens.path.glob("*/*.arrow")
    }
    assert all(plan.text_bytes <= 60_000 or plan.num_rows == 1 for plan in plans)
    assert any(plan.text_bytes > 60_000 for plan in plans), "the corpus has a document that is longer than a shard"
    assert sum(plan.domain == "prose" and plan.split == "train" for plan in plans) == 5
    empty = TokenShard(tokens.path / "heldout" / shard_name("tiny", 0))
    assert (len(empty.ids()), empty.num_tokens) == (0, 0)


def test_the_index_has_what_the_shards_have(chain: tuple[Store, Artifact, Artifact, Artifact]) -> None:
    tokens = chain[3]
    for split in ("train", "heldout"):
        index = read_index(tokens.path / split)
        shards = [TokenShard(tokens.path / split / name, index.header) for name in dict.fromkeys(index.shard)]
        entries = [entry for shard in shards for entry in shard.entries()]
        assert list(zip(index.domain, index.shard, index.tokens_offset.tolist(), index.tokens_sha256, strict=True)) == [
            (entry.domain, entry.shard, entry.tokens_offset, entry.tokens_sha256) for entry in entries
        ]
        assert int(index.num_tokens.sum()) == tokens.facts[f"{split}_tokens"]


@pytest.mark.parametrize(("workers", "rows_in_group"), [(1, 1000), (3, 1)])
def test_workers_and_row_groups_change_no_byte(
    chain: tuple[Store, Artifact, Artifact, Artifact], tmp_path: Path, workers: int, rows_in_group: int
) -> None:
    store = Store(tmp_path)
    text = corpus(store, rows_in_group=rows_in_group)
    made = pretokenize(store, text, tokenizer(store, text), workers=workers)
    expected = chain[3]
    assert made.facts == expected.facts
    for path in expected.path.glob("*/*.arrow"):
        assert (made.path / path.relative_to(expected.path)).read_bytes() == path.read_bytes()


def _killed_after(root: Path, num_shards: int, before_rename: bool) -> None:
    """In a process of its own: pretokenize, and die at shard `num_shards` + 1, before or after it has its name."""
    written = 0
    real_replace = os.replace

    def replace(source: str | Path, target: str | Path) -> None:
        nonlocal written
        if str(target).endswith(".arrow"):
            written += 1
            if written > num_shards:
                if not before_rename:
                    real_replace(source, target)
                os.kill(os.getpid(), signal.SIGKILL)
        real_replace(source, target)

    os.replace = replace  # type: ignore[assignment]
    pretokenize(*copy_inputs(root), workers=1)


def kill(root: Path, num_shards: int, before_rename: bool) -> None:
    child = multiprocessing.get_context("fork").Process(target=_killed_after, args=(root, num_shards, before_rename))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL


def test_killed_between_the_indexes_it_keeps_every_shard(
    chain: tuple[Store, Artifact, Artifact, Artifact], tmp_path: Path
) -> None:
    store, text, model = copy_inputs(tmp_path)
    num_shards = len(plan_shards(text.path, 60_000))
    kill(tmp_path, num_shards, False)
    assert len(list(tmp_path.rglob(FILE))) == 1
    made = pretokenize(store, text, model)
    assert made.digest == chain[3].digest and made.manifest.measurements["kept_shards"] == num_shards


@pytest.mark.parametrize("before_rename", [True, False])
def test_killed_twice_it_goes_on_behind_the_finished_shards(
    chain: tuple[Store, Artifact, Artifact, Artifact], tmp_path: Path, before_rename: bool
) -> None:
    store, text, model = copy_inputs(tmp_path)
    kill(tmp_path, 0, before_rename)
    kill(tmp_path, 3, before_rename)
    left = {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in tmp_path.rglob("*.arrow")}
    assert len(left) == (3 if before_rename else 5)
    made = pretokenize(store, text, model)
    assert made.digest == chain[3].digest
    assert made.manifest.measurements["kept_shards"] == len(left)
    for path in made.path.glob("train/*.arrow"):
        if path.name in left:
            assert (path.stat().st_ino, path.stat().st_mtime_ns) == left[path.name], "a shard was written again"
    assert manifest.verify(made.path, made.manifest) == [] and list(made.path.rglob("*.tmp")) == []


def test_a_damaged_leftover_is_written_again(chain: tuple[Store, Artifact, Artifact, Artifact], tmp_path: Path) -> None:
    store, text, model = copy_inputs(tmp_path)
    kill(tmp_path, 4, True)
    left = sorted(path for path in tmp_path.rglob("*.arrow"))
    assert len(left) == 4
    left[0].write_bytes(left[0].read_bytes()[:-20])
    content = bytearray(left[1].read_bytes())
    content[len(content) // 2] ^= 1
    left[1].write_bytes(content)
    (left[2].parent / "stranger-00000.arrow").write_bytes(left[2].read_bytes())
    other = TokenShard(left[3])
    tokens, offsets = np.array([5, 2], other.header.dtype), np.array([0, 2])
    write_shard(left[3], other.header, ids=pa.array(["other"]), domain="x", tokens=tokens, offsets=offsets)
    events: list[Event] = []
    made = pretokenize(store, text, model, events)
    assert made.digest == chain[3].digest
    assert made.manifest.measurements["kept_shards"] == 1
    warnings = " ".join(event["text"] for event in events if event["kind"] == "warning")
    assert left[0].name in warnings and left[1].name in warnings


def test_progress_reaches_the_total(chain: tuple[Store, Artifact, Artifact, Artifact], tmp_path: Path) -> None:
    events: list[Event] = []
    pretokenize(*copy_inputs(tmp_path), events)
    progress = [event for event in events if event["kind"] == "progress" and event["name"] == "encode"]
    total = sum(len(texts) for domains in small_corpus().values() for texts in domains.values())
    assert (progress[-1]["done"], progress[-1]["total"]) == (total, total)
    assert [event["done"] for event in progress] == sorted(event["done"] for event in progress)


def test_a_literal_end_token_in_a_text_ends_no_document(tmp_path: Path) -> None:
    store = Store(tmp_path)
    text = corpus(store, {"train": {"p": ["use </s> to end, <|endoftext|> too", *prose()[:9]]}, "heldout": {"p": []}})
    model = tokenizer(store, text)
    documents = documents_of(pretokenize(store, text, model), "train", "p")
    assert len(documents) == 10
    assert [int((document == model.facts["eos_id"]).sum()) for document in documents] == [1] * 10


def test_a_vocabulary_beyond_16_bits_is_stored_in_32(tmp_path: Path) -> None:
    """70,000 ids: every character of the text has its own, so the last ones are used."""
    store = Store(tmp_path)
    ranges = [(0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x20000, 0x2A6D0)]
    letters = [chr(c) for low, high in ranges for c in range(low, high)]
    texts = ["".join(letters[i : i + 1000]) for i in range(0, len(letters), 1000)]
    text = corpus(store, {"train": {"han": texts * 2}, "heldout": {"han": []}})
    model = tokenizer(store, text, size=81_920, character_coverage=1.0, sample_bytes=10_000_000)
    tokens = pretokenize(store, text, model, shard_bytes=10**6)
    assert tokens.facts["dtype"] == "uint32"
    documents = np.concatenate(documents_of(tokens, "train", "han"))
    assert documents.dtype == np.uint32 and int(documents.max()) > 65_535


def test_an_empty_corpus_is_named(tmp_path: Path) -> None:
    store, _, model = copy_inputs(tmp_path)
    empty = corpus(store, {"train": {"prose": []}, "heldout": {"prose": ["held out"]}})
    with pytest.raises(InputError, match="training part of the corpus is empty"):
        pretokenize(store, empty, model)
