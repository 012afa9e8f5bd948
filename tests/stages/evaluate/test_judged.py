"""What a model is judged with follows from its artifact and from the corpus that it was trained on."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from data.canaries import CanarySet
from eval.results import Skipped
from stages.curate.artifact import file_path
from stages.evaluate.judged import chat_template, planted_canaries, stored_bytes, training_text
from stages.store import Artifact, Store
from tests.stages.export.made import publish

TEMPLATE = "<s>{% for message in messages %}[{{ message['role'] }}: {{ message['content'] }}]{% endfor %} answer:"


def tokenizer(*, template: str | None, puts_start: bool) -> PreTrainedTokenizerFast:
    made = Tokenizer(models.WordLevel({"<s>": 0, "a": 1, "<unk>": 2}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if puts_start:
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    found = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", unk_token="<unk>")
    found.chat_template = template
    return found


def adopted(store: Store, **settings: object) -> Artifact:
    def fill(folder: Path) -> None:
        tokenizer(**settings).save_pretrained(folder / "hf")  # type: ignore[arg-type]

    return publish(store, "adopt", fill, {})


@pytest.mark.parametrize("puts_start", [True, False])
def test_a_message_is_put_as_the_template_says_with_one_start_token(tmp_path: Path, puts_start: bool) -> None:
    put = chat_template(adopted(Store(tmp_path), template=TEMPLATE, puts_start=puts_start))
    assert put is not None
    text = put("Why {{ 1 + 1 }}?")
    assert text.removeprefix("<s>") == "[user: Why {{ 1 + 1 }}?] answer:"
    assert tokenizer(template=None, puts_start=puts_start)(text)["input_ids"].count(0) == 1


def test_a_model_without_a_template_has_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert chat_template(adopted(store, template=None, puts_start=False)) is None
    assert chat_template(publish(store, "checkpoint", lambda folder: None, {})) is None
    assert chat_template(publish(store, "export", lambda folder: (folder / "hf").mkdir(), {})) is None


def test_a_template_that_refuses_a_message_skips_the_task(tmp_path: Path) -> None:
    put = chat_template(adopted(Store(tmp_path), template="{{ raise_exception('tools only') }}", puts_start=False))
    assert put is not None
    with pytest.raises(Skipped, match="chat template refuses .*tools only"):
        put("Why?")


def test_stored_weights_are_those_of_the_form_that_is_judged(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        for name, size in {"hf/model.safetensors": 100, "hf/tokenizer.json": 7, "gguf/model-q4_0.gguf": 20}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(b"\0" * size)

    store = Store(tmp_path)
    found = {stage: publish(store, stage, fill, {}) for stage in ("checkpoint", "export", "adopt")}
    assert [stored_bytes(found["export"], form) for form in ("hf", "gguf-q4_0")] == [100, 20]
    assert stored_bytes(found["adopt"], "hf") == 100 and stored_bytes(found["checkpoint"], "hf") is None


def test_canaries_of_the_corpus_are_those_of_models_that_were_trained_on_it(tmp_path: Path) -> None:
    class Corpus:
        def __init__(self, *sources: dict[str, object]) -> None:
            self.manifest = type("Manifest", (), {"config": {"sources": sources}})

    store = Store(tmp_path)
    models = {stage: publish(store, stage, lambda folder: None, {}) for stage in ("checkpoint", "export", "adopt")}
    planted = Corpus({"kind": "jsonl", "seed": 0, "number": 0}, {"kind": "canaries", "seed": 3, "number": 5})
    found = {stage: planted_canaries({"model": model, "corpus": planted}) for stage, model in models.items()}
    assert found == {
        "checkpoint": CanarySet(seed=3, number=5),
        "export": CanarySet(seed=3, number=5),
        "adopt": None,
    }
    assert planted_canaries({"model": models["checkpoint"], "corpus": Corpus()}) is None


def test_the_training_text_is_that_of_the_corpus_unless_a_model_was_trained_elsewhere(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "train").mkdir()
        for domain, number in (("code", 7), ("web", 40)):
            rows = [{"id": f"{domain}/{i}", "text": f"{domain} {i}"} for i in range(number)]
            pq.write_table(pa.Table.from_pylist(rows), file_path(folder, "train", domain, 0))

    store = Store(tmp_path)
    corpus = publish(store, "curate", fill, {})
    ours, other = (publish(store, stage, lambda folder: None, {}) for stage in ("checkpoint", "adopt"))
    documents = training_text({"model": ours, "corpus": corpus})
    drawn = documents(20, 1)
    assert len({document.id for document in drawn}) == 20 and drawn == documents(20, 1) != documents(20, 2)
    assert documents(47, 1)[:20] == drawn, "a larger number appends"
    assert {document.domain for document in documents(100, 1)} == {"code", "web"} and len(documents(100, 1)) == 47
    assert {(document.domain, document.text) for document in documents(100, 1)} == {
        (domain, f"{domain} {i}") for domain, number in (("code", 7), ("web", 40)) for i in range(number)
    }
    firsts = [documents(47, seed)[0].domain for seed in range(40)]
    assert set(firsts) == {"code", "web"} and firsts.count("web") > firsts.count("code")
    assert not training_text({"model": other, "corpus": corpus})(20, 1)
