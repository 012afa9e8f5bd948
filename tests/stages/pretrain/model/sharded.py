"""Models of every family, built without memory, sharded, and then materialised: on each rank that `test_initialise`
starts.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from stages.pretrain.model.build import build, decoder_layers, huggingface_config
from stages.pretrain.model.initialise import initialise, materialise
from stages.pretrain.model.shape import Family, ModelConfig

VOCABULARY = 1003


def shape(family: Family, *, tied: bool) -> ModelConfig:
    """Sizes that neither three nor four ranks divide."""
    return ModelConfig(
        family=family,
        hidden_size=108,
        num_layers=2,
        num_heads=6,
        num_kv_heads=2,
        intermediate_size=203,
        context_tokens=32,
        tie_embeddings=tied,
        mup_base_hidden_size=36 if family == "granite" else 0,
    )


def check(family: Family, replicas: int, shards: int) -> None:
    """Weights and buffers are those of an unsharded model, bit for bit, and it computes what that computes."""
    tied = family in ("llama", "granite")
    wanted = shape(family, tied=tied)
    config = huggingface_config(wanted, vocabulary_size=VOCABULARY, eos_id=2)
    whole = build(config)
    initialise(whole, wanted, seed=3)
    model = build(config, device="meta", trains=True)
    mesh = init_device_mesh("cpu", (replicas, shards), mesh_dim_names=("replicate", "shard"))
    for layer in decoder_layers(model):
        fully_shard(layer, mesh=mesh if replicas > 1 else mesh["shard"])
    fully_shard(model, mesh=mesh if replicas > 1 else mesh["shard"])
    materialise(model, shape=wanted, seed=3, device="cpu")
    for (name, ours), theirs in zip(model.named_parameters(), whole.parameters(), strict=True):
        assert ours.to_local().numel() < theirs.numel(), name
        assert torch.equal(ours.full_tensor(), theirs), name
    for (name, ours), theirs in zip(model.named_buffers(), whole.buffers(), strict=True):
        assert torch.equal(ours, theirs), name
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
    ids = torch.arange(2 * 11).reshape(2, 11)
    logits = model(input_ids=ids).logits
    logits.square().sum().backward()
    whole_logits = whole(input_ids=ids).logits
    whole_logits.square().sum().backward()
    assert torch.allclose(logits, whole_logits, atol=1e-5)
    for (name, ours), theirs in zip(model.named_parameters(), whole.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        assert torch.allclose(ours.grad.full_tensor(), theirs.grad, rtol=1e-3, atol=1e-4 * theirs.grad.abs().max()), (
            name
        )
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied


def run_rank(families: tuple[Family, ...], replicas: int, shards: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for family in families:
        check(family, replicas, shards)
    dist.destroy_process_group()
