import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from data.errors import InputError
from stages.pretrain.checkpoints import checkpoint, saver
from stages.pretrain.checkpoints.checkpoint import CHECKSUMS, StepState
from stages.pretrain.checkpoints.restricted import CheckpointError
from stages.pretrain.checkpoints.tensors import model_tensors, poison, state_digest
from stages.pretrain.monitor.records import Records
from stages.pretrain.step import Training
from tests.stages.pretrain import micro
from tests.stages.pretrain.conftest import Build
from tests.stages.pretrain.one_step import one_step, saved

PARTS = ("dcp/.metadata", "dcp/__0_0.distcp", "state.json", "config.json", "checksums.json")


def advance(training: Training, state: StepState, steps: int) -> StepState:
    for step in range(state.step + 1, state.step + steps + 1):
        one_step(training, step=step)
    return state.model_copy(update={"step": state.step + steps})


def stored(build: Build, tmp_path: Path, steps: int = 5, **settings: Any) -> tuple[Training, StepState, Path]:
    """A training that has made some steps, its state, and the folder of the checkpoint of just that state."""
    training, state = build(micro.config(**settings))
    state = advance(training, state, steps)
    run = micro.worker_job(training.config, tmp_path, tmp_path / "run").run
    with Records(run, writes=True) as records:
        return training, state, saved(training, state, records)


def copies(training: Training) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in training.tensors().items()}


@pytest.mark.parametrize("packing", ["stream", "best-fit", "length-buckets"])
def test_weights_and_moments_come_back_bitwise_and_the_run_goes_on_as_if_nothing_had_been(
    build: Build, tmp_path: Path, packing: str
) -> None:
    training, state, _ = stored(build, tmp_path, packing=packing)
    at_save = copies(training)
    advance(training, state, 3)
    undisturbed = copies(training)

    resumed, back = build(micro.config(packing=packing), resume_step=5)
    assert back == state
    assert {name for name in at_save if name.startswith("optimizer.")}
    for name, tensor in resumed.tensors().items():
        assert torch.equal(tensor, at_save[name]), name
    advance(resumed, back, 3)
    for name, tensor in resumed.tensors().items():
        assert torch.equal(tensor, undisturbed[name]), name


def test_weights_alone_would_not_do(build: Build, tmp_path: Path) -> None:
    training, state, directory = stored(build, tmp_path)
    advance(training, state, 3)
    undisturbed = copies(training)
    weights_only, fresh = build(micro.config())
    checkpoint.fill(directory / "dcp", model_tensors(weights_only.model), partly=True)
    advance(weights_only, fresh.model_copy(update={"step": 5}), 3)
    name = "model.model.embed_tokens.weight"
    assert not torch.equal(weights_only.tensors()[name], undisturbed[name])


def test_what_a_load_fills_is_poisoned_first(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(build, tmp_path)
    import torch.distributed.checkpoint as dcp

    monkeypatch.setattr(dcp, "load", lambda *args, **kwargs: None)
    training, _ = build(micro.config(), resume_step=5)
    assert all(tensor.isnan().all() for tensor in training.tensors().values())


def test_every_byte_counts(build: Build, tmp_path: Path) -> None:
    _, _, directory = stored(build, tmp_path)
    for part in PARTS[:-1]:
        path = directory / part
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=f"{path.name} has changed"):
            build(micro.config(), resume_step=5)
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    build(micro.config(), resume_step=5)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("damage", ["absent", "truncated", "empty"])
def test_an_incomplete_checkpoint_is_never_loaded(build: Build, tmp_path: Path, part: str, damage: str) -> None:
    _, _, directory = stored(build, tmp_path)
    path = directory / part
    if damage == "absent":
        path.unlink()
    else:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2] if damage == "truncated" else b"")
    assert checkpoint.problems(directory)
    with pytest.raises((CheckpointError, InputError)):
        build(micro.config(), resume_step=5)
    with pytest.raises(CheckpointError):
        checkpoint.load_model(directory)


