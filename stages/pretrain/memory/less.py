"""With which settings a training needs less memory."""

from stages.pretrain.config import PretrainConfig

LEAST_CHUNK_TOKENS = 256


def less_memory(config: PretrainConfig) -> list[str]:
    """What can still be changed, for a message: first what leaves the trained model as it is but for rounding, that
    which costs least time first; then what makes it another one."""
    several = config.num_processes > 1
    choices = [
        (
            config.micro_batch_sequences > 1,
            f"lower pretrain.micro_batch_sequences (now {config.micro_batch_sequences})",
        ),
        (
            config.loss_chunk_tokens > LEAST_CHUNK_TOKENS,
            f"lower pretrain.loss_chunk_tokens (now {config.loss_chunk_tokens})",
        ),
        (config.recompute != "full", 'set pretrain.recompute = "full"'),
        (several and config.sharding != "full" and not config.redundant, 'set pretrain.sharding = "full"'),
        (several and config.device != "cpu" and not config.offload_optimizer, "set pretrain.offload_optimizer = true"),
        (config.optimizer_states != "8bit", 'set pretrain.optimizer_states = "8bit"'),
        (True, "lower pretrain.sequence_tokens"),
    ]
    return [words for applies, words in choices if applies]
