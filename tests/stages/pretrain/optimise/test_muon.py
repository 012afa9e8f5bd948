import pytest
import torch

from stages.pretrain.optimise.exchange import Team, compute_whole, rows_of_shards
from stages.pretrain.optimise.guarded import Update
from stages.pretrain.optimise.muon import Muon, orthogonalised
from tests.stages.pretrain.optimise import made

ALONE = Team(shards=None, replicas=None, device=torch.device("cpu"))


def drawn(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("rows", "columns"), [(48, 48), (20, 70), (70, 20), (1, 9), (9, 1)])
def test_singular_values_come_near_to_one_and_singular_vectors_stay(rows: int, columns: int) -> None:
    """Those between the greatest and a fiftieth of it."""
    u, s, v = torch.linalg.svd(drawn(rows, columns), full_matrices=False)
    s = torch.linspace(1.0, 0.02, len(s)) * 7.0
    found = orthogonalised(u @ torch.diag(s) @ v)
    inner = u.T @ found @ v.T
    assert torch.allclose(inner, torch.diag(inner.diagonal()), atol=1e-4)
    assert inner.diagonal().min() > 0.6 and inner.diagonal().max() < 1.3


def test_nothing_to_orthogonalise_is_nothing() -> None:
    assert not orthogonalised(torch.zeros(3, 5)).any()


def test_steps_are_those_of_the_formula() -> None:
    weight = made.weight(drawn(12, 30), decay=0.6, learning_rate_ratio=0.25)
    muon = Muon(made.config(optimizer="muon", muon_momentum=0.8), [weight], ALONE)
    expected, momentum = drawn(12, 30), torch.zeros(12, 30)
    for step in range(1, 4):
        gradient = drawn(12, 30, seed=step)
        weight.parameter.grad = gradient.clone()
        update = Update(0.02, torch.tensor(0.25), torch.tensor(0.0), torch.tensor(float(step)))
        muon.step(update)
        momentum = 0.8 * momentum + 0.25 * gradient
        direction = 0.2 * 30**0.5 * orthogonalised(0.25 * gradient + 0.8 * momentum)
        expected = expected - 0.02 * 0.5 * (direction + 0.3 * expected)
        assert torch.allclose(weight.values, expected, atol=1e-6)
    # Singular values near 1 make the root mean square of an update about 0.2.
    assert 0.12 < direction.square().mean().sqrt() < 0.25
    (stored,) = muon.tensors().values()
    assert torch.allclose(stored, momentum, atol=1e-6)


def test_with_maximal_update_parametrisation_an_update_is_as_strong_at_any_width() -> None:
    """In its greatest singular value. AdamW's ratio of the learning rate is one over the width."""
    strengths = []
    for width in (32, 128):
        weight = made.weight(torch.zeros(width, width), learning_rate_ratio=32 / width)
        muon = Muon(made.config(optimizer="muon"), [weight], ALONE)
        weight.parameter.grad = drawn(width, width)
        muon.step(Update(0.02, torch.tensor(1.0), torch.tensor(0.0), torch.tensor(1.0)))
        strengths.append(torch.linalg.matrix_norm(weight.values, ord=2).item())
    assert strengths[1] == pytest.approx(strengths[0], rel=0.15)


def test_a_step_that_is_skipped_changes_nothing() -> None:
    weight = made.weight(drawn(12, 30), decay=0.3)
    muon = Muon(made.config(optimizer="muon"), [weight], ALONE)
    for skip in (0.0, 1.0):
        before = weight.values.clone(), *(tensor.clone() for tensor in muon.tensors().values())
        weight.parameter.grad = drawn(12, 30) * (float("nan") if skip else 1.0)
        muon.step(Update(0.02, torch.tensor(float("nan") if skip else 1.0), torch.tensor(skip), torch.tensor(1.0)))
        after = weight.values, *muon.tensors().values()
        assert all(torch.equal(*pair) == bool(skip) for pair in zip(before, after, strict=True))


def test_one_process_computes_each_matrix_in_place_of_it() -> None:
    parts = [drawn(4, 3), drawn(2, 5), drawn(7, 1)]
    shapes = [(part.shape[0], part.shape[1]) for part in parts]
    found = compute_whole(ALONE, parts, shapes, lambda matrix: -matrix, torch.float32)
    assert all(torch.equal(result, -part) for result, part in zip(found, parts, strict=True))


def test_shards_have_the_rows_that_torch_gives_them() -> None:
    for rows in range(12):
        for shards in range(1, 8):
            chunks = [len(chunk) for chunk in torch.zeros(rows, 1).chunk(shards)] if rows else []
            assert rows_of_shards(rows, shards) == chunks + [0] * (shards - len(chunks))
