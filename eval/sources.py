"""Where a task's items come from: each source with its settings, its runner and the texts that training must not hold.

A runner is imported when it is needed: naming the sources costs no torch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from eval.efficiency.settings import LatencySettings, MemorySettings, RoundSettings, ThroughputSettings
from eval.regression.settings import HeldoutBitsSettings
from eval.robustness.settings import (
    BaseSettings,
    LongContextSettings,
    PerturbedSettings,
    RareTextSettings,
    WorstCaseSettings,
)
from eval.safety.settings import (
    CanarySettings,
    LeakSettings,
    MemorisationSettings,
    RefusalSettings,
    ToxicitySettings,
)
from eval.settings import Settings

if TYPE_CHECKING:
    from eval.results import TaskResult
    from eval.scoring.scorer import Progress
    from eval.subject import Subject
    from eval.suites import Suite, TaskDefinition

    Runner = Callable[[Suite, TaskDefinition, Subject, Progress | None], TaskResult]
    Texts = Callable[[TaskDefinition], Iterator[str]]


@dataclass(frozen=True, kw_only=True)
class Source:
    """One kind of task. `runner` and `texts` name a function as `module:function`; `texts` is empty where items do not
    stand before the corpus does (held-out text), or hold nothing that could be learnt by heart. per_token: a score
    counts tokens, or judges a text of so many tokens, so that models with different tokenizers are not compared by it.
    through_harness: lm-eval asks the items, so that its version may move the score. seeded: items or samples are drawn
    by the task's seed. measured: scores are times or sizes of memory, and what is left out depends on the machine.
    exact: its one item is known without error, so that any difference is certain.
    """

    runner: str
    texts: str = ""
    settings: type[Settings] = Settings
    per_token: bool = False
    through_harness: bool = False
    seeded: bool = False
    measured: bool = False
    exact: bool = False

    @property
    def idle(self) -> tuple[str, ...]:
        """What a task can set to no effect."""
        return (*(() if self.through_harness else ("generator", "shots")), *(() if self.seeded else ("seed",)))

    def run(
        self, suite: "Suite", task: "TaskDefinition", subject: "Subject", progress: "Progress | None"
    ) -> "TaskResult":
        """Ask the model. Raises `eval.results.Skipped` where the task has no meaning for it."""
        runner: Runner = _function(self.runner)
        return runner(suite, task, subject, progress)

    def fixed_texts(self, task: "TaskDefinition") -> Iterator[str]:
        """Every text that is asked whatever the corpus holds, with its right answer."""
        if self.texts:
            texts: Texts = _function(self.texts)
            yield from texts(task)


def _function(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


SOURCES: dict[str, Source] = {
    "template": Source(
        runner="eval.tasks.run:run_task", texts="eval.tasks.templates:fixed_texts", through_harness=True, seeded=True
    ),
    "heldout": Source(runner="eval.tasks.run:run_task", through_harness=True, seeded=True),
    "lm_eval": Source(runner="eval.harness:run_task", through_harness=True),
    "bits_per_byte": Source(runner="eval.regression.heldout_bits:run_task", settings=HeldoutBitsSettings, seeded=True),
    "perturbed": Source(
        runner="eval.robustness.perturbed:run_task",
        texts="eval.robustness.perturbed:fixed_texts",
        settings=PerturbedSettings,
        seeded=True,
    ),
    "choice_order": Source(
        runner="eval.robustness.choice_order:run_task",
        texts="eval.robustness.choice_order:fixed_texts",
        settings=BaseSettings,
        seeded=True,
    ),
    "long_context": Source(
        runner="eval.robustness.long_context:run_task",
        texts="eval.robustness.questions:fixed_texts",
        settings=LongContextSettings,
        seeded=True,
    ),
    "worst_case": Source(
        runner="eval.robustness.worst_case:run_task",
        texts="eval.robustness.questions:fixed_texts",
        settings=WorstCaseSettings,
        seeded=True,
    ),
    "rare_text": Source(runner="eval.robustness.rare_text:run_task", settings=RareTextSettings, seeded=True),
    "boundary": Source(runner="eval.robustness.boundary:run_task"),
    "toxicity": Source(
        runner="eval.safety.toxicity:run_toxicity",
        texts="eval.safety.prompts:fixed_texts",
        settings=ToxicitySettings,
        per_token=True,
        seeded=True,
    ),
    "bias": Source(runner="eval.safety.bias:run_bias", texts="eval.safety.bias:fixed_texts"),
    "leaks": Source(
        runner="eval.safety.leaks:run_leaks",
        texts="eval.safety.prompts:fixed_texts",
        settings=LeakSettings,
        per_token=True,
        seeded=True,
    ),
    "memorisation": Source(
        runner="eval.safety.memorisation:run_memorisation", settings=MemorisationSettings, per_token=True, seeded=True
    ),
    "canaries": Source(runner="eval.safety.exposure:run_canaries", settings=CanarySettings),
    "refusal": Source(
        runner="eval.safety.refusal:run_refusal", texts="eval.safety.prompts:fixed_texts", settings=RefusalSettings
    ),
    "first_token": Source(
        runner="eval.efficiency.times:run_first_token", settings=RoundSettings, per_token=True, measured=True
    ),
    "token_latency": Source(
        runner="eval.efficiency.times:run_token_latency", settings=LatencySettings, per_token=True, measured=True
    ),
    "throughput": Source(
        runner="eval.efficiency.times:run_throughput", settings=ThroughputSettings, per_token=True, measured=True
    ),
    "peak_memory": Source(
        runner="eval.efficiency.memory:run_peak_memory", settings=MemorySettings, per_token=True, measured=True
    ),
    "model_bytes": Source(runner="eval.efficiency.memory:run_model_bytes", exact=True),
    "energy": Source(
        runner="eval.efficiency.energy:run_task", settings=ThroughputSettings, per_token=True, measured=True
    ),
}
