"""A user relies on: a document is learnt from as if it stood alone, whatever computes attention and however many rows
stand beside it.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from data.errors import InputError
from stages.pretrain.model.attention import BACKENDS, BORDERS, Attention, implementation, require_usable
from stages.pretrain.model.build import build, huggingface_config
from stages.pretrain.model.documents import attend, borders_of
from stages.pretrain.model.initialise import initialise
from tests.stages.pretrain import micro
from tests.stages.pretrain.conftest import Build

# What torch itself does on the way to flex_attention.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning"),
]

VOCABULARY = 101
HERE = sorted(BACKENDS.keys() - {"flash"})  # flash has no kernel for a CPU
FIRST, SECOND = 5, 6  # tokens of the two documents of a row


@pytest.fixture(autouse=True)
def flex_by_its_definition() -> Iterator[None]:
    """torch.compile would take a minute for flex_attention on a CPU; uncompiled it is plain tensor operations."""
    with torch.compiler.set_stance("force_eager"):
        yield


def made(backend: str) -> torch.nn.Module:
    shape = micro.MODEL.model_copy(update={"context_tokens": 64, "initializer_std": 0.3})
    config = huggingface_config(shape, vocabulary_size=VOCABULARY, eos_id=2)
    model = build(config, implementation(backend))
    initialise(model, shape, seed=1)
    return model


def logits(model: torch.nn.Module, how: Attention, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False, **how.arguments(positions)).logits


def rows(count: int, *, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (count, FIRST + SECOND), generator=generator)


def packed(count: int) -> torch.Tensor:
    """int32[count, 11]: positions of rows of two documents each; the last row holds one more, so that rows differ."""
    positions = torch.cat([torch.arange(FIRST), torch.arange(SECOND)]).int().repeat(count, 1)
    positions[-1, -2:] = torch.tensor([0, 1])
    return positions


def computing_in(dtype: torch.dtype) -> AbstractContextManager[Any]:
    """As a training computes its matrix products."""
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize("backend", HERE)
def test_another_document_in_the_row_changes_nothing(
    backend: str, num_rows: int, dtype: torch.dtype, error: float
) -> None:
    model, how = made(backend), Attention(backend, True, dtype)
    ids, positions = rows(num_rows), packed(num_rows)
    with computing_in(dtype):
        found = logits(model, how, ids, positions)
        other = ids.clone()
        other[:, :FIRST] = rows(num_rows, seed=1)[:, :FIRST]
        changed = logits(model, how, other, positions)
        assert torch.equal(changed[:, FIRST:], found[:, FIRST:])
        assert not torch.allclose(changed[:, :FIRST], found[:, :FIRST], atol=10 * error)
        alone = logits(model, how, ids[:1, FIRST:-2], positions[:1, FIRST:-2])
        assert torch.allclose(alone, found[:1, FIRST:-2], atol=error)
        last = logits(model, how, ids[-1:, -2:], positions[-1:, -2:])
        assert torch.allclose(last, found[-1:, -2:], atol=error), "the third document of a row"
    assert found.dtype == dtype


@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize("backend", HERE)
def test_positions_alone_would_not_do_and_attention_across_documents_is_a_choice(backend: str, num_rows: int) -> None:
    """The negative control: with the same positions but no isolation, the first document shows in the second."""
    model, ids = made(backend), rows(num_rows)
    other = ids.clone()
    other[:, :FIRST] = rows(num_rows, seed=1)[:, :FIRST]
    across, positions = Attention(backend, False, torch.float32), torch.arange(FIRST + SECOND).repeat(num_rows, 1)
    found = logits(model, across, ids, positions)
    assert not torch.allclose(logits(model, across, other, positions)[:, FIRST:], found[:, FIRST:], atol=1e-3)
    plain = logits(made("sdpa"), Attention("sdpa", False, torch.float32), ids, positions)
    assert torch.allclose(found, plain, atol=1e-5)
    reset = logits(model, across, ids, packed(num_rows)), logits(model, across, other, packed(num_rows))
    assert not torch.allclose(reset[0][:, FIRST:], reset[1][:, FIRST:], atol=1e-3)


@pytest.mark.parametrize("backend", HERE)
def test_long_rows_whose_first_blocks_are_masked_are_right(backend: str) -> None:
    """Kernels take keys in blocks of up to 512."""
    tokens, border = 1300, 1100
    model, how = made(backend), Attention(backend, True, torch.float32)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, VOCABULARY, (1, tokens), generator=generator)
    positions = torch.cat([torch.arange(border), torch.arange(tokens - border)])[None]
    found = logits(model, how, ids, positions)
    assert torch.isfinite(found).all()
    assert torch.allclose(logits(model, how, ids[:, border:], positions[:, border:]), found[:, border:], atol=1e-5)


@pytest.mark.parametrize("backend", ["sdpa", "eager"])
def test_gradients_do_not_cross_documents(backend: str) -> None:
    model, how = made(backend), Attention(backend, True, torch.float32)
    embedded = model.get_input_embeddings()(rows(2)).detach().requires_grad_()
    arguments = how.arguments(packed(2))
    found = model(inputs_embeds=embedded, use_cache=False, **arguments).logits
    found[:, FIRST : FIRST + 2].sum().backward()
    assert embedded.grad is not None
    assert not embedded.grad[:, :FIRST].any() and embedded.grad[:, FIRST : FIRST + 2].any()


@pytest.fixture
def nothing_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both functions of transformers that read a mask or positions fail."""
    from transformers import masking_utils

    def guess(*arguments: Any, **settings: Any) -> None:
        raise AssertionError("transformers looked into what it was given")

    for name in ("find_packed_sequence_indices", "_ignore_causal_mask_sdpa"):
        assert hasattr(masking_utils, name)
        monkeypatch.setattr(masking_utils, name, guess)


