"""The layout of a training: what each process holds, and how messages are cut. One value, derived from the settings.

Imports neither torch nor transformers: the plan reads this too.
"""

from dataclasses import dataclass
from typing import Literal

from data.errors import InputError
from stages.pretrain.config import PretrainConfig
from stages.pretrain.parallel.settings import SHARDED, Sharding


@dataclass(frozen=True, kw_only=True)
class Layout:
    """kind: "one" process with a plain model, parameters "sharded" by FSDP2, or "replicated" by DDP. shards: processes
    that a parameter is cut over; replicas: groups that hold the same shards."""

    kind: Literal["one", "sharded", "replicated"]
    sharding: Sharding
    num_processes: int
    shards: int
    overlap: bool
    prefetch_units: int
    layers_per_unit: int
    bucket_bytes: int

    @property
    def replicas(self) -> int:
        return self.num_processes // self.shards

    @property
    def is_sharded(self) -> bool:
        """Whether FSDP2 shards the parameters, which are DTensors then."""
        return self.kind == "sharded"

    @property
    def shards_states_only(self) -> bool:
        """Whether parameters are whole on every process and each optimizer state lies on one."""
        return self.kind == "replicated" and self.sharding == "optimizer"

    @property
    def reshards_after_forward(self) -> bool:
        """Whether a unit's parameters are given up after its forward pass and gathered again for its backward pass."""
        return self.sharding != "gradients"


def layout_of(config: PretrainConfig) -> Layout:
    """The layout that `config` asks for. One process shards only where the shards are to lie on the host, which FSDP2
    is needed for. Raises InputError, naming the setting, where it does not fit the model's shape."""
    shape = config.model.resolved()
    is_sharded = config.sharding in SHARDED and (config.num_processes > 1 or config.offload_optimizer)
    kind: Literal["one", "sharded", "replicated"] = "replicated" if config.num_processes > 1 else "one"
    layout = Layout(
        kind="sharded" if is_sharded else kind,
        sharding=config.sharding,
        num_processes=config.num_processes,
        shards=(config.shard_processes or config.num_processes) if is_sharded else 1,
        overlap=config.overlap,
        prefetch_units=config.prefetch_layers if config.overlap else 0,
        layers_per_unit=config.layers_per_unit,
        bucket_bytes=config.bucket_bytes,
    )
    if is_sharded and layout.layers_per_unit > shape.num_layers:
        raise InputError(
            f"pretrain.layers_per_unit = {layout.layers_per_unit} is more than the {shape.num_layers} layers of the "
            "model: lower it"
        )
    if layout.shards > shape.hidden_size:
        setting = "shard_processes" if config.sharding == "hybrid" else "num_processes"
        raise InputError(
            f"pretrain.{setting} = {layout.shards} is more than model.hidden_size = {shape.hidden_size}: some "
            'processes would hold nothing of most parameters; lower it, or use pretrain.sharding = "hybrid" in smaller '
            "groups"
        )
    return layout
