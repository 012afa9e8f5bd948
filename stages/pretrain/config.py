"""What a recipe says about the training (`[pretrain]`); its model has a table of its own.

Imports neither torch nor transformers: the plan and the recipe's form read these classes too.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal, Self

from pydantic import Field, model_validator

from data.errors import InputError
from stages.config import StageConfig, runtime, shared
from stages.pretrain.checkpoints.settings import CheckpointSettings
from stages.pretrain.memory.settings import MemorySettings
from stages.pretrain.model.settings import ComputeSettings
from stages.pretrain.model.shape import ModelConfig
from stages.pretrain.monitor.settings import MonitorSettings
from stages.pretrain.optimise.settings import OptimiseSettings
from stages.pretrain.parallel.settings import SHARDED, ParallelSettings
from stages.pretrain.supervision.settings import SupervisionSettings

LENGTH_BUCKETS = "length-buckets"


class MixturePhase(StageConfig):
    """Other weights of the domains from a step on."""

    from_step: int = Field(ge=2, description="First optimizer step, counted from 1, that has these weights")
    weights: dict[str, float] = Field(description="Domain: weight, as in pretrain.mixture")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _require_positive("pretrain.mixture_schedule", self.weights)
        if not self.weights:
            raise ValueError("pretrain.mixture_schedule: weights must name at least one domain")
        return self


class LengthPhase(StageConfig):
    """Another longest sequence from a step on."""

    from_step: int = Field(ge=1, description="First optimizer step, counted from 1, that has this length")
    longest_tokens: int = Field(ge=1, description="Tokens in the longest sequence, a power of two")


class PretrainConfig(
    ComputeSettings,
    OptimiseSettings,
    MemorySettings,
    ParallelSettings,
    MonitorSettings,
    CheckpointSettings,
    SupervisionSettings,
):
    """How the model is trained. Batch sizes are those of the global batch, whatever the number of processes."""

    model: ModelConfig = shared(ModelConfig)

    mixture: dict[str, float] = Field(
        {}, description="Domain: weight of its tokens in the batch; empty: each domain by its number of tokens"
    )
    mixture_schedule: tuple[MixturePhase, ...] = Field(
        (),
        description="Weights that take the place of the mixture's from a step on; each as {from_step, weights}. Each "
        "batch that is left out before that step brings it one step forward",
    )
    mixture_temperature: float = Field(
        1.0,
        ge=0.1,
        le=1000,
        description="Weights (without a mixture: numbers of tokens) to the power of 1/temperature: above 1 small "
        "domains are drawn more often, far above 1 all alike",
    )
    mixture_most_epochs: float | None = Field(
        None,
        gt=0,
        description="Read no domain more often in the whole training: it is drawn less in all phases alike, and the "
        "others more, in proportion to their weights",
    )
    packing: Literal["stream", "best-fit", "length-buckets"] = Field(
        "stream",
        description="How documents become sequences. stream: one behind the other, cut where a sequence is full; "
        "best-fit: none that fits into a sequence is cut, at the cost of some padding; length-buckets: cut into powers "
        "of two, and each batch holds one length",
    )
    cross_document_attention: bool = Field(
        False, description="Documents that share a sequence attend to one another, and positions count through them"
    )
    length_schedule: tuple[LengthPhase, ...] = Field(
        (),
        description="With length-buckets: the longest sequences from a step on; each as {from_step, longest_tokens}. "
        "Before the first: sequence_tokens. Each batch that is left out before a step brings it one step forward",
    )
    sequence_tokens: int = Field(
        256, ge=2, description="Tokens in one training sequence; with length-buckets in the longest, a power of two"
    )
    seed: int = Field(1, ge=0, lt=2**63, description="Seed of the initial weights and of the order of the data")

    device: Literal["auto", "cpu", "cuda"] = runtime(
        "auto", rounding=True, description="Where to train; auto: on GPUs if there are any"
    )
    prefetch_batches: int = runtime(4, ge=1, description="Batches that are read ahead")
    reader_threads: int = runtime(2, ge=1, description="Threads that read ahead, in each process")
    shards_url: str = runtime(
        "", description="Folder with the training shards, as an fsspec URL; empty: those of the tokens artifact"
    )
    cache_directory: str = runtime("", description="Folder on this machine that holds what was read of shards_url")
    cache_bytes: int = runtime(20_000_000_000, gt=0, description="Most bytes in cache_directory")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.model.huggingface_config:
            self.require_context(self.model)
        smallest, first = min((size, first) for first, size in self.batch_sizes())
        if self.num_processes > smallest:
            setting = "pretrain.batch_sequences" if first == 1 else "batch_sequences of a phase of pretrain.batch_ramp"
            raise ValueError(
                f"pretrain.num_processes = {self.num_processes} is more than {setting}, {smallest}: some processes "
                "would have nothing to do; lower the one or raise the other"
            )
        if self.redundant and self.least_processes is not None:
            raise ValueError(
                "pretrain.least_processes does not go with pretrain.redundant, where the groups that are left go on in "
                "any case: leave one out"
            )
        if self.least_processes is not None and self.least_processes > self.num_processes:
            raise ValueError(
                f"pretrain.least_processes = {self.least_processes} is more than pretrain.num_processes = "
                f"{self.num_processes}: lower it"
            )
        _require_positive("pretrain.mixture", self.mixture)
        _require_ascending("pretrain.mixture_schedule", [phase.from_step for phase in self.mixture_schedule])
        self._check_lengths()
        if self.attention in ("flash", "flex") and self.device == "cpu":
            raise ValueError(
                f'pretrain.attention = "{self.attention}" cannot be trained with on pretrain.device = "cpu"; use "sdpa"'
            )
        self._check_memory()
        if bool(self.shards_url) != bool(self.cache_directory):
            raise ValueError(
                "pretrain.shards_url and pretrain.cache_directory go together: what is read of the one is kept in the "
                "other"
            )
        if not self.shards_url and not self.is_default("cache_bytes"):
            raise ValueError("pretrain.cache_bytes has no effect without pretrain.shards_url: leave it out")
        return self

    def _check_memory(self) -> None:
        """Raises ValueError for what only GPUs, or only sharded parameters, can have."""
        if self.offload_optimizer and self.sharding not in SHARDED:
            raise ValueError(
                f'pretrain.offload_optimizer does not go with pretrain.sharding = "{self.sharding}": set that to '
                f"{', '.join(SHARDED)}"
            )
        if self.device != "cpu":
            return
        if self.precision == "fp8":
            raise ValueError('pretrain.precision = "fp8" needs a Hopper GPU; with pretrain.device = "cpu" use "bf16"')
        for name in ("offload_optimizer", "expandable_segments", "allocator_split_mib", "allocator_collect_share"):
            if not self.is_default(name):
                raise ValueError(f'pretrain.{name} has no effect with pretrain.device = "cpu": leave it out')

    def _check_lengths(self) -> None:
        """Raises ValueError where packing, lengths and isolation do not go together."""
        if self.packing != LENGTH_BUCKETS:
            if self.length_schedule:
                raise ValueError(
                    f'pretrain.length_schedule needs pretrain.packing = "{LENGTH_BUCKETS}": with "{self.packing}" all '
                    "sequences have one length"
                )
            return
        if self.cross_document_attention:
            raise ValueError(
                f'pretrain.cross_document_attention has no effect with pretrain.packing = "{LENGTH_BUCKETS}": no '
                "sequence holds two documents"
            )
        if not _is_power_of_two(self.sequence_tokens):
            raise ValueError(
                f"pretrain.sequence_tokens = {self.sequence_tokens} must be a power of two with pretrain.packing = "
                f'"{LENGTH_BUCKETS}"'
            )
        _require_ascending("pretrain.length_schedule", [phase.from_step for phase in self.length_schedule])
        for phase in self.length_schedule:
            if phase.longest_tokens > self.sequence_tokens or not _is_power_of_two(phase.longest_tokens):
                raise ValueError(
                    f"pretrain.length_schedule: longest_tokens = {phase.longest_tokens} must be a power of two, at "
                    f"most pretrain.sequence_tokens = {self.sequence_tokens}"
                )

    def require_context(self, shape: ModelConfig) -> None:
        """Raises InputError where sequences are longer than the model is made for. shape: resolved."""
        from_file = self.model.huggingface_config
        limit = f"max_position_embeddings in {from_file}" if from_file else "model.context_tokens"
        if self.sequence_tokens > shape.context_tokens:
            raise InputError(
                f"pretrain.sequence_tokens = {self.sequence_tokens} is more than {limit} = {shape.context_tokens}"
            )

    @property
    def needs_mask(self) -> bool:
        """Whether a training sequence may hold several documents that attention keeps apart."""
        return not self.cross_document_attention and self.packing != LENGTH_BUCKETS

    def batch_places(self, step: int) -> int:
        """Places for tokens in optimizer step `step`, counted from 1, padding among them. Where batches were left out,
        a phase of the ramp begins earlier than this says."""
        return (self.sequences_through(step) - self.sequences_through(step - 1)) * self.sequence_tokens

    @property
    def total_places(self) -> int:
        """Places for tokens in all steps, padding among them."""
        return self.sequences_through(self.num_steps) * self.sequence_tokens

    def durable_steps(self) -> tuple[int, ...]:
        """The steps, counted from 1, after which a durable checkpoint is taken; the last step is always among them."""
        return (*range(self.checkpoint_every_steps, self.num_steps, self.checkpoint_every_steps), self.num_steps)


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def _require_positive(setting: str, weights: Mapping[str, float]) -> None:
    if any(weight <= 0 for weight in weights.values()):
        raise ValueError(f"{setting}: weights must be above 0; leave a domain out to draw nothing from it")


def _require_ascending(setting: str, steps: Sequence[int]) -> None:
    if any(later <= earlier for earlier, later in pairwise(steps)):
        raise ValueError(f"{setting}: from_step must rise from phase to phase, not {list(steps)}")
