"""Each form written, loaded as its users load it, and measured against the checkpoint's model."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.base import Inputs
from stages.curate.artifact import heldout_texts
from stages.export import gguf_file, hf
from stages.export.config import ExportConfig, Form
from stages.export.gate import GreedyComparison, Measured
from stages.export.generate import Continuation, continue_prompt
from stages.export.llama_server import LlamaServer, compare_greedy
from stages.export.tokenizer import EDGE_TEXTS, differences, load_tokenizer
from stages.journal import Journal
from stages.scored_model import make_scorer

if TYPE_CHECKING:
    from eval.bits_per_byte import HeldoutDocument

QUANTISATION: dict[Form, gguf_file.Quantisation] = {Form.GGUF_F32: "f32", Form.GGUF_Q4_0: "q4_0"}
# Held-out texts, beside the edge cases, on which each exported tokenizer is compared with SentencePiece.
COMPARED_TEXTS, COMPARED_CHARACTERS = 50, 4000


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The checkpoint's model, and what every form is compared with."""

    model: Any
    tokenizer_model: Path
    encode: Callable[[str], list[int]]
    end_id: int
    documents: Mapping[str, Sequence["HeldoutDocument"]]
    texts: Sequence[str]
    prompts: Sequence[Sequence[int]]
    greedy: Sequence[Continuation]
    bits_per_byte: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A form after it was written, loaded and measured."""

    measured: Measured
    measurements: dict[str, float]


def build_reference(config: ExportConfig, model: Any, inputs: Inputs, journal: Journal) -> Reference:
    """Measure the checkpoint's own model, which every form has to match."""
    from data.vocabulary.vocabulary import SPACE_SYMBOL, Vocabulary, vocabulary_file
    from eval.bits_per_byte import choose

    vocabulary = Vocabulary.load_folder(inputs["tokenizer"].path)
    encode, end_id = vocabulary.encode, vocabulary.end_id
    chosen = {
        domain: choose(pairs, max_bytes=config.domain_bytes, seed=config.seed)
        for domain, pairs in heldout_texts(inputs["corpus"].path).items()
    }
    documents = {domain: found for domain, found in chosen.items() if found}
    texts = [document.text[:COMPARED_CHARACTERS] for found in documents.values() for document in found[:COMPARED_TEXTS]]
    room = model.config.max_position_embeddings - new_tokens(config.greedy_tokens, model)
    prompts = [[end_id, *encode(prompt)][:room] for prompt in config.prompts]
    greedy = [continue_with(model, prompt, config.greedy_tokens, end_id) for prompt in prompts]
    return Reference(
        model=model,
        tokenizer_model=vocabulary_file(inputs["tokenizer"].path),
        encode=encode,
        end_id=end_id,
        documents=documents,
        texts=[text for text in (*vocabulary.special_pieces(), *texts) if SPACE_SYMBOL not in text],
        prompts=prompts,
        greedy=greedy,
        bits_per_byte=_bits_per_byte(config, model, encode, end_id, documents, journal),
    )


