"""Triggers, schedules and alerts on a real desk: `python -m tests.orchestration.trial_triggers [PART …]`.

A real training from its deployment, whose checkpoints start their evaluations; a regression run every minute, whose
alert reaches a webhook; a run that is killed, and the one that waits for its slot. The last line is one JSON object.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.harness import report
from tests.flows.receiver import receiving
from tests.orchestration.triggers import CHECKPOINT_STEPS, NEVER, Story


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="schedule, triggers, duplicates, pipeline, slots; all of them")
    parser.add_argument("--steps", type=int, default=CHECKPOINT_STEPS, help="of the training between two checkpoints")
    parser.add_argument("--folder", type=Path, help="for all of it, and kept")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="longhaul-triggers-") as folder, receiving() as receiver:
        cron = {} if not arguments.parts or "schedule" in arguments.parts else {"regression_cron": NEVER}
        story = Story((arguments.folder or Path(folder)).resolve(), receiver, steps=arguments.steps, **cron)
        story.tell(*arguments.parts)
    print()
    print("".join(f"NOT AS IT SHOULD BE: {problem}\n" for problem in story.problems))
    headers, figures = ("what", "came of it", "after s"), {**story.figures, "problems": len(story.problems)}
    report("triggers", headers, story.rows, figures, ["prefect"], keep=False)
    sys.exit(1 if story.problems else 0)


if __name__ == "__main__":
    main()
