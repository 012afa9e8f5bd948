import pytest
import torch

from stages.pretrain.optimise.average import Average
from stages.pretrain.optimise.guarded import Update
from tests.stages.pretrain.optimise import made


def update(count: int, *, skip: bool = False) -> Update:
    return Update(0.1, torch.tensor(1.0), torch.tensor(float(skip)), torch.tensor(float(count)))


def test_it_forgets_faster_at_first_and_by_its_decay_later() -> None:
    weight = made.weight(torch.tensor([[2.0, -1.0]]))
    average = Average([weight], decay=0.6)
    (kept,) = average.tensors().values()
    expected = weight.values.clone()
    for count in range(1, 40):
        weight.values.copy_(torch.tensor([[float(count), -(0.5**count)]]))
        average.step(update(count))
        decay = min(0.6, (1 + count) / (10 + count))
        expected = decay * expected + (1 - decay) * weight.values
        assert kept[0].tolist() == pytest.approx(expected[0].tolist(), rel=1e-5)
    assert list(average.tensors()) == [weight.name]


def test_a_step_that_is_skipped_leaves_every_bit() -> None:
    weight = made.weight(torch.tensor([[2.0, float("nan")]]))
    average = Average([made.weight(torch.tensor([[-0.0, 1.0]]))], decay=0.9)
    average._weights = [weight]
    (kept,) = average.tensors().values()
    average.step(update(1, skip=True))
    assert kept.view(torch.int32).tolist() == torch.tensor([[-0.0, 1.0]]).view(torch.int32).tolist()