@pytest.mark.parametrize("isolates", [True, False])
@pytest.mark.parametrize("backend", HERE)
def test_transformers_takes_what_it_is_given_and_guesses_nothing(
    backend: str, isolates: bool, nothing_is_guessed: None
) -> None:
    positions = packed(1) if isolates else torch.arange(FIRST + SECOND)[None]
    logits(made(backend), Attention(backend, isolates, torch.float32), rows(1), positions)


@pytest.mark.parametrize("settings", [{}, {"packing": "length-buckets"}, {"cross_document_attention": True}])
def test_neither_is_anything_guessed_in_a_training(
    settings: dict[str, Any], build: Build, nothing_is_guessed: None
) -> None:
    training, _ = build(micro.config(**settings))
    for step in range(12):
        (rows,) = training.train_feed.place(training.train.batch(step)).micro_batches
        arguments = training.attention.arguments(rows.positions, rows.borders)
        training.model(input_ids=rows.inputs, targets=rows.targets, **arguments)


@st.composite
def segments(draw: st.DrawFn) -> torch.Tensor:
    """int32[rows, tokens]: positions of rows of 1 to 700 tokens, in segments of 1 token to all of them."""
    num_rows, tokens = draw(st.integers(1, 3)), draw(st.one_of(st.integers(1, 700), st.sampled_from([128, 256, 640])))
    first = torch.zeros(num_rows, tokens, dtype=torch.int32)
    for row in range(num_rows):
        for start in sorted(draw(st.sets(st.integers(0, tokens - 1), max_size=6))):
            first[row, start:] = start
    return torch.arange(tokens, dtype=torch.int32) - first


@settings(max_examples=60, deadline=None)
@given(segments())
def test_the_blocks_of_flex_are_those_of_the_dense_mask(positions: torch.Tensor) -> None:
    num_rows, tokens = positions.shape
    found = Attention("flex", True, torch.float32).arguments(positions)["attention_mask"]
    first = torch.arange(tokens) - positions
    expected = create_block_mask(
        lambda row, head, query, key: (key <= query) & (key >= first[row, query]),
        num_rows, None, tokens, tokens, device="cpu",
    )  # fmt: skip
    for ours, theirs in zip(found.as_tuple(), expected.as_tuple(), strict=True):
        if isinstance(theirs, torch.Tensor):
            assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)
        elif not callable(theirs):
            assert ours == theirs


