"""Which documents a checkpoint has seen.

    python -m stages seen KEY --out seen.jsonl

KEY names a checkpoint or a finished training. One line of the file for each document that it has seen: id, domain,
tokens, tokens_seen (over all epochs), times (how often the whole document, on average). The end-of-document token
counts.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.errors import InputError
from stages.out_file import whole
from stages.pretrain.batches.documents import SeenDocuments, documents_seen
from stages.pretrain.batches.exclusions import Draws, Exclusion, before, draws
from stages.pretrain.batches.sequences import open_train
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.config import PretrainConfig
from stages.pretrain.job import Job, RunDirectory
from stages.store import Artifact, Store


@dataclass(frozen=True, kw_only=True)
class Past:
    """What decides on the data of a training up to one step."""

    config: PretrainConfig
    tokens: Artifact
    step: int
    tokens_seen: int
    excluded: Draws


def read_past(artifact: Artifact, store: Store) -> Past:
    """Of a checkpoint or of a finished training. Raises InputError for any other artifact, and if what it was made from
    is no longer there.
    """
    facts = artifact.facts
    if artifact.stage == "checkpoint":
        state = checkpoint.read_state(artifact.path)
        config, step, tokens_seen, excluded = _config_of(artifact, store), state.step, state.tokens_seen, state.excluded
    elif artifact.stage == "pretrain":
        config = PretrainConfig.model_validate(artifact.manifest.config)
        excluded = draws([Exclusion.model_validate(entry) for entry in facts["excluded"]])
        step, tokens_seen = facts["num_steps"], facts["tokens"]
    else:
        raise InputError(f"{artifact.path.name} is of {artifact.stage}: name a checkpoint or a training")
    (entry,) = artifact.manifest.inputs["tokens"]
    tokens = store.find(entry.stage, entry.key)
    if tokens is None or tokens.digest != entry.digest:
        raise InputError(
            f"the tokens that {artifact.path.name} was trained on ({entry.stage} {entry.key}) are no longer there: run "
            "pretokenize again"
        )
    return Past(config=config, tokens=tokens, step=step, tokens_seen=tokens_seen, excluded=excluded)


def _config_of(artifact: Artifact, store: Store) -> PretrainConfig:
    """The configuration of the training that a checkpoint is of, which may still be going on."""
    parent = artifact.manifest.config["parent"]
    finished = store.find("pretrain", parent)
    if finished is not None:
        return PretrainConfig.model_validate(finished.manifest.config)
    run = RunDirectory(store.runs_path(parent))
    if run.job.exists():
        return Job.read(run.job).config
    raise InputError(
        f"neither the training that {artifact.path.name} is of (pretrain {parent}) nor its run directory {run.path} is "
        "there any more"
    )


def seen(past: Past) -> list[SeenDocuments]:
    """What was read of each domain. The tokens add up to those that the training says it was given."""
    sequences = open_train(past.config, past.tokens.path, excluded=past.excluded, local=True)
    taken = before(past.excluded, sequences.order.draw(past.step - 1))
    assert taken == past.excluded, f"draws {past.excluded} were left out, but only {taken} on the way"
    found = list(documents_seen(sequences, past.step))
    total = sum(int(domain.num_seen.sum()) for domain in found)
    assert total == past.tokens_seen, f"documents add up to {total} tokens of {past.tokens_seen}"
    return found


def lines(found: list[SeenDocuments]) -> Iterator[dict[str, Any]]:
    """One for each document of which a token was seen."""
    for domain in found:
        for number in domain.num_seen.nonzero()[0].tolist():
            tokens, times = int(domain.num_tokens[number]), int(domain.num_seen[number])
            yield {
                "id": domain.ids[number],
                "domain": domain.domain,
                "tokens": tokens,
                "tokens_seen": times,
                "times": round(times / tokens, 6),
            }


def summary(found: list[SeenDocuments]) -> list[dict[str, Any]]:
    """One row a domain: documents that it has and that were seen, tokens likewise, and how often a document was seen
    at most."""
    return [
        {
            "domain": domain.domain,
            "documents": len(domain.ids),
            "documents_seen": int((domain.num_seen > 0).sum()),
            "tokens": int(domain.num_tokens.sum()),
            "tokens_seen": int(domain.num_seen.sum()),
            "most_times": round(float((domain.num_seen / domain.num_tokens).max()), 2),
        }
        for domain in found
    ]


def write_lines(path: Path, found: list[SeenDocuments]) -> None:
    """Put `lines` into a .jsonl file, whole or not at all. Raises TryAgain if the disk is full."""
    with whole(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for line in lines(found):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
