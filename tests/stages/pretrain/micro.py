"""A corpus of token shards and a model of a few thousand parameters, for runs of a second or two."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from data.shards.files import ShardHeader, shard_name, write_shard
from stages.base import Facts, Inputs, Job, One, Stage, execute
from stages.cli import run_and_exit
from stages.config import StageConfig
from stages.journal import Event, Journal
from stages.pretrain import STAGE
from stages.pretrain.batches.exclusions import Draws
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.job import Job as WorkerJob
from stages.store import Artifact, Store
from tests.data.shards.shard_files import index_folder

VOCABULARY, PADDED = 67, 72
EOS = 2
HEADER = ShardHeader(vocabulary_size=VOCABULARY, padded_vocabulary_size=PADDED, end_id=EOS, vocabulary_digest="micro")
MODEL = ModelConfig(
    hidden_size=24,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    intermediate_size=40,
    context_tokens=16,
    initializer_std=0.1,
)


def config(**changes: Any) -> PretrainConfig:
    """A training of the micro model; by default float32 on one process with one thread."""
    settings: dict[str, Any] = {
        "model": MODEL.model_dump(),
        "sequence_tokens": 16,
        "batch_sequences": 6,
        "num_steps": 20,
        "precision": "fp32",
        "checkpoint_every_steps": 10,
        "healthy_steps": 3,
        "heldout_sequences": 5,
        "threads": 1,
        "device": "cpu",
        "learning_rate": 1e-2,
    }
    return PretrainConfig.model_validate({**settings, **changes})


def write_tokens(folder: Path, *, num_tokens: int = 3008, header: ShardHeader = HEADER) -> None:
    """Two domains of text that can be learnt (a noisy counting sequence), with train and held-out shards. Documents of
    1 to 60 tokens, so that most sequences hold several; one domain lies in two shards.
    """
    random = np.random.default_rng(5)
    for side, share in (("train", num_tokens), ("heldout", num_tokens // 5)):
        (folder / side).mkdir(parents=True)
        for domain, stride, num_shards in (("code", 1, 1), ("prose", 3, 2)):
            noise = random.integers(0, 3, share)
            tokens = ((np.arange(share) * stride + noise) % (header.vocabulary_size - 3) + 3).astype(header.dtype)
            ends = np.cumsum(random.integers(1, 61, share))
            ends = np.append(ends[ends < share], share)
            tokens[ends - 1] = header.end_id
            documents = np.split(tokens, ends[:-1])
            for number, part in enumerate(np.array_split(np.arange(len(documents)), num_shards)):
                write_shard(
                    folder / side / shard_name(domain, number),
                    header,
                    ids=pa.array([f"{domain}/{document}" for document in part]),
                    domain=domain,
                    tokens=np.concatenate([documents[document] for document in part]),
                    offsets=np.cumsum([0, *(len(documents[document]) for document in part)]),
                    batch_tokens=400,
                )
        index_folder(folder / side)


class TokensConfig(StageConfig):
    """No settings."""


def _write(config: TokensConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
    write_tokens(out)
    return Facts(facts={"vocabulary_size": VOCABULARY, "padded_vocabulary_size": PADDED, "eos_id": EOS})


TOKENS = Stage(name="pretokenize", revision=1, config=TokensConfig, inputs={}, run=_write)


def tokens_artifact(store: Store) -> Artifact:
    """The micro corpus as an artifact of `store`."""
    return execute(Job(stage=TOKENS, config=TokensConfig(), externals={}, inputs={}, label="micro"), store)


def pretrain_job(config: PretrainConfig, store: Store, *, hook: str = "") -> Job:
    """The stage's job on the micro corpus, with a fault injector in its workers."""
    stage = STAGE if not hook else _with_hook(hook)
    return Job(stage=stage, config=config, externals={}, inputs={"tokens": (tokens_artifact(store),)}, label="micro")


def _with_hook(hook: str) -> Stage:
    from stages.pretrain.supervision.supervisor import pretrain

    def run(config: PretrainConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
        return pretrain(config, inputs, out, journal, hook=hook)

    return Stage(
        name="pretrain",
        revision=STAGE.revision,
        config=PretrainConfig,
        inputs={"tokens": One("pretokenize")},
        run=run,
        resumes=True,
        derives=("checkpoint",),
    )


def pretrain(
    config: PretrainConfig, store: Store, *, hook: str = "", listener: Callable[[Event], None] | None = None
) -> Artifact:
    """Carry the training through to its artifact."""
    return execute(pretrain_job(config, store, hook=hook), store, listeners=(listener,) if listener else ())


def worker_job(
    config: PretrainConfig,
    tokens: Path,
    directory: Path,
    *,
    resume_step: int = 0,
    excluded: Draws = (),
    hook: str = "",
) -> WorkerJob:
    """A job for the worker alone."""
    directory.mkdir(parents=True, exist_ok=True)
    return WorkerJob(
        config=config,
        vocabulary_size=VOCABULARY,
        padded_vocabulary_size=PADDED,
        eos_id=EOS,
        tokens=str(tokens),
        config_fingerprint="micro",
        data_fingerprint="micro",
        directory=str(directory),
        resume_step=resume_step,
        excluded=excluded,
        hook=hook,
    )


if __name__ == "__main__":
    # python -m tests.stages.pretrain.micro ROOT [hook=MODULE:FUNCTION] [FIELD=NUMBER ...]: a supervisor as a process of
    # its own.
    settings = dict(pair.split("=") for pair in sys.argv[2:])
    hook = settings.pop("hook", "")
    run_and_exit(lambda: print(pretrain(config(**settings), Store(Path(sys.argv[1])), hook=hook).digest))
