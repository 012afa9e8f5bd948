import pytest
import torch

from stages.pretrain.optimise.norms import squared_norms, squares_of
from tests.stages.pretrain.optimise import made


def test_every_gradient_counts_in_its_group() -> None:
    module = made.model()
    for name, parameter in module.named_parameters():
        parameter.grad = made.drawn(name, 1)
    found = squared_norms(module)
    assert list(found) == ["embedding", "attention", "feed_forward", "norm", "head"]
    attention = [made.drawn(name, 1).double().square().sum() for name in made.SHAPES if "self_attn" in name]
    assert found["attention"].item() == pytest.approx(sum(attention).item(), rel=1e-7)
    whole = sum(made.drawn(name, 1).double().square().sum() for name in made.SHAPES)
    assert sum(found.values()).item() == pytest.approx(whole.item(), rel=1e-7)
    assert all(square.dtype == torch.float64 and square.shape == () for square in found.values())


def test_it_depends_on_the_sharding_by_far_less_than_a_sum_in_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(3000, 700, generator=generator) * 1e-3
    exact = matrix.double().square().sum().item()

    def square(tensor: torch.Tensor) -> float:
        return squares_of({"model.layers.0.mlp.up_proj.weight": tensor})["feed_forward"].item()

    parts = sum(square(part) for part in matrix.chunk(7))
    assert square(matrix) == pytest.approx(exact, rel=1e-8)
    assert parts == pytest.approx(square(matrix), rel=1e-12)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_shows(value: float) -> None:
    module = made.model()
    for name, parameter in module.named_parameters():
        parameter.grad = made.drawn(name, 1)
    module.get_parameter("model.norm.weight").grad[3] = value  # type: ignore[index]
    found = squared_norms(module)
    assert {group for group, square in found.items() if not square.isfinite()} == {"norm"}


def test_a_parameter_without_a_gradient_is_named() -> None:
    with pytest.raises(AssertionError, match=r"model\.embed_tokens\.weight has no gradient"):
        squared_norms(made.model())