def test_the_mask_is_small_and_of_the_type_that_attention_uses() -> None:
    positions = packed(3)
    masks = {
        (backend, isolates): Attention(backend, isolates, torch.bfloat16).arguments(positions)["attention_mask"]
        for backend in HERE
        for isolates in (True, False)
    }
    assert masks["eager", True].shape == (3, 1, 11, 11)
    assert masks["eager", True].dtype == masks["eager", False].dtype == torch.bfloat16
    assert masks["eager", False].shape == (1, 1, 11, 11)
    assert masks["sdpa", False] is None and masks["sdpa", True] is None, "left to kernels that are told the borders"
    assert isinstance(masks["flex", True], BlockMask) and isinstance(masks["flex", False], BlockMask)
    open_places = (masks["eager", True] == 0).sum((1, 2, 3)).tolist()
    assert open_places == [15 + 21, 15 + 21, 15 + 10 + 3]


def test_where_there_is_no_kernel_for_documents_sdpa_has_a_mask() -> None:
    """As on a GPU; it comes to the same."""
    model, ids, positions = made("sdpa"), rows(3), packed(3)
    documents = logits(model, Attention("sdpa", True, torch.float32), ids, positions)
    mask = Attention("eager", True, torch.float32).arguments(positions)["attention_mask"]
    with torch.no_grad():
        masked = model(input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False).logits
    assert torch.allclose(documents, masked, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(segments())
def test_borders_are_where_positions_begin_anew_and_where_rows_do(positions: torch.Tensor) -> None:
    tokens = positions.shape[1]
    expected = [row * tokens + place for row, place in (positions == 0).nonzero().tolist()]
    found = borders_of(positions)
    assert found.dtype == torch.int32 and found.tolist() == [*expected, positions.numel()]
    late = positions.clone()
    late[:, 0] = 7  # a document's later part
    assert borders_of(late).tolist() == found.tolist()


@settings(max_examples=40, deadline=None)
@given(segments(), st.sampled_from([(6, 6), (6, 2), (4, 1)]), st.sampled_from([8, 16, 48]))
def test_the_kernel_for_documents_and_its_gradients_are_those_of_a_mask(
    positions: torch.Tensor, heads: tuple[int, int], width: int
) -> None:
    require_like_a_mask(positions, heads, width)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_kernels_for_narrow_heads_compute_half_precision_in_float32(dtype: torch.dtype) -> None:
    """So that a result is that of float32, rounded; gradients take the rounded result."""
    whole = [torch.randn(2, 3, 40, 16).to(dtype).float().requires_grad_() for _ in range(3)]
    half = [tensor.detach().to(dtype).requires_grad_() for tensor in whole]
    borders, gradient = torch.tensor([0, 40, 63, 80], dtype=torch.int32), torch.randn(2, 40, 3, 16).to(dtype)
    found, expected = attend(*half, borders, scale=0.3), attend(*whole, borders, scale=0.3)
    assert torch.equal(found, expected.to(dtype))
    found.backward(gradient)
    expected.backward(gradient.float())
    for mine, other in zip(half, whole, strict=True):
        assert mine.grad is not None and mine.grad.dtype == dtype
        assert torch.allclose(mine.grad.float(), other.grad, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("threads", [1, 3])
def test_long_documents_beside_short_ones_are_shared_out_among_threads(threads: int) -> None:
    lengths = [[70, 1, 17, 212], [300], [8, 8, 8, 276]]
    positions = torch.stack([torch.cat([torch.arange(length) for length in row]) for row in lengths])
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        require_like_a_mask(positions, (6, 2), 32)
        require_like_a_mask(positions, (3, 3), 16)
    finally:
        torch.set_num_threads(before)


def require_like_a_mask(positions: torch.Tensor, heads: tuple[int, int], width: int) -> None:
    from torch.nn.functional import scaled_dot_product_attention

    num_rows, tokens = positions.shape
    generator = torch.Generator().manual_seed(0)
    shapes = [(num_rows, count, tokens, width) for count in (heads[0], heads[1], heads[1])]
    ours = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    theirs = [tensor.detach().double().requires_grad_() for tensor in ours]
    found = attend(*ours, borders_of(positions), scale=0.3)
    mask = Attention("eager", True, torch.float64).arguments(positions)["attention_mask"] == 0
    expected = scaled_dot_product_attention(*theirs, attn_mask=mask, scale=0.3, enable_gqa=True).transpose(1, 2)
    gradient = torch.randn(found.shape, generator=generator)
    found.backward(gradient)
    expected.backward(gradient.double())
    assert torch.allclose(found.double(), expected, atol=1e-5)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.grad is not None and torch.allclose(mine.grad.double(), other.grad, atol=1e-4)


@pytest.mark.parametrize("width", [8, 16])
def test_torch_finds_the_operator_for_documents_in_order(width: int) -> None:
    """Its shapes without values, its gradient, and that it changes nothing that it is given."""
    from stages.pretrain.model.documents import _attend

    tensors = [torch.randn(3, 2, FIRST + SECOND, width, requires_grad=True) for _ in range(3)]
    torch.library.opcheck(_attend, (*tensors, borders_of(packed(3)), 0.3))


def test_scores_far_below_the_highest_and_what_is_not_finite_are_as_torch_has_them() -> None:
    """Weights that are too small to be told from 0, and NaN, which stays in its document."""
    query, key, value = (torch.randn(1, 2, FIRST + SECOND, 16) for _ in range(3))
    query[0, 0] *= 100
    borders = torch.tensor([0, FIRST, FIRST + SECOND], dtype=torch.int32)
    found, _ = torch.ops.longhaul.attend_documents(query, key, value, borders, 1.0)
    pieces = [
        torch.nn.functional.scaled_dot_product_attention(
            *(tensor[:, :, part].double() for tensor in (query, key, value)), is_causal=True, scale=1.0
        )
        for part in (slice(0, FIRST), slice(FIRST, None))
    ]
    assert torch.allclose(found.transpose(1, 2).double(), torch.cat(pieces, 2), atol=1e-3)
    key[0, 1, FIRST + 2, 3] = torch.nan
    found, _ = torch.ops.longhaul.attend_documents(query, key, value, borders, 1.0)
    finite = torch.isfinite(found).all(-1)[0]
    assert finite[:, 0].all() and finite[: FIRST + 2, 1].all() and not finite[FIRST + 2 :, 1].any()


@pytest.mark.parametrize("width", [8, 16])
def test_half_precision_is_what_autocast_makes_of_queries_keys_and_values_alike(width: int) -> None:
    """Rotary embedding leaves queries and keys in float32."""
    query, key = (torch.randn(1, 2, 11, width) for _ in range(2))
    value, borders = torch.randn(1, 2, 11, width).bfloat16(), borders_of(packed(1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = attend(query, key, value, borders, scale=0.3)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, attend(query.bfloat16(), key.bfloat16(), value, borders, scale=0.3))


@pytest.mark.parametrize("isolates", [True, False])
def test_flash_is_told_the_borders_of_documents_or_of_rows(isolates: bool) -> None:
    arguments = Attention("flash", isolates, torch.bfloat16).arguments(packed(2))
    assert arguments["attention_mask"] is None
    assert arguments[BORDERS].tolist() == ([0, 5, 11, 16, 20, 22] if isolates else [0, 11, 22])


@pytest.mark.parametrize("isolates", [True, False])
def test_a_back_end_that_is_not_known_is_not_trusted_to_isolate(isolates: bool) -> None:
    with pytest.raises(AssertionError, match="paged"):
        Attention("paged", isolates, torch.float32).arguments(packed(1))
    with pytest.raises(KeyError):
        made("paged")


def test_what_cannot_be_trained_with_is_refused() -> None:
    for backend in ("flash", "flex"):
        with pytest.raises(InputError, match="no backward pass on a CPU"):
            require_usable(backend, torch.device("cpu"), torch.bfloat16)
    with pytest.raises(InputError, match="half precision"):
        require_usable("flash", torch.device("cuda"), torch.float32)
    require_usable("flash", torch.device("cuda"), torch.bfloat16)
    require_usable("sdpa", torch.device("cpu"), torch.float32)
