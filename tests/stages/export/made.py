"""Models and artifacts for the tests of what comes after training, made by hand."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stages.base import Facts, Inputs, Job, Stage, execute
from stages.config import StageConfig
from stages.curate.artifact import file_path
from stages.journal import Journal
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.model.build import config_values
from stages.store import Artifact, Store
from tests.data import texts
from tests.stages.pretrain.checkpoints.at_once import save_at_once

ODD_SIZE = 601  # vocabulary rows, a multiple of nothing
SHAPE = {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 96}
# What a family has beside the shape: no value is its default, so that what is not written shows.
OF_FAMILY: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"head_dim": 16, "sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "granite": {
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.5,
        "logits_scaling": 4.0,
    },
}
numbers = itertools.count(1)


def tokenizer_model(folder: Path, size: int = ODD_SIZE) -> Path:
    path = folder / "tokenizer.model"
    path.write_bytes(texts.model(size))
    return path


def config(family: str = "llama", **changes: Any) -> Any:
    """8 heads, 2 key-value heads of 8: neither 4/2 nor 64/8 would show a wrong permutation."""
    from transformers import AutoConfig

    settings = {
        **SHAPE,
        **OF_FAMILY[family],
        "vocab_size": ODD_SIZE,
        "num_hidden_layers": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
        "eos_token_id": 2,
        "bos_token_id": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
        "rms_norm_eps": 1e-5,
    }
    return AutoConfig.for_model(family, **{**settings, **changes})


def model(seed: int = 0, family: str = "llama", **changes: Any) -> Any:
    """Random weights, large enough that attention is not uniform and the best token is clear."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = AutoModelForCausalLM.from_config(config(family, **changes)).eval()
        with torch.no_grad():
            for name, parameter in made.named_parameters():
                if name.endswith("bias"):
                    parameter.normal_()
                elif parameter.ndim == 1:
                    parameter.uniform_(0.5, 1.5)
                else:
                    parameter.normal_(0, 2 / parameter.shape[1] ** 0.5)
    return made


def trained(found: list[str], steps: int = 80) -> Any:
    """A model that has learnt something of these texts, so that four bits cost it something."""
    import torch

    made = model()
    stream = torch.tensor([token for text in found for token in (*texts.vocabulary(ODD_SIZE).encode(text[:3000]), 2)])
    optimizer = torch.optim.AdamW(made.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    made.train()
    for _ in range(steps):
        starts = torch.randint(0, len(stream) - 64, (8,), generator=generator)
        batch = torch.stack([stream[start : start + 64] for start in starts])
        made(batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return made.eval()


class NumberedConfig(StageConfig):
    number: int


def publish(store: Store, stage: str, fill: Callable[[Path], None], facts: dict[str, Any], **more: Any) -> Artifact:
    """An artifact of `stage` without its inputs. `fill` writes its files."""

    def run(config: NumberedConfig, inputs: Inputs, out: Path, journal: Journal) -> Facts:
        fill(out)
        return Facts(facts=facts, **more)

    made = Stage(name=stage, revision=1, config=NumberedConfig, inputs={}, run=run)
    config = NumberedConfig(number=next(numbers))
    return execute(Job(stage=made, config=config, externals={}, inputs={}, label="made"), store)


def publish_tokenizer(store: Store, fill: Callable[[Path], object] = tokenizer_model) -> Artifact:
    return publish(store, "tokenizer", lambda folder: fill(folder) and None, {"eos_id": 2, "vocabulary_size": ODD_SIZE})


def publish_corpus(store: Store, domains: dict[str, list[str]]) -> Artifact:
    def fill(folder: Path) -> None:
        (folder / "heldout").mkdir()
        for domain, found in domains.items():
            schema = pa.schema([("id", pa.string()), ("text", pa.large_string())])
            rows = [{"id": f"{domain}/{i}", "text": text} for i, text in enumerate(found)]
            pq.write_table(pa.Table.from_pylist(rows, schema), file_path(folder, "heldout", domain, 0))

    return publish(store, "curate", fill, {})


def publish_checkpoint(store: Store, made: Any, step: int = 7, *, last: bool = True) -> Artifact:
    """A checkpoint as pretraining saves it; `last`: of its training."""
    import torch

    from stages.pretrain.checkpoints.tensors import model_tensors
    from stages.pretrain.parallel.ranks import Ranks

    def fill(folder: Path) -> None:
        state = checkpoint.StepState(
            step=step,
            tokens_seen=100 * step,
            vocabulary_size=made.config.vocab_size,
            config_fingerprint="",
            data_fingerprint="",
        )
        alone = Ranks(rank=0, size=1, device=torch.device("cpu"))
        saved = save_at_once(folder, model_tensors(made), state, config_values(made.config), alone)
        for path in list(saved.iterdir()):
            path.rename(folder / path.name)
        saved.rmdir()

    return publish(
        store,
        "checkpoint",
        fill,
        {"step": step, "tokens_seen": 100 * step, "heldout_loss": 2.5, "last": last},
    )


def job(stage: Stage, settings: dict[str, Any], **inputs: Artifact) -> Job:
    """A job of `stage` on the artifacts given."""
    made = stage.config(**settings)
    chosen = {name: (artifact,) for name, artifact in inputs.items()}
    return Job(stage=stage, config=made, externals=stage.externals(made, Store(Path())), inputs=chosen, label="made")
