"""A user relies on: the loss that is trained on is the cross-entropy, to rounding, however it is cut into pieces."""

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from data.order.loader import IGNORE
from stages.pretrain.model.fused_loss import summed_losses
from stages.pretrain.model.loss import Scoring, trained


@dataclass(frozen=True)
class Case:
    hidden: torch.Tensor
    matrix: torch.Tensor
    targets: torch.Tensor
    scoring: Scoring
    divisor: float


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rows, tokens, width, vocabulary = (draw(st.integers(1, most)) for most in (3, 40, 9, 50))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    size = draw(st.sampled_from([0.1, 1.0, 30.0]))
    targets = torch.randint(0, vocabulary, (rows, tokens), generator=generator)
    ignored = torch.rand(rows, tokens, generator=generator) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    return Case(
        hidden=torch.randn(rows, tokens, width, generator=generator) * size,
        matrix=torch.randn(vocabulary + draw(st.integers(0, 5)), width, generator=generator),
        targets=targets.masked_fill(ignored, IGNORE),
        scoring=Scoring(
            vocabulary_size=vocabulary,
            chunk_tokens=draw(st.integers(1, 50)),
            z_loss=draw(st.sampled_from([0.0, 1e-4, 0.3])),
        ),
        divisor=draw(st.sampled_from([1.0, 2.5])),
    )


def expected(case: Case, by: float) -> tuple[torch.Tensor, ...]:
    """objective, loss, and the gradients of by x objective, by their definition, in float64."""
    hidden, matrix = (tensor.detach().double().requires_grad_() for tensor in (case.hidden, case.matrix))
    scores = (hidden @ matrix[: case.scoring.vocabulary_size].t() / case.divisor).flatten(0, -2)
    targets = case.targets.flatten()
    loss = F.cross_entropy(scores, targets, ignore_index=IGNORE, reduction="sum")
    squares = scores.logsumexp(-1)[targets != IGNORE].square().sum()
    objective = loss + case.scoring.z_loss * squares
    (objective * by).backward()
    return objective.detach(), loss.detach(), hidden.grad, matrix.grad


def found(case: Case, by: float) -> tuple[torch.Tensor, ...]:
    hidden, matrix = (tensor.detach().clone().requires_grad_() for tensor in (case.hidden, case.matrix))
    objective, loss = summed_losses(hidden, matrix, case.targets, scoring=case.scoring, divisor=case.divisor)
    assert objective.dtype == loss.dtype == torch.float32 and not loss.requires_grad
    (objective * by).backward()
    assert hidden.grad is not None and matrix.grad is not None
    return objective.detach(), loss, hidden.grad, matrix.grad


def close(ours: torch.Tensor, wanted: torch.Tensor, error: float) -> bool:
    return bool((ours.double() - wanted.double()).norm() <= error * (1 + wanted.double().norm()))


@settings(max_examples=150, deadline=None)
@given(cases())
def test_it_is_the_cross_entropy_and_so_are_its_gradients(case: Case) -> None:
    for ours, wanted in zip(found(case, 0.25), expected(case, 0.25), strict=True):
        assert torch.isfinite(ours).all()
        assert close(ours, wanted, 1e-5)
    if (case.targets == IGNORE).all():
        assert not any(tensor.any() for tensor in found(case, 0.25))
    assert not found(case, 1.0)[3][case.scoring.vocabulary_size :].any(), "rows that only pad learnt"


