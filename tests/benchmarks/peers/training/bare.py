"""The loop that one writes in an afternoon: a Transformers model, eager, on random tokens, without any record.

python -m tests.benchmarks.peers.training.bare FOLDER
"""

import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.benchmarks.peers.training import steps


def main(folder: Path) -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=steps.VOCABULARY,
            hidden_size=steps.HIDDEN,
            intermediate_size=steps.FEED_FORWARD,
            num_hidden_layers=steps.LAYERS,
            num_attention_heads=steps.HEADS,
            num_key_value_heads=steps.HEADS,
            max_position_embeddings=steps.TOKENS,
            use_cache=False,
            tie_word_embeddings=False,
        )
    )
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=steps.LEARNING_RATE, betas=steps.BETAS, weight_decay=steps.WEIGHT_DECAY, fused=True
    )
    times = steps.Steps(folder)
    for _ in range(steps.STEPS):
        tokens = torch.randint(0, steps.VOCABULARY, (steps.ROWS, steps.TOKENS))
        model(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), steps.CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad()
        times.ended()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
