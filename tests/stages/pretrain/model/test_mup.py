"""A user relies on: with maximal update parametrisation, a learning rate that is right for a small model is right for a
wide one.

The coordinate check (Yang et al., 2022, "Tensor Programs V", appendix D.1): after a few steps at a high learning rate,
what the layers hold has the same size at every width; in standard parametrisation it grows with the width.
"""

import torch

from stages.pretrain.model.build import build, huggingface_config
from stages.pretrain.model.initialise import initialise, lr_multiplier
from stages.pretrain.model.shape import ModelConfig

BASE, WIDTHS, HEAD = 32, (32, 128, 256), 8
VOCABULARY = 128


def sizes(width: int, *, mup: bool, steps: int = 4) -> tuple[float, float]:
    """Mean magnitude of the last layer's output and of the logits after `steps` steps at a high learning rate."""
    shape = ModelConfig(
        family="granite",
        hidden_size=width,
        num_layers=2,
        num_heads=width // HEAD,
        num_kv_heads=width // HEAD,
        intermediate_size=3 * width,
        context_tokens=32,
        tie_embeddings=False,
        mup_base_hidden_size=BASE if mup else 0,
    )
    model = build(huggingface_config(shape, vocabulary_size=VOCABULARY, eos_id=2))
    initialise(model, shape, seed=1)
    groups = [
        {"params": [parameter], "lr": 2e-2 * lr_multiplier(shape, name)} for name, parameter in model.named_parameters()
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    ids = torch.randint(3, VOCABULARY, (4, 32), generator=torch.Generator().manual_seed(0))
    for _ in range(steps):
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        found = model(input_ids=ids, output_hidden_states=True)
    return found.hidden_states[-2].abs().mean().item(), found.logits.abs().mean().item()


def growth(*, mup: bool) -> list[tuple[float, float]]:
    """By what both sizes differ from those of the narrowest model, at each greater width."""
    narrow, *wide = (sizes(width, mup=mup) for width in WIDTHS)
    return [(hidden / narrow[0], logits / narrow[1]) for hidden, logits in wide]


def test_activations_keep_their_size_at_every_width() -> None:
    assert all(0.5 < ratio < 2 for ratios in growth(mup=True) for ratio in ratios)


def test_in_standard_parametrisation_they_grow() -> None:
    """The negative control."""
    found = growth(mup=False)
    assert all(wider > narrower for narrower, wider in zip(*found, strict=True)) and min(found[-1]) > 4
