"""The learning rate of every step, a pure function of the configuration.

We set it before every step and no scheduler object does: there is nothing to save, to wrap or to advance twice, and the
table is the same for every layout, accumulation and restart.

The share `p` of the training is counted in steps or in places for tokens, those of the step itself included. After a
linear warm-up to the peak:

* cosine (Loshchilov and Hutter, 2017, "SGDR", section 3, without restarts) and linear fall from the end of the warm-up
  to the end of the training;
* wsd, warm-up, stable, decay (Hu et al., 2024, "MiniCPM", section 4.2), falls in its last part only, by
  1 - sqrt(part of the decay that is over) or linearly (Hägele et al., 2024, "Scaling Laws and Compute-Optimal Training
  Beyond Fixed Training Durations", section 4);
* constant does not fall.
"""

import math

from stages.pretrain.config import PretrainConfig


def learning_rate(config: PretrainConfig, step: int) -> float:
    """The learning rate of step 1 <= `step` <= num_steps."""
    assert 1 <= step <= config.num_steps, f"step {step} of {config.num_steps}"
    position, end = _position(config, step), _position(config, config.num_steps)
    warmup = round(config.warmup_ratio * end)
    if position <= warmup:
        return config.learning_rate * position / warmup
    start = end - round(config.decay_ratio * end) if config.schedule == "wsd" else warmup
    over = max(0.0, (position - start) / max(end - start, 1))
    floor = config.final_learning_rate_ratio
    return config.learning_rate * (floor + (1.0 - floor) * _left(config, over))


def _position(config: PretrainConfig, step: int) -> int:
    """How far the training is after `step`, in units of the schedule."""
    return step if config.schedule_unit == "steps" else config.sequences_through(step) * config.sequence_tokens


def _left(config: PretrainConfig, over: float) -> float:
    """What is left of the way from the peak to the last learning rate, 1 to 0. over: part of the decay, 0 to 1."""
    match config.schedule:
        case "constant":
            return 1.0
        case "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * over))
        case "wsd" if config.decay_shape == "1-sqrt":
            return 1.0 - math.sqrt(over)
    return 1.0 - over
