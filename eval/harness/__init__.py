"""lm-eval on our scorer. Importing it imports lm_eval, which takes seconds."""

from eval.harness.model import HarnessModel
from eval.harness.tasks import load_task, run_items, run_task, task_texts

__all__ = ["HarnessModel", "load_task", "run_items", "run_task", "task_texts"]