def small(*, dtype: torch.dtype = torch.float32, z_loss: float = 1e-3) -> Case:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 90, (2, 70), generator=generator)
    targets[0, :9] = IGNORE
    return Case(
        hidden=torch.randn(2, 70, 32, generator=generator).to(dtype),
        matrix=torch.randn(96, 32, generator=generator).to(dtype),
        targets=targets,
        scoring=Scoring(vocabulary_size=90, chunk_tokens=48, z_loss=z_loss),
        divisor=1.0,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_only_the_products_are_of_low_precision(dtype: torch.dtype) -> None:
    """Weights are float32 then; a sharded model of low precision has gathered weights of that precision itself."""
    exact, gathered = expected(small(), 1.0), found(small(dtype=dtype), 1.0)
    with torch.autocast("cpu", dtype=dtype):
        cast = found(small(), 1.0)
    assert [tensor.dtype for tensor in cast] == [torch.float32] * 4
    assert [tensor.dtype for tensor in gathered] == [torch.float32] * 2 + [dtype] * 2
    for low in (cast, gathered):
        assert all(close(ours, wanted, 0.01) for ours, wanted in zip(low, exact, strict=True))
    assert not close(cast[3], exact[3], 1e-5), "the products were not of low precision"


def test_many_small_gradients_of_the_matrix_are_summed_in_float32() -> None:
    """256 chunks: a sum in bfloat16 would stand still once an addend is below half of its last place."""
    scoring = Scoring(vocabulary_size=2, chunk_tokens=16)
    hidden, matrix = torch.ones(4096, 1).requires_grad_(), torch.zeros(2, 1).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        objective, _ = summed_losses(hidden, matrix, torch.zeros(4096, dtype=torch.int64), scoring=scoring)
    objective.backward()
    assert matrix.grad is not None and matrix.grad.flatten().tolist() == [-2048.0, 2048.0]


def test_scores_are_never_held_whole() -> None:
    """Neither while they are computed nor for the backward pass."""
    case, most = small(), []
    hidden, matrix = case.hidden.requires_grad_(), case.matrix.requires_grad_()

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), settings=None):  # type: ignore[no-untyped-def]
            made = function(*arguments, **(settings or {}))
            most.extend(len(made) for _ in [0] if isinstance(made, torch.Tensor) and made.shape[-1:] == (90,))
            return made

    with Sizes():
        summed_losses(hidden, matrix, case.targets, scoring=case.scoring)[0].backward()
    assert max(most) == case.scoring.chunk_tokens < case.targets.numel()


def test_without_gradients_none_are_computed() -> None:
    case = small()
    with torch.no_grad():
        objective, loss = summed_losses(
            case.hidden.requires_grad_(), case.matrix.requires_grad_(), case.targets, scoring=case.scoring
        )
    wanted = expected(case, 1.0)
    assert not objective.requires_grad
    assert close(objective, wanted[0], 1e-6) and close(loss, wanted[1], 1e-6)


def test_a_second_backward_pass_is_refused() -> None:
    """The first has multiplied the gradients where they lie."""
    case = small()
    objective, _ = summed_losses(case.hidden.requires_grad_(), case.matrix, case.targets, scoring=case.scoring)
    (objective * 2).backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (objective * 2).backward()


def test_it_can_be_compiled() -> None:
    case = small()
    hidden, matrix = case.hidden.requires_grad_(), case.matrix.requires_grad_()
    compiled = torch.compile(summed_losses, backend="aot_eager")
    objective, loss = compiled(hidden, matrix, case.targets, scoring=case.scoring)
    objective.backward()
    for ours, wanted in zip((objective.detach(), loss, hidden.grad, matrix.grad), expected(case, 1.0), strict=True):
        assert close(ours, wanted, 1e-5)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3", "Granite"])
def test_a_model_of_any_family_is_scored_as_its_own_forward_pass_would(family: str, tied: bool) -> None:
    import transformers

    shape = {
        "vocab_size": 96,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "max_position_embeddings": 32,
        "tie_word_embeddings": tied,
    }
    if family == "Granite":
        shape |= {"logits_scaling": 3.0, "attention_multiplier": 0.25, "embedding_multiplier": 2.0}
    torch.manual_seed(0)
    cls = getattr(transformers, f"{family}ForCausalLM")
    model = trained(cls)._from_config(getattr(transformers, f"{family}Config")(**shape))
    assert type(model) is not cls and type(model).__name__ == cls.__name__ and trained(cls) is type(model)
    model.scoring = Scoring(vocabulary_size=90, chunk_tokens=7)
    inputs, targets = torch.randint(0, 90, (2, 11)), torch.randint(0, 90, (2, 11))
    targets[1, 3:] = IGNORE

    logits = model(input_ids=inputs, use_cache=False).logits[..., :90]
    wanted = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum")
    wanted.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    objective, loss = model(input_ids=inputs, targets=targets)
    objective.backward()
    assert torch.equal(objective.detach(), loss) and close(loss, wanted.detach(), 1e-6)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and close(parameter.grad, gradients[name], 1e-5), name
