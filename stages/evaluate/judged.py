"""What an artifact's model is judged with: `eval.subject.Subject` of the inputs of the stage."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stages.base import Inputs
from stages.curate.artifact import TRAIN, domain_paths
from stages.scored_model import load_scored_model, make_scorer

if TYPE_CHECKING:
    from eval.subject import Document, Subject


def make_subject(
    inputs: Inputs, texts: Mapping[str, Sequence[tuple[str, str]]], scratch: Path, *, batch_tokens: int
) -> "Subject":
    """The model with its vocabulary and texts. `texts`: the corpus's held-out text."""
    from data.vocabulary.vocabulary import Vocabulary
    from eval.subject import Subject

    vocabulary = Vocabulary.load_folder(inputs["tokenizer"].path)
    model = load_scored_model(inputs["model"])
    parameters = {id(parameter): parameter for parameter in model.parameters()}.values()
    return Subject(
        scorer=make_scorer(model, vocabulary.end_id, batch_tokens),
        tokenizer=vocabulary,
        heldout=texts,
        training=lambda most, seed: training_documents(inputs["corpus"].path, most, seed),
        canaries=None,
        chat=None,
        num_parameters=sum(parameter.numel() for parameter in parameters),
        model_bytes=sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        scratch=scratch,
    )


def training_documents(corpus: Path, most: int, seed: int) -> "list[Document]":
    """At most `most` documents of the training text, drawn by `seed`, every document as likely as any other."""
    import pyarrow.parquet as pq

    from eval.subject import Document

    places = [
        (domain, path, row)
        for domain, paths in domain_paths(corpus, TRAIN).items()
        for path in paths
        for row in range(pq.ParquetFile(path).metadata.num_rows)
    ]
    chosen = sorted(random.Random(f"training/{seed}").sample(places, min(most, len(places))), key=str)
    tables = {path: pq.read_table(path, columns=["id", "text"]) for path in {path for _, path, _ in chosen}}
    return [
        Document(domain=domain, id=tables[path]["id"][row].as_py(), text=tables[path]["text"][row].as_py())
        for domain, path, row in chosen
    ]
