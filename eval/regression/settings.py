"""What a recipe's suite may set of the tasks of this folder."""

from pydantic import Field

from eval.settings import Settings


class HeldoutBitsSettings(Settings):
    """Of bits per byte on single documents."""

    document_bytes: int = Field(default=2000, ge=1, description="Most of a document that is scored, from its beginning")
