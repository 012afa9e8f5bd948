"""A user relies on: compiling changes rounding only, is done once for all layers, and leaves hooks where they are."""

import pytest
import torch
import torch._dynamo

from stages.pretrain.config import PretrainConfig
from stages.pretrain.memory import recompute
from stages.pretrain.model.attention import Attention, implementation
from stages.pretrain.model.build import build, huggingface_config
from stages.pretrain.model.compiled import compile_layers
from stages.pretrain.model.initialise import initialise
from tests.stages.pretrain import micro

SHAPE = micro.MODEL.model_copy(update={"num_layers": 11})  # more than dynamo compiles anew before it gives up


def made() -> torch.nn.Module:
    config = huggingface_config(SHAPE, vocabulary_size=micro.VOCABULARY, eos_id=micro.EOS)
    model = build(config, implementation("sdpa"), trains=True)
    initialise(model, SHAPE, seed=1)
    return model


def gradients(model: torch.nn.Module, positions: torch.Tensor) -> dict[str, torch.Tensor]:
    ids = torch.arange(positions.numel()).view(positions.shape) % micro.VOCABULARY
    arguments = Attention("sdpa", True, torch.float32).arguments(positions)
    model.zero_grad(set_to_none=True)
    objective, _ = model(input_ids=ids, targets=ids, **arguments)
    objective.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def positions(*rows: tuple[int, ...]) -> torch.Tensor:
    """Of rows that hold documents of these lengths."""
    return torch.stack([torch.cat([torch.arange(length) for length in row]) for row in rows])


@pytest.mark.parametrize("mode", ["none", "full"])
def test_all_layers_and_all_documents_share_one_compilation(mode: str) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    plain, compiled = made(), made()
    recompute.apply(PretrainConfig(recompute=mode), compiled)
    compile_layers(compiled, backend="aot_eager")
    seen = []
    compiled.model.layers[3].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    batches = (
        positions((5, 8), (13,), (1, 12)),
        positions((13,), (2, 2, 2, 2, 5), (6, 7)),
        positions((13,), (13,), (13,)),
    )
    for batch in batches:
        expected = gradients(plain, batch)
        for name, gradient in gradients(compiled, batch).items():
            assert torch.allclose(gradient, expected[name], rtol=1e-4, atol=1e-5), name
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]
    assert len(seen) == len(batches), "a hook was compiled away, or ran again where activations are recomputed"