def new_tokens(wanted: int, model: Any) -> int:
    """Half of a short context stays for the prompt."""
    return min(wanted, model.config.max_position_embeddings // 2)


def continue_with(
    model: Any, prompt: Sequence[int], num_tokens: int, end_id: int, temperature: float | None = None, seed: int = 0
) -> Continuation:
    """`continue_prompt` of as many of `num_tokens` as the model has room for."""
    return continue_prompt(
        model, prompt, max_new_tokens=new_tokens(num_tokens, model), end_id=end_id, temperature=temperature, seed=seed
    )


def _bits_per_byte(
    config: ExportConfig,
    model: Any,
    encode: Callable[[str], Sequence[int]],
    end_id: int,
    documents: Mapping[str, Sequence["HeldoutDocument"]],
    journal: Journal,
) -> dict[str, float]:
    from eval.bits_per_byte import score_documents

    scorer = make_scorer(model, end_id, config.batch_tokens)
    found = {}
    for done, (domain, chosen) in enumerate(documents.items()):
        journal.progress("held-out text", done, len(documents), "domains")
        scores = score_documents(scorer, encode, chosen)
        found[domain] = sum(score.num_bits for score in scores) / sum(score.num_bytes for score in scores)
    journal.progress("held-out text", len(documents), len(documents), "domains")
    return found


def measure(config: ExportConfig, form: Form, reference: Reference, out: Path, journal: Journal) -> Outcome:
    """Write one form below `out` and find out what it is worth."""
    return (
        _measure_hf(config, reference, out, journal)
        if form is Form.HF
        else _measure_gguf(config, form, reference, out, journal)
    )


def _measure_hf(config: ExportConfig, reference: Reference, out: Path, journal: Journal) -> Outcome:
    directory = out / Form.HF.path
    hf.save(reference.model, reference.tokenizer_model, directory, eos_id=reference.end_id, dtype=config.hf_dtype)
    started = time.perf_counter()
    model, tokenizer = hf.load(directory), load_tokenizer(directory)
    load_seconds = time.perf_counter() - started

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    started = time.perf_counter()
    own = [continue_with(model, prompt, config.greedy_tokens, reference.end_id) for prompt in reference.prompts]
    speed = sum(len(continuation.tokens) for continuation in own) / (time.perf_counter() - started)
    measured = Measured(
        bits_per_byte=_bits_per_byte(config, model, encode, reference.end_id, reference.documents, journal),
        greedy=_same_model_greedy(model, reference),
        exact=config.hf_dtype == "float32",
        tokenizer_differences=_tokenizer_differences(reference, encode),
    )
    return Outcome(
        measured=measured, measurements={"load_seconds": round(load_seconds, 3), "tokens_per_second": round(speed, 1)}
    )


def _same_model_greedy(model: Any, reference: Reference) -> GreedyComparison:
    """The best token of a transformers model at each clear position of the reference's continuations."""
    import torch

    compared = equal = excluded = 0
    for prompt, continuation in zip(reference.prompts, reference.greedy, strict=True):
        sequence = torch.tensor([[*prompt, *continuation.tokens[:-1]]])
        with torch.inference_mode():
            best = (
                model(input_ids=sequence, use_cache=False, logits_to_keep=len(continuation.tokens))
                .logits[0]
                .argmax(-1)
                .tolist()
            )
        for token, clear, got in zip(continuation.tokens, continuation.clear, best, strict=True):
            compared, equal, excluded = compared + clear, equal + (clear and got == token), excluded + (not clear)
    return GreedyComparison(compared=compared, equal=equal, excluded=excluded)


def _measure_gguf(config: ExportConfig, form: Form, reference: Reference, out: Path, journal: Journal) -> Outcome:
    path = out / form.path
    gguf_file.write(reference.model, reference.tokenizer_model, path, QUANTISATION[form])
    model = gguf_file.load(path, reference.model.config)
    context = model.config.max_position_embeddings
    with LlamaServer(path, threads=config.threads, context=context, seconds=config.server_seconds) as server:
        speed = server.tokens_per_second(reference.prompts[0], new_tokens(config.greedy_tokens, model))
        greedy = compare_greedy(server, reference.prompts, reference.greedy)
        tokenizer_differences = _tokenizer_differences(reference, server.tokenize)
    measured = Measured(
        bits_per_byte=_bits_per_byte(config, model, reference.encode, reference.end_id, reference.documents, journal),
        greedy=greedy,
        exact=form is Form.GGUF_F32,
        tokenizer_differences=tokenizer_differences,
    )
    return Outcome(
        measured=measured,
        measurements={"load_seconds": round(server.load_seconds, 3), "tokens_per_second": round(speed, 1)},
    )


def _tokenizer_differences(reference: Reference, encode: Callable[[str], Sequence[int]]) -> tuple[str, ...]:
    return tuple(differences(reference.encode, encode, [*EDGE_TEXTS, *reference.texts]))
