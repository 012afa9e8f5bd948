"""litgpt's `pretrain` on text files, in float32 on one process.

.bench/litgpt/bin/python -m tests.benchmarks.peers.training.litgpt TEXT FOLDER
"""

import sys
from pathlib import Path

from litgpt.args import EvalArgs, TrainArgs
from litgpt.config import Config
from litgpt.data import TextFiles
from litgpt.pretrain import setup
from torch.optim.optimizer import register_optimizer_step_post_hook

from tests.benchmarks.peers.training import steps


def main(text: Path, folder: Path) -> None:
    register_optimizer_step_post_hook(steps.Steps(folder).ended)
    setup(
        model_name="bench",
        model_config=Config(
            name="bench",
            block_size=steps.TOKENS,
            vocab_size=steps.VOCABULARY,
            padded_vocab_size=steps.VOCABULARY,
            n_layer=steps.LAYERS,
            n_embd=steps.HIDDEN,
            n_head=steps.HEADS,
            n_query_groups=steps.HEADS,
            rotary_percentage=1.0,
            parallel_residual=False,
            bias=False,
            norm_class_name="RMSNorm",
            mlp_class_name="LLaMAMLP",
            intermediate_size=steps.FEED_FORWARD,
        ),
        out_dir=folder / "out",
        precision="32-true",
        data=TextFiles(train_data_path=text / "files", num_workers=0),
        train=TrainArgs(
            global_batch_size=steps.ROWS,
            micro_batch_size=steps.ROWS,
            max_tokens=steps.STEPS * steps.ROWS * steps.TOKENS,
            max_seq_length=steps.TOKENS,
            log_interval=1,
            save_interval=None,
            lr_warmup_steps=2,
            max_norm=steps.CLIP_NORM,
        ),
        eval=EvalArgs(interval=10 * steps.STEPS, max_iters=1, initial_validation=False, final_validation=False),
        optimizer={
            "class_path": "torch.optim.AdamW",
            "init_args": {"lr": steps.LEARNING_RATE, "betas": steps.BETAS, "weight_decay": steps.WEIGHT_DECAY},
        },
        devices=1,
        tokenizer_dir=text / "tokenizer",
        logger_name="csv",
    )


if __name__ == "__main__":
    text, folder = map(Path, sys.argv[1:])
    sys.argv[1:] = ["bench"]  # at the end litgpt reads its settings from the command line, to save them
    main(text, folder)