def test_a_step_that_is_not_there_is_named_with_those_that_are(build: Build, tmp_path: Path) -> None:
    stored(build, tmp_path)
    with pytest.raises(InputError, match=r"no checkpoint of step 500 .* there: 5$"):
        build(micro.config(), resume_step=500)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(InputError, match="there: none"):
        build(micro.config(), resume_step=5)


def test_other_data_is_refused(build: Build, tmp_path: Path) -> None:
    training, _, _ = stored(build, tmp_path)
    with pytest.raises(InputError, match="made from other data"):
        checkpoint.load(training.checkpoints, 5, training.tensors(), data_fingerprint="another", excluded=())


def test_a_state_that_left_out_other_batches_is_refused(build: Build, tmp_path: Path) -> None:
    stored(build, tmp_path)
    build(micro.config(), resume_step=5, excluded=((5, 6),))
    with pytest.raises(InputError, match=r"made with the draws \[\] left out, now \[\(2, 3\)\]: restore excluded.json"):
        build(micro.config(), resume_step=5, excluded=((2, 3), (9, 11)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: {**tensors, "model.extra": torch.zeros(2)}, "model.extra is missing"),
        (lambda tensors: {**tensors, "model.model.norm.weight": torch.zeros(25)}, r"shape \[24\], not \[25\]"),
        (
            lambda tensors: {**tensors, "model.model.norm.weight": torch.zeros(24, dtype=torch.bfloat16)},
            "torch.float32, not torch.bfloat16",
        ),
    ],
)
def test_a_missing_key_and_a_changed_shape_or_dtype_are_errors(
    build: Build,
    tmp_path: Path,
    change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]],
    message: str,
) -> None:
    training, _, _ = stored(build, tmp_path)
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(
            training.checkpoints,
            5,
            change(training.tensors()),
            data_fingerprint="micro",
            excluded=(),
        )


def test_a_tensor_that_nothing_asks_for_is_an_error(build: Build, tmp_path: Path) -> None:
    """Such as moments that another optimizer would begin without."""
    training, _, directory = stored(build, tmp_path)
    fewer = {name: tensor for name, tensor in training.tensors().items() if not name.endswith(".exp_avg_sq")}
    with pytest.raises(CheckpointError, match=r"neither the model nor its optimizer has: optimizer\..*exp_avg_sq"):
        checkpoint.fill(directory / "dcp", fewer)
    checkpoint.fill(directory / "dcp", fewer, partly=True)


def test_a_state_of_another_schema_is_refused(build: Build, tmp_path: Path) -> None:
    _, _, directory = stored(build, tmp_path)
    path = directory / "state.json"
    content = json.loads(path.read_text())
    for schema in (checkpoint.SCHEMA + 1, None):
        path.write_text(json.dumps({**content, "schema_version": schema, "what": "is not known yet"}))
        with pytest.raises(InputError, match=f"has schema {schema}, and this version reads schema {checkpoint.SCHEMA}"):
            checkpoint.read_state(directory)


