"""torchtitan on the same model and the same number of tokens a step, on one GPU: bf16, compiled, no recomputation."""

import os
import time
from pathlib import Path
from typing import Any

from stages.pretrain.config import ModelConfig
from tests.benchmarks.peers.training.text import write_text

WARM_UP = 8


def tokens_per_second(model: ModelConfig, vocabulary_size: int, *, sequences: int, steps: int, folder: Path) -> float:
    """Over the steps behind the warm-up, on text of the standard library."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    os.environ |= {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29507",
    }
    write_text(folder / "text", vocabulary_size=vocabulary_size, num_sources=1000)
    config = _settings(model, vocabulary_size, folder / "text")
    config.training.local_batch_size, config.training.steps = sequences, steps
    config.dump_folder = str(folder / "titan")
    ended: list[float] = []

    def hook(*_: Any) -> None:
        if len(ended) in (WARM_UP - 1, steps - 1):
            torch.cuda.synchronize()
        ended.append(time.perf_counter())

    register_optimizer_step_post_hook(hook)
    trainer = config.build()
    try:
        trainer.train()
    finally:
        trainer.close()
    tokens = (steps - WARM_UP) * sequences * model.context_tokens
    return tokens / (ended[-1] - ended[WARM_UP - 1])


def _settings(model: ModelConfig, vocabulary_size: int, text: Path) -> Any:
    import torchtitan.models.llama3 as llama3

    def same_model(attn_backend: str, tp_gemm_backend: str = "default") -> Any:
        norm = llama3.RMSNorm.Config(normalized_shape=model.hidden_size, param_init=llama3._NORM_INIT)
        rope = llama3.ComplexRoPE.Config(
            dim=model.head_size, max_seq_len=model.context_tokens, theta=model.rope_theta, scaling="none"
        )
        return llama3.Llama3Model.Config(
            dim=model.hidden_size,
            vocab_size=vocabulary_size,
            tok_embeddings=llama3.Embedding.Config(
                num_embeddings=vocabulary_size, embedding_dim=model.hidden_size, param_init=llama3._EMBEDDING_INIT
            ),
            norm=norm,
            lm_head=llama3.Linear.Config(
                in_features=model.hidden_size,
                out_features=vocabulary_size,
                param_init=llama3._output_linear_init(model.hidden_size),
            ),
            layers=llama3._build_llama3_layers(
                n_layers=model.num_layers,
                dim=model.hidden_size,
                n_heads=model.num_heads,
                n_kv_heads=model.num_kv_heads,
                hidden_dim=model.intermediate_size,
                rope=rope,
                attn_backend=attn_backend,
                tp_gemm_backend=tp_gemm_backend,
            ),
        )

    llama3.llama3_configs["debugmodel"] = same_model
    from torchtitan.models.llama3.config_registry import llama3_debugmodel

    config = llama3_debugmodel()
    config.hf_assets_path, config.dataloader.dataset_path = str(text / "tokenizer"), str(text / "lines")
    config.training.seq_len, config.training.max_norm = model.context_tokens, 1.0
    config.compile.enable = True
    config.checkpoint.enable = config.validator.enable = False
    config.activation_checkpoint = None
    return config
