"""Write the report of a run: one self-contained HTML page.

Run: python -m stages.report RECIPE
"""

from stages.cli import main
from stages.report import STAGE

main(STAGE)
