"""AdamW with its decay groups, and the learning rate as a function of the step.

The learning rate is set by us before every step and never by a scheduler object: there is nothing to save, to wrap or
to advance twice.
"""

import math
from typing import TYPE_CHECKING

from stages.pretrain.config import PretrainConfig

if TYPE_CHECKING:
    import torch

SLOTS = ("step", "exp_avg", "exp_avg_sq")


def learning_rate(config: PretrainConfig, step: int) -> float:
    """The learning rate of step 1 <= `step` <= num_steps: linear warm-up to the peak, then a cosine to its final
    share at the last step."""
    warmup = config.warmup_steps
    if step <= warmup:
        return config.learning_rate * step / warmup
    progress = (step - warmup) / max(config.num_steps - warmup, 1)
    cosine = 0.5 * (1.0 + math.cos(math.pi * progress))
    return config.learning_rate * (config.final_learning_rate_ratio + (1.0 - config.final_learning_rate_ratio) * cosine)


def decays(name: str, parameter: "torch.Tensor", *, decay_embeddings: bool) -> bool:
    """Whether weight decay applies: to matrices, never to norms, and to the embedding (which a tied output shares)
    by choice."""
    if parameter.ndim < 2:
        return False
    return decay_embeddings or "embed_tokens" not in name


def build_optimizer(config: PretrainConfig, model: "torch.nn.Module") -> "torch.optim.AdamW":
    """AdamW over the float32 parameters of `model`, in two groups; fused where the device has that kernel."""
    import torch

    named = list(model.named_parameters())
    decayed = [
        parameter for name, parameter in named if decays(name, parameter, decay_embeddings=config.decay_embeddings)
    ]
    others = [
        parameter for name, parameter in named if not decays(name, parameter, decay_embeddings=config.decay_embeddings)
    ]
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=all(parameter.device.type in ("cpu", "cuda") for _, parameter in named),
    )


def create_state(optimizer: "torch.optim.AdamW") -> None:
    """Give every parameter its state at step 0, so that a checkpoint always holds, and a load always fills, the
    moments of all of them, also of a parameter that never had a gradient."""
    import torch

    for group in optimizer.param_groups:
        for parameter in group["params"]:
            assert not optimizer.state[parameter], "the optimizer has state already"
            optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
            }


def set_learning_rate(optimizer: "torch.optim.Optimizer", value: float) -> None:
    """Set the learning rate of all groups."""
    for group in optimizer.param_groups:
        group["lr"] = value
