import math

import pytest
import torch

from stages.pretrain.optimise.optimizer import build_optimizer, create_state, decays, learning_rate, set_learning_rate
from tests.stages.pretrain import micro


def test_the_learning_rate_warms_up_and_falls_along_a_cosine() -> None:
    config = micro.config(num_steps=100, warmup_ratio=0.1, learning_rate=1.0, final_learning_rate_ratio=0.05)
    table = [learning_rate(config, step) for step in range(1, 101)]
    assert table[:10] == pytest.approx([step / 10 for step in range(1, 11)])
    assert table[54] == pytest.approx(0.525)
    assert table[-1] == pytest.approx(0.05)
    for step in range(10, 101):
        expected = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step - 10) / 90))
        assert table[step - 1] == pytest.approx(expected)


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_no_warm_up_and_nothing_but_warm_up(ratio: float) -> None:
    config = micro.config(num_steps=4, warmup_ratio=ratio, learning_rate=1.0)
    table = [learning_rate(config, step) for step in range(1, 5)]
    assert table[-1] == pytest.approx(1.0 if ratio else 0.05)
    assert all(0 < rate <= 1 for rate in table)


def test_the_learning_rate_does_not_depend_on_the_layout() -> None:
    layouts = [micro.config(), micro.config(num_processes=3, threads=4), micro.config(micro_batch_sequences=1)]
    tables = [[learning_rate(config, step) for step in range(1, 21)] for config in layouts]
    assert tables[0] == tables[1] == tables[2]


def test_matrices_decay_norms_do_not_and_embeddings_do_by_choice() -> None:
    matrix, vector = torch.zeros(2, 2), torch.zeros(2)
    assert decays("model.layers.0.mlp.up_proj.weight", matrix, decay_embeddings=False)
    assert not decays("model.norm.weight", vector, decay_embeddings=True)
    assert decays("model.embed_tokens.weight", matrix, decay_embeddings=True)
    assert not decays("model.embed_tokens.weight", matrix, decay_embeddings=False)


def one_weight(learning_rate: float, weight_decay: float) -> tuple[torch.nn.Linear, torch.optim.AdamW]:
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    config = micro.config(
        learning_rate=learning_rate, weight_decay=weight_decay, precision="bf16", beta1=0.0, beta2=0.0
    )
    optimizer = build_optimizer(config, model)
    create_state(optimizer)
    set_learning_rate(optimizer, learning_rate)
    return model, optimizer


def test_updates_below_a_bf16_step_add_up_in_the_master_weights() -> None:
    model, optimizer = one_weight(1e-3, 0.0)
    for _ in range(1000):
        model.weight.grad = torch.tensor([[-1.0]])
        optimizer.step()
    assert model.weight.item() == pytest.approx(2.0, rel=1e-3)

    model, optimizer = one_weight(1e-4, 0.1)
    for _ in range(1000):
        model.weight.grad = torch.zeros(1, 1)
        optimizer.step()
    assert model.weight.item() == pytest.approx(0.990, abs=1e-4)

    bf16 = torch.tensor(1.0, dtype=torch.bfloat16)
    assert bf16 + 1e-3 == bf16, "in bf16 itself neither update would move the weight"


def test_a_parameter_without_a_gradient_has_state_too() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    optimizer = build_optimizer(micro.config(), model)
    create_state(optimizer)
    model[0](torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert optimizer.state[model[0].weight]["step"] == 1
    assert optimizer.state[model[1].weight]["step"] == 0
    assert all(set(state) == {"step", "exp_avg", "exp_avg_sq"} for state in optimizer.state.values())
