"""What a recipe says about the checks before training (`[preflight]`)."""

import os
from pathlib import Path
from typing import Any

from pydantic import Field

from eval.suites import digest
from stages.config import StageConfig, runtime, shared
from stages.fingerprint import rounding
from stages.plan.config import layout
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.store import Store
from stages.suites import SuitesConfig


class PreflightConfig(StageConfig):
    model: ModelConfig = shared(ModelConfig)
    pretrain: PretrainConfig = shared(PretrainConfig)
    suites: SuitesConfig = shared(SuitesConfig)
    trial_steps: int = Field(2, ge=2, description="Real optimizer steps to try")
    most_initial_loss_ratio: float = Field(
        1.1,
        gt=1,
        description="Warn if the first loss is above this many times the logarithm of the vocabulary size, which is "
        "what a model that knows nothing has",
    )
    disk_reserve_ratio: float = runtime(
        1.2, ge=1, description="Warn if there is less free disk than this many times the need"
    )
    memory_reserve_ratio: float = runtime(
        1.2, ge=1, description="Warn if there is less memory than this many times the measured peak"
    )
    server_seconds: float = runtime(
        120.0, gt=0, description="Time that llama.cpp has to load the random model and to answer"
    )


def externals(config: PreflightConfig, store: Store) -> dict[str, Any]:
    """The checks are about one layout and one kind of device, so these are in the key, although not in that of the
    training; and about what the suites ask."""
    device = default_device() if config.pretrain.device == "auto" else config.pretrain.device
    found = layout(config, store, **{**rounding(config.pretrain), "device": device})
    return found | {"suites": digest(config.suites.all_names)}


def default_device(devices: Path = Path("/dev")) -> str:
    """What pretrain.device = "auto" stands for on this machine, found without torch: "cuda" where the driver shows a
    GPU that is not hidden by CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    return "cuda" if visible not in ("", "-1") and any(devices.glob("nvidia[0-9]*")) else "cpu"
