"""What the tasks of efficiency let a suite choose. Lengths are cut to what the model can take."""

from pydantic import Field, PositiveInt

from eval.settings import Settings


class RoundSettings(Settings):
    """Of every task that is measured in rounds, of which each is an item: `limit` of them."""

    prompt_tokens: int = Field(default=128, ge=1, description="Tokens read before the first new one")


class LatencySettings(RoundSettings):
    """Of `token_latency`."""

    new_tokens: int = Field(default=32, ge=1, description="Tokens after the first, each timed, in a round")
    percentile: float = Field(
        default=50, ge=0, le=100, description="Of the times of a round's tokens, which is the score"
    )


class ThroughputSettings(RoundSettings):
    """Of `throughput` and `energy`."""

    new_tokens: int = Field(default=16, ge=1, description="Tokens after the first, for each text of a batch")
    batch_sizes: tuple[PositiveInt, ...] = Field(default=(1, 8), min_length=1, description="Texts continued together")


class MemorySettings(RoundSettings):
    """Of `peak_memory`."""

    new_tokens: int = Field(default=4, ge=1, description="Tokens after the first, for each text of the batch")
    batch_size: int = Field(default=16, ge=1, description="Texts continued together")
