"""One meaning, one fingerprint; what cannot be encoded is refused."""

from enum import StrEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from stages import fingerprint
from stages.config import StageConfig, runtime, shared


class Colour(StrEnum):
    RED = "red"


class Inner(StageConfig):
    size: int = 1
    threads: int = runtime(1, rounding=True)


class Config(StageConfig):
    rate: float = 1.0
    colour: Colour = Colour.RED
    names: tuple[str, ...] = ("a", "b")
    weights: dict[str, float] = Field(default={"x": 1.0})
    inner: Inner = Inner()
    table: Inner = shared(Inner)
    retries: int = runtime(3)
    batch: int = runtime(8, rounding=True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(value=JSON, other=JSON)
def test_equal_digests_exactly_for_equal_canonical_values(value: object, other: object) -> None:
    same = repr(fingerprint.canonical(value)) == repr(fingerprint.canonical(other))
    assert (fingerprint.digest(value) == fingerprint.digest(other)) == same
    assert fingerprint.difference({"v": value}, {"v": value}) == []


def test_runtime_fields_are_not_identity() -> None:
    assert fingerprint.identity(Config()) == fingerprint.identity(Config(retries=9, batch=1))
    assert fingerprint.identity(Config()) == fingerprint.identity(
        Config(inner=Inner(threads=7), table=Inner(threads=7))
    )


@pytest.mark.parametrize(
    "changed",
    [
        Config(rate=2.0),
        Config(names=("b", "a")),
        Config(weights={"x": 1.5}),
        Config(inner=Inner(size=2)),
        Config(table=Inner(size=2)),
    ],
)
def test_every_identity_field_counts(changed: Config) -> None:
    assert fingerprint.digest(Config()) != fingerprint.digest(changed)


def test_order_of_a_mapping_and_form_of_a_number_do_not_count() -> None:
    assert fingerprint.digest({"a": 1, "b": -0.0}) == fingerprint.digest({"b": 0.0, "a": 1})
    assert fingerprint.digest(Config(rate=1)) == fingerprint.digest(Config(rate=1.0))


def test_rounding_fields_are_listed_by_dotted_name() -> None:
    assert fingerprint.rounding(Config(batch=2)) == {"batch": 2, "inner.threads": 1, "table.threads": 1}


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), float("nan"), float("inf"), {1: "a"}, len])
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="a.b"):
        fingerprint.canonical({"b": value}, "a")


def test_difference_names_the_field() -> None:
    a, b = Config(), Config(inner=Inner(size=5), names=("a",))
    assert fingerprint.difference(a, b) == [("names", ["a", "b"], ["a"]), ("inner.size", 1, 5)]
    ((name, left, right),) = fingerprint.difference({"x": 1}, {"x": 1, "y": Path("z")})
    assert (name, repr(left), right) == ("y", "(absent)", "z")


def test_a_config_is_frozen_and_closed() -> None:
    with pytest.raises(ValidationError):
        Config().rate = 2.0  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Config(unknown=1)  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        Config(rate=float("nan"))
