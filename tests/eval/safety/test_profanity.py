import os
import pickle
import struct
from pathlib import Path

import joblib
import numpy as np
import pytest
from profanity_check import predict_prob

from data.errors import InputError
from eval.safety import profanity
from eval.safety.joblib_reader import UnreadableError, read_inert

TEXTS = [
    "you are a stupid idiot",
    "I will kill you",
    "The function returns a list of integers.",
    "Kill the process, kill it; KILL.",
    "",
    "über naïve façade",
    "12 monkeys_and 3",
    "Nobody asked for your opinion, moron.\nGo away",
]


def test_probabilities_are_those_of_the_package_itself() -> None:
    made = profanity.classifier()
    assert made is not None
    assert np.abs(made.probabilities(TEXTS) - predict_prob(TEXTS)).max() < 1e-12
    assert made.probabilities(TEXTS)[0] > 0.99 > 0.1 > made.probabilities(TEXTS)[2]


def test_the_package_is_read_once_and_then_only_arrays_are(monkeypatch: pytest.MonkeyPatch) -> None:
    profanity.classifier.cache_clear()
    first = profanity.classifier()
    monkeypatch.setattr(profanity, "read_inert", lambda path: pytest.fail("read again"))
    profanity.classifier.cache_clear()
    second = profanity.classifier()
    assert first is not None and second is not None and first.words == second.words
    for name in ("idf", "weights", "intercepts", "slopes", "offsets"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()


def test_where_nothing_can_be_kept_the_package_is_read_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "longhaul").write_text("a file is in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    profanity.classifier.cache_clear()
    made = profanity.classifier()
    assert made is not None and made.probabilities(TEXTS)[0] > 0.99
    assert (tmp_path / "longhaul").read_text() == "a file is in the way"


def test_a_package_of_another_make_is_refused_with_advice(tmp_path: Path) -> None:
    for name in ("vectorizer", "model"):
        joblib.dump({"a": 1}, tmp_path / f"{name}.joblib")
    with pytest.raises(InputError, match=r"alt-profanity-check .* cannot be used: .*; install 1\.9\.1, or uninstall"):
        profanity.convert(tmp_path)


def test_arrays_come_out_as_they_were_saved(tmp_path: Path) -> None:
    saved = {
        "rows": np.arange(35, dtype=np.int16).reshape(5, 7),
        "columns": np.asfortranarray(np.random.default_rng(0).normal(size=(3, 4))),
        "none": np.zeros((0, 3), np.float32),
        "number": np.float64(0.1),
        "plain": ["x", 1, None, {"y": (2.5, True)}],
    }
    joblib.dump(saved, tmp_path / "a.joblib")
    found = read_inert(tmp_path / "a.joblib")
    assert found["plain"] == saved["plain"] and found["number"] == saved["number"]
    for name in ("rows", "columns", "none"):
        assert found[name].dtype == saved[name].dtype and np.array_equal(found[name], saved[name])


class Hostile:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.mkdir, (self.path,)


def test_nothing_that_a_file_names_is_run(tmp_path: Path) -> None:
    hostile = Hostile(tmp_path / "made")
    for content in (pickle.dumps(hostile), pickle.dumps({"a": [hostile]})):
        path = tmp_path / "a.joblib"
        path.write_bytes(content)
        with pytest.raises(UnreadableError, match=r"it names pathlib\.Path\.?mkdir|it names builtins\.getattr|pathlib"):
            read_inert(path)
        assert not hostile.path.exists()
        pickle.loads(content)
        assert hostile.path.exists(), "it would have been run"
        hostile.path.rmdir()


def test_arrays_of_objects_and_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.joblib"
    joblib.dump(np.array([1, "a"], object), path)
    with pytest.raises(UnreadableError):
        read_inert(path)
    joblib.dump({"a": np.arange(1000.0)}, path)
    content = path.read_bytes()
    for damaged in (content[:-100], content[: len(content) // 2], b"", b"no pickle"):
        path.write_bytes(damaged)
        with pytest.raises(UnreadableError):
            read_inert(path)


def _text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def _named(module: str, name: str) -> bytes:
    return _text(module) + _text(name) + b"\x93"


def _number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


# numpy.dtype("O8"), whose state says that it holds no objects.
DISGUISED = (
    _named("numpy", "dtype")
    + _text("O8")
    + b"\x89\x88\x87R("
    + _number(3)
    + _text("|")
    + b"NNN"
    + _number(-1) * 2
    + _number(0)
    + b"tb"
)


def _header(dtype: bytes, shape: bytes) -> bytes:
    fields = _text("dtype") + dtype + _text("shape") + shape + _text("order") + _text("C")
    return _named("joblib.numpy_pickle", "NumpyArrayWrapper") + b")\x81}(" + fields + b"ub"


HOSTILE = {
    "an array of addresses": _header(DISGUISED, b"K\x01\x85") + struct.pack("<Q", id(os.system)) + b".",
    "a number that is an address": _named("numpy._core.multiarray", "scalar")
    + DISGUISED
    + b"C\x08"
    + struct.pack("<Q", id(os.system))
    + b"\x86R.",
    "attributes of what is named": _named("numpy._core.multiarray", "scalar")
    + b"N}("
    + _text("__doc__")
    + _text("changed")
    + b"u\x86b.",
    "a shape of shapes": _header(
        _named("numpy", "dtype") + _text("f8") + b"\x89\x88\x87R", b"K\x01\x85" + _number(2**31 - 1) + b"\x86"
    )
    + b".",
    "a length below zero": _header(_named("numpy", "dtype") + _text("f8") + b"\x89\x88\x87R", _number(-1) + b"\x85")
    + b"\0" * 8
    + b".",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_forges_what_may_be_named_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.joblib").write_bytes(b"\x80\x04" + content)
    with pytest.raises(UnreadableError):
        read_inert(tmp_path / "a.joblib")


def test_a_damaged_copy_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    profanity.classifier.cache_clear()
    assert profanity.classifier() is not None
    (kept,) = (tmp_path / "longhaul").iterdir()
    content = kept.read_bytes()
    kept.write_bytes(content[: len(content) // 2])
    profanity.classifier.cache_clear()
    made = profanity.classifier()
    assert made is not None and made.probabilities(TEXTS)[0] > 0.99
    assert [path.name for path in (tmp_path / "longhaul").iterdir()] == [kept.name]
    assert profanity.load(kept).words == made.words


def test_a_state_that_is_no_record_is_refused(tmp_path: Path) -> None:
    for name in ("vectorizer", "model"):
        (tmp_path / f"{name}.joblib").write_bytes(pickle.dumps(("not", "a record")))
    with pytest.raises(InputError):
        profanity.convert(tmp_path)
