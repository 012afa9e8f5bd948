"""What a recipe says about the report (`[report]`)."""

from pydantic import Field

from stages.config import StageConfig


class ReportConfig(StageConfig):
    """How the page is headed."""

    title: str = Field("", description="Heading of the page; empty: the label of the run")
