"""What the durable store says of a checkpoint: its files and their parts, and the artifact that it was published as."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from stages.fingerprint import digest


class Part(BaseModel):
    """Bytes of a file from `offset` on. `name`: of the object that holds them, within the checkpoint's folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    offset: int
    bytes: int
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.file}.{self.offset:012d}-{self.sha256[:16]}"


class File(BaseModel):
    """A whole file and its parts, in order. `file` begins with `checkpoint/` or `records/`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    bytes: int
    sha256: str
    parts: tuple[Part, ...]


class Index(BaseModel):
    """What a checkpoint on the store consists of. `digest`: of all the rest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    files: tuple[File, ...]
    digest: str = ""

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def signed(self) -> "Index":
        return self.model_copy(update={"digest": digest(self.model_dump(mode="json", exclude={"digest"}))})


class Published(BaseModel):
    """The artifact that a checkpoint was published as, as far as a run needs to know when it is not on this machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    key: str
    digest: str
    facts: dict[str, Any]
