"""Small transformers models, with random weights that are large enough to have opinions."""

from typing import Any

VOCABULARY, LENGTH = 101, 48


def small(family: str = "llama", **changes: Any) -> Any:
    """In eval mode; 8 heads, 2 key-value heads."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": LENGTH,
        "initializer_range": 0.3,
        "eos_token_id": 2,
        "bos_token_id": 1,
        "pad_token_id": 0,
    }
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **{**settings, **changes})).eval()
