"""What an artifact's model is judged with: `eval.subject.Subject` of the inputs of the stage."""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stages.base import Inputs
from stages.curate.artifact import TRAIN, domain_paths
from stages.curate.source import Kind
from stages.export.config import Form
from stages.scored_model import Scored
from stages.store import Artifact

if TYPE_CHECKING:
    from data.canaries import CanarySet
    from eval.subject import Document, Subject


def make_subject(
    inputs: Inputs, texts: Mapping[str, Sequence[tuple[str, str]]], scratch: Path, scored: Scored, form: str
) -> "Subject":
    """The model with its vocabulary and texts. `texts`: the corpus's held-out text. form: of an exported model."""
    from eval.subject import Subject

    parameters = list(scored.model.parameters())  # a tied one once
    return Subject(
        scorer=scored.scorer,
        tokenizer=scored.tokenizer,
        heldout=texts,
        training=training_text(inputs),
        canaries=planted_canaries(inputs),
        chat=chat_template(inputs["model"]),
        num_parameters=sum(parameter.numel() for parameter in parameters),
        model_bytes=sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        stored_bytes=stored_bytes(inputs["model"], form),
        scratch=scratch,
    )


def stored_bytes(model: Artifact, form: str) -> int | None:
    """Of the files of weights that an exported model's form or an adopted model has; None of a checkpoint, which holds
    more than weights.
    """
    if model.stage == "checkpoint":
        return None
    path = model.path / (Form(form).path if model.stage == "export" else "hf")
    files = path.glob("*.safetensors") if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files)


def training_text(inputs: Inputs) -> "Callable[[int, int], Sequence[Document]]":
    """What gives documents of the training text; none of a model that was trained elsewhere."""
    if not _trained_here(inputs):
        return lambda most, seed: ()
    return lambda most, seed: training_documents(inputs["corpus"].path, most, seed)


def _trained_here(inputs: Inputs) -> bool:
    return inputs["model"].stage != "adopt"


def training_documents(corpus: Path, most: int, seed: int) -> "list[Document]":
    """At most `most` documents of the training text, drawn by `seed`, every document as likely as any other, in the
    order in which they were drawn: the first of them are a sample too, and a larger `most` appends. A file at a time is
    in memory.
    """
    import numpy as np
    import pyarrow.parquet as pq

    from eval.subject import Document

    files = [(domain, path) for domain, paths in domain_paths(corpus, TRAIN).items() for path in paths]
    ends = np.cumsum([pq.read_metadata(path).num_rows for _, path in files])
    total = int(ends[-1]) if files else 0
    rng = random.Random(f"training/{seed}")
    found: dict[int, Document | None] = {}
    while len(found) < min(most, total):
        found.setdefault(rng.randrange(total))
    of_file = np.searchsorted(ends, list(found), side="right")
    for number in np.unique(of_file).tolist():
        domain, path = files[number]
        places = [place for place, file in zip(found, of_file, strict=True) if file == number]
        first = int(ends[number]) - pq.read_metadata(path).num_rows
        rows = pq.read_table(path, columns=["id", "text"]).take([place - first for place in places])
        for place, row in zip(places, rows.to_pylist(), strict=True):
            found[place] = Document(domain=domain, id=row["id"], text=row["text"])
    return [document for document in found.values() if document is not None]


def planted_canaries(inputs: Inputs) -> "CanarySet | None":
    """What was planted in the corpus that the model was trained on; None if nothing was, and for a model that was
    trained elsewhere.
    """
    from data.canaries import CanarySet

    if not _trained_here(inputs):
        return None
    sources = inputs["corpus"].manifest.config.get("sources", ())
    found = [CanarySet(seed=s["seed"], number=s["number"]) for s in sources if s["kind"] == Kind.CANARIES]
    return found[0] if found else None


def chat_template(model: Artifact) -> "Callable[[str], str] | None":
    """A user's message as the model's own template puts it, with the beginning of the answer; None for a model without
    one. Templates are rendered in a sandbox (transformers). A start token is left to a tokenizer that puts one before
    every text. What is returned raises Skipped where the template refuses a lone message.
    """
    folder = model.path / "hf"
    if not (folder / "tokenizer_config.json").exists():
        return None
    from jinja2 import TemplateError
    from transformers import AutoTokenizer

    from eval.results import Skipped

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if not tokenizer.chat_template:
        return None
    puts_start = tokenizer.bos_token_id is not None and tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
    start = tokenizer.bos_token if puts_start else ""

    def put(message: str) -> str:
        asked = [{"role": "user", "content": message}]
        try:
            text: str = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        except (TemplateError, TypeError, ValueError) as error:
            raise Skipped(f"the model's chat template refuses a message: {error}") from None
        return text.removeprefix(start)

    return put
