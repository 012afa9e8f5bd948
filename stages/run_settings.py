"""How the stages of a run are watched, and what becomes of one that fails: settings of the flows alone. They are part
of no artifact's key, and a stage that is started from a shell does not read them.
"""

from stages.config import StageConfig, runtime


class RunConfig(StageConfig):
    """When a stage is stopped from outside, and how often it is tried again."""

    stall_minutes: float = runtime(
        60.0,
        gt=0,
        description="A stage whose journal has had no line for so long is stopped and tried again; one that computes "
        "writes a line every three minutes at least",
    )
    deadline_hours: float = runtime(
        0.0, ge=0, description="A stage that has run for longer in one attempt is stopped, and fails; 0: no limit"
    )
    retries: int = runtime(
        3, ge=0, le=100, description="Attempts after the first one, for failures that may not come back"
    )
    retry_delay_seconds: float = runtime(
        1.0, ge=0, description="Before the second attempt; before each later one ten times as long, 60 at most"
    )

    def retry_delays(self) -> list[float]:
        """Seconds before each of the attempts after the first one."""
        longest = max(60.0, self.retry_delay_seconds)
        return [min(self.retry_delay_seconds * 10**attempt, longest) for attempt in range(self.retries)]
