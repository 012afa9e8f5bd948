"""Curate: raw text in, clean and distinct documents out, with held-out text set apart before anything is compared.

Run: python -m stages.curate RECIPE
"""

from stages.curate.config import CurateConfig, Kind, Source
from stages.curate.stage import STAGE

__all__ = ["STAGE", "CurateConfig", "Kind", "Source"]
