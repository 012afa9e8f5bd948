"""What a recipe says about how evaluations are compared (`[compare]`)."""

from pydantic import Field

from stages.config import LABEL_PATTERN, StageConfig, runtime


class CompareConfig(StageConfig):
    """When a difference is a regression."""

    level: float = Field(
        0.01,
        ge=1e-4,  # below that, drawing patterns of signs would take minutes
        lt=0.5,
        description="Largest chance that any task of a comparison of two equal models is said to differ",
    )
    bits_per_byte_threshold: float = Field(
        0.01, ge=0, description="Least rise of a domain's bits per byte that is a regression, if it is significant too"
    )
    most_flips: int = Field(20, ge=1, description="Items kept of each task and direction, those that moved most")
    baseline: str = runtime(
        "main",
        pattern=LABEL_PATTERN,
        description="Name of the promoted baseline that finished models are compared with",
    )
