"""A user relies on: a fault is said once, names its place, and a slip of the fingers is understood."""

import pytest
from pydantic import Field, ValidationError, model_validator

from stages.config import StageConfig
from stages.tables import faults


class Phase(StageConfig):
    share: float = Field(0.5, description="A share")

    @model_validator(mode="after")
    def _fits(self) -> "Phase":
        if self.share > 1:
            raise ValueError("server.phases: share is at most 1")
        return self


class Server(StageConfig):
    port: int = Field(1, description="A port")
    root: str = Field(".", description="A folder")
    parts: int = Field(1, description="Parts")
    phases: tuple[Phase, ...] = Field((), description="Phases")

    @model_validator(mode="after")
    def _fits(self) -> "Server":
        if self.port == 2:
            raise ValueError("server.port = 2 needs server.root")
        if self.port == 3:
            raise ValueError("three is too many")
        return self


class Whole(StageConfig):
    server: Server = Field(Server(), description="A server")


@pytest.mark.parametrize(
    ("server", "line"),
    [
        ({"prot": 1}, "server.prot: unknown key; did you mean port?"),
        ({"rot": 1}, "server.rot: unknown key; did you mean root?"),
        ({"x": 1}, "server.x: unknown key; known here: port, root, parts, phases"),
        ({"port": 2}, "server.port = 2 needs server.root"),
        ({"port": 3}, "server: three is too many"),
        ({"port": "x"}, "server.port: Input should be a valid integer, unable to parse string as an integer, got 'x'"),
        ({"phases": [{}, {"share": 2}]}, "server.phases.1: share is at most 1"),
    ],
    ids=str,
)
def test_a_fault_is_said_once(server: dict[str, object], line: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Whole.model_validate({"server": server})
    assert faults(raised.value, Whole, "recipe") == f"  {line}"
