"""What a recipe says about how models are judged (`[evaluate]`)."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from stages.config import StageConfig, runtime, shared
from stages.scored_model import Device, Precision
from stages.store import Artifact, Store
from stages.suites import SuitesConfig


class EvaluateConfig(StageConfig):
    """How a model is judged."""

    suites: SuitesConfig = shared(SuitesConfig)

    domain_bytes: int = Field(80_000, ge=1, description="Held-out text to score, in each domain, in UTF-8 bytes")
    bootstrap_draws: int = Field(1000, ge=100, description="Resamplings of documents for the interval of bits per byte")
    seed: int = Field(0, ge=0, description="Of the choice of held-out documents and of the resampling")

    form: Literal["hf", "gguf-f32", "gguf-q4_0"] = Field(
        "hf", description="Of an exported model: which of its forms is judged"
    )
    precision: Precision = Field("float32", description="In which the model computes")
    device: Device = runtime("cpu", rounding=True, description="Where the model runs; auto: on a GPU if there is one")

    threads: int = runtime(
        1, rounding=True, ge=1, description="CPU threads; one leaves the others to a training that goes on beside"
    )
    batch_tokens: int = runtime(2048, rounding=True, ge=1, description="Most tokens of one forward pass")
    nice: int = runtime(
        0, ge=0, le=19, description="Added to the niceness of the process: 19 lets a training beside it go first"
    )
    cpus: tuple[int, ...] = runtime((), description="CPUs that the process is kept on, by number; none: any")
    beside: Literal["share", "queue"] = runtime(
        "share",
        description="While a training of the same store goes on: share the machine with it, or wait until it is done",
    )
    most_slowdown: float = runtime(
        0.05,
        gt=0,
        description="With beside = share: it waits while a training beside it has lost more than this share of pace",
    )


def narrow(config: EvaluateConfig, inputs: Mapping[str, tuple[Artifact, ...]]) -> EvaluateConfig:
    """Of a checkpoint on the way without the suites that only finished models are asked, and without the form, which
    only an export has: neither changes its scores.
    """
    (model,) = inputs["model"]
    on_the_way = model.stage == "checkpoint" and not model.facts["last"]
    suites = SuitesConfig(names=config.suites.names if on_the_way else config.suites.all_names, last_names=())
    form = config.form if model.stage == "export" else "hf"
    return config.model_copy(update={"suites": suites, "form": form})


def externals(config: EvaluateConfig, store: Store) -> dict[str, Any]:
    """What the suites ask, and the versions of the harness that asks it and of what finds toxic text: scores of two of
    them are not compared.
    """
    from eval.suites import digest, harness_version, load_suites

    names = config.suites.all_names
    if not names:
        return {}
    found = {"suites": digest(names), "lm_eval": harness_version()}
    if any(task.source == "toxicity" for suite in load_suites(names) for task in suite.tasks):
        from eval.safety.toxicity import detectors

        found["toxicity"] = detectors()
    return found
