"""What the supervisor hands to its workers, and the places in a run directory.

runs/<key>/
  job.json                  what to train, on what, from which checkpoint on (one `Job`)
  worker.log                everything that workers and launcher wrote, appended to by every attempt
  metrics.jsonl             one line a step: step, loss, learning_rate, gradient_norm, tokens, gradient_norms by group;
                            on sampled steps parameter_norms, update_norms and, by layer, activation_max and
                            activation_rms; bitwise reproducible
  timing.jsonl              one line a step: what is not reproducible; on sampled steps communication, memory and more
  trackers/                 what trackers leave on this machine, such as TensorBoard's files
  result.json               left by the workers of a finished attempt: peak memory and the like
  peak_memory.json          most bytes that all processes of one attempt held together, the highest of all attempts
  incidents.jsonl           one line for each attempt that did not end well, and what was done about it
  excluded.json             batches that are left out (see stages.pretrain.batches.exclusions)
  failures/rank-<n>.json    why a process of the last attempt ended
  beats                     what each process says of itself while it runs (see stages.pretrain.supervision.beats)
  stacks/rank-<n>.txt       where the processes were in the last hang; rank-<n>.json: their last collective operations
  processes                 how many processes may run, if someone has put a number there (elastic runs)
  request.json              there while the supervisor wants the processes to leave
  rendezvous/               files by which the processes of the last attempt met
  redundancy/               how replica groups find each other (see stages.pretrain.parallel.redundant_members)
  attempts.jsonl            begins and ends of attempts, alive.json: the supervisor's last sign of life, from which
                            follows where the time went (see stages.pretrain.supervision.account)
  saves.jsonl               one line for each checkpoint: what it cost (see stages.pretrain.checkpoints.saver)
  checkpoints/step-<n>/     see stages.pretrain.checkpoints.checkpoint
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from stages.files import write_json
from stages.fingerprint import digest
from stages.journal import read_events
from stages.pretrain.batches.exclusions import Draws
from stages.pretrain.config import PretrainConfig

METRICS, TIMING = "metrics.jsonl", "timing.jsonl"


@dataclass(frozen=True)
class RunDirectory:
    """The places in a run directory."""

    path: Path

    @property
    def job(self) -> Path:
        return self.path / "job.json"

    @property
    def log(self) -> Path:
        return self.path / "worker.log"

    @property
    def metrics(self) -> Path:
        return self.path / METRICS

    @property
    def timing(self) -> Path:
        return self.path / TIMING

    @property
    def trackers(self) -> Path:
        return self.path / "trackers"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def peak_memory(self) -> Path:
        return self.path / "peak_memory.json"

    @property
    def incidents(self) -> Path:
        return self.path / "incidents.jsonl"

    @property
    def excluded(self) -> Path:
        return self.path / "excluded.json"

    @property
    def failures(self) -> Path:
        return self.path / "failures"

    @property
    def beats(self) -> Path:
        return self.path / "beats"

    @property
    def stacks(self) -> Path:
        return self.path / "stacks"

    @property
    def processes(self) -> Path:
        return self.path / "processes"

    @property
    def request(self) -> Path:
        return self.path / "request.json"

    @property
    def rendezvous(self) -> Path:
        return self.path / "rendezvous"

    @property
    def redundancy(self) -> Path:
        return self.path / "redundancy"

    @property
    def saves(self) -> Path:
        return self.path / "saves.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def lock(self) -> Path:
        return self.path / ".worker-lock"


class Job(BaseModel):
    """One attempt at one training run. Paths are absolute.

    `tokens`: folder with train/ and heldout/ token shards. `padded_vocabulary_size`: rows of the embedding.
    `config.num_processes`: of this attempt. `resume_step`: the checkpoint to load; 0: begin from the seeded weights.
    `verified`: whether every byte of it has just been found to be as it was written. `checkpoint_seconds`: between
    local checkpoints; none: as the settings say. `excluded`: ranges of draws to leave out.
    `hook`: `module:function` of a fault injector (see `stages.pretrain.faults`); empty outside tests.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: PretrainConfig
    vocabulary_size: int
    padded_vocabulary_size: int
    eos_id: int
    tokens: str
    config_fingerprint: str
    data_fingerprint: str
    directory: str
    resume_step: int = 0
    verified: bool = False
    checkpoint_seconds: float | None = None
    excluded: Draws = ()
    hook: str = ""

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(Path(self.directory))

    def write(self) -> None:
        """Put job.json into the run directory."""
        write_json(self.run.job, self.model_dump(mode="json"))

    @classmethod
    def read(cls, path: Path) -> Self:
        return cls.model_validate_json(path.read_text(encoding="utf-8"))


def make_job(
    config: PretrainConfig,
    *,
    tokens: Path,
    facts: Mapping[str, Any],
    tokens_digest: str,
    config_fingerprint: str,
    directory: Path,
    hook: str = "",
) -> Job:
    """The job of training on a tokens artifact with these facts and digest; makes its directory. Raises InputError."""
    config.require_context(config.model.resolved())
    directory.mkdir(parents=True, exist_ok=True)
    return Job(
        config=config,
        vocabulary_size=facts["vocabulary_size"],
        padded_vocabulary_size=facts["padded_vocabulary_size"],
        eos_id=facts["eos_id"],
        tokens=str(tokens.absolute()),
        config_fingerprint=config_fingerprint,
        data_fingerprint=data_fingerprint(config, tokens_digest),
        directory=str(directory.absolute()),
        hook=hook,
    )


def data_fingerprint(config: PretrainConfig, tokens_digest: str) -> str:
    """sha256 of all that decides which tokens stand in which step, batches that are left out apart. `tokens_digest`:
    that of the tokens artifact."""
    fields = (
        "mixture",
        "mixture_schedule",
        "mixture_temperature",
        "mixture_most_epochs",
        "packing",
        "cross_document_attention",
        "length_schedule",
        "sequence_tokens",
        "batch_sequences",
        "batch_ramp",
        "seed",
    )
    # How long the training is decides only on how much of a domain each step may draw.
    length = {} if config.mixture_most_epochs is None else {"num_steps": config.num_steps}
    return digest({"tokens": tokens_digest, **{name: getattr(config, name) for name in fields}, **length})


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a .jsonl file, without lines that a kill or a full disk cut off; empty if there is no
    file."""
    return list(read_events(path)) if path.exists() else []