def test_what_has_just_been_verified_is_not_read_twice(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, state, _ = stored(build, tmp_path)
    monkeypatch.setattr(checkpoint, "sha256_file", lambda path: pytest.fail(f"{path} is hashed"))
    at_save = copies(training)
    advance(training, state, 1)
    found = checkpoint.load(
        training.checkpoints, 5, training.tensors(), data_fingerprint="micro", excluded=(), verified=True
    )
    assert found == state
    assert all(torch.equal(tensor, at_save[name]) for name, tensor in training.tensors().items())


def test_the_model_of_a_checkpoint_loads_by_itself(build: Build, tmp_path: Path) -> None:
    training, _, directory = stored(build, tmp_path)
    model = checkpoint.load_model(directory)
    assert not model.training
    padded = 0
    for name, tensor in model_tensors(model).items():
        whole = training.tensors()[name]
        padded += len(whole) - len(tensor)
        assert torch.equal(tensor, whole[: len(tensor)]), name
    assert padded == micro.PADDED - micro.VOCABULARY and model.config.vocab_size == micro.VOCABULARY
    assert model.lm_head.weight is model.model.embed_tokens.weight
    inputs = torch.arange(12).view(2, 6)
    with torch.no_grad():
        logits = training.model(input_ids=inputs).logits[..., : micro.VOCABULARY]
        assert torch.equal(model(input_ids=inputs).logits, logits)


def test_tables_that_are_not_saved_are_built_anew_and_right(build: Build, tmp_path: Path) -> None:
    training, _, directory = stored(build, tmp_path)
    assert not any("inv_freq" in name for name in training.tensors())
    model = checkpoint.load_model(directory)
    table = model.model.rotary_emb.inv_freq
    expected = 1e4 ** -(torch.arange(0, 4, 2, dtype=torch.float32) / 4)
    assert table.dtype == torch.float32
    assert torch.allclose(table, expected)


def test_the_digest_is_of_values_names_and_step_and_of_nothing_else(build: Build, tmp_path: Path) -> None:
    training, _ = build(micro.config())
    tensors = copies(training)
    digest = state_digest(tensors, {"step": 1})
    assert state_digest(dict(reversed(tensors.items())), {"step": 1}) == digest
    assert state_digest(tensors, {"step": 2}) != digest
    name = "model.model.norm.weight"
    renamed = {("other" if key == name else key): value for key, value in tensors.items()}
    assert state_digest(renamed, {"step": 1}) != digest
    reshaped = {**tensors, name: tensors[name].view(2, -1)}
    assert state_digest(reshaped, {"step": 1}) != digest
    moved = {**tensors, name: torch.nextafter(tensors[name], torch.tensor(9.0))}
    assert state_digest(moved, {"step": 1}) != digest
    strided = {**tensors, name: torch.stack([tensors[name], tensors[name]], dim=1)[:, 0]}
    assert state_digest(strided, {"step": 1}) == digest


def test_a_kill_before_the_rename_leaves_nothing_under_the_name(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, state = build(micro.config())

    def killed(work: Path, hashes: dict[str, str]) -> int:
        raise KeyboardInterrupt

    state = advance(training, state, 2)
    run = micro.worker_job(training.config, tmp_path, tmp_path / "run").run
    with Records(run, writes=True) as records, monkeypatch.context() as patch:
        patch.setattr(saver, "seal", killed)
        with pytest.raises(KeyboardInterrupt):
            saved(training, state, records)
    found = checkpoint.scan(training.checkpoints)
    assert not found.complete
    assert [path.name for path in found.unfinished] == ["step-00000002.tmp"]
    training, _ = build(micro.config())
    with Records(run, writes=True) as records:
        saved(training, state, records)
    assert list(checkpoint.scan(training.checkpoints).complete) == [2]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_only_exact_names_are_checkpoints(tmp_path: Path) -> None:
    others = {"step-00000100.backup", "old-step-00000200", "step-9", "step-000000300", "notes"}
    for name in {*others, "step-00000100", "step-00000020", "step-00000030.tmp", "step-00000040"}:
        (tmp_path / name).mkdir()
        (tmp_path / name / CHECKSUMS).write_text(json.dumps({}))
    (tmp_path / "step-00000040" / CHECKSUMS).unlink()
    found = checkpoint.scan(tmp_path)
    assert list(found.complete) == [20, 100]
    assert {path.name for path in found.unfinished} == {"step-00000030.tmp", "step-00000040"}
    checkpoint.set_aside(found.complete[20], checkpoint.DAMAGED)
    kept = {*others, "step-00000100", "step-00000030.tmp", "step-00000040"}
    assert names(tmp_path) == {*kept, "step-00000020.damaged-1"}


def test_setting_aside_keeps_what_was_set_aside_before(tmp_path: Path) -> None:
    for _ in range(2):
        (tmp_path / "step-00000001").mkdir()
        checkpoint.set_aside(tmp_path / "step-00000001", "damaged")
    assert names(tmp_path) == {"step-00000001.damaged-1", "step-00000001.damaged-2"}


def test_poison_reaches_every_tensor() -> None:
    tensors = {"a": torch.zeros(3), "b": torch.zeros(()), "codes": torch.zeros(2, dtype=torch.uint8)}
    poison(tensors)
    assert (tensors.pop("codes") == 255).all()
    assert all(tensor.isnan().all() for tensor in tensors.values())
