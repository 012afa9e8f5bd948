"""lm-eval on our scorer. Importing it imports lm_eval, which takes seconds."""

from eval.harness.model import HarnessModel
from eval.harness.tasks import load_task, run_task, task_texts
from eval.scoring.encoding import encode_pair

__all__ = ["HarnessModel", "encode_pair", "load_task", "run_task", "task_texts"]
