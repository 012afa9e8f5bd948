"""What each check says of what was found. Arithmetic only, so that every verdict can be tested.

A check passes, warns, fails, or is not applicable here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from data.shards.files import ShardHeader
from stages.pretrain.config import PretrainConfig

if TYPE_CHECKING:
    from data.shards.streams import TokenStream

FILE = "checks.json"
NAMES = (
    *("tokens", "decontamination", "two batches", "memory", "disk"),
    *("export hf", "export gguf-f32", "export gguf-q4_0", "llama.cpp"),
)


class Status(StrEnum):
    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One finding. `detail`: a sentence with the figures, and where something is wrong, what to change. `may_pass`: a
    failure that asks nothing of the recipe."""

    name: str
    status: Status
    detail: str
    may_pass: bool = False

    def values(self) -> dict[str, str]:
        return {"name": self.name, "status": self.status.value, "detail": self.detail}


def failed(name: str, detail: str) -> Check:
    return Check(name=name, status=Status.FAIL, detail=detail)


def not_applicable(name: str, detail: str) -> Check:
    return Check(name=name, status=Status.NOT_APPLICABLE, detail=detail)


def tokens(header: ShardHeader, streams: "Mapping[str, TokenStream]", vocabulary_size: int, digest: str) -> Check:
    """Whether the shards were made by the tokenizer that will be exported with the model."""
    name = "tokens"
    if (header.vocabulary_size, header.vocabulary_digest) != (vocabulary_size, digest):
        return failed(name, "the token shards were made by another tokenizer than the recipe's; run pretokenize again")
    found = ", ".join(f"{domain} {len(stream):,}" for domain, stream in sorted(streams.items()))
    return Check(name=name, status=Status.PASS, detail=f"training tokens by domain: {found}")


def decontamination(found: Mapping[str, Any], against: str, suites: str, waived: Sequence[str]) -> Check:
    """Whether the training text holds nothing of what the recipe's suites ask. found: what curate says of it. against,
    suites: digests of the suites that curate read and of the recipe's. waived: the tasks that the recipe lets pass."""
    name = "decontamination"
    if against != suites:
        return failed(
            name,
            "the training text was decontaminated against other suites than the recipe's; run curate and what follows "
            "it with this recipe",
        )
    if extra := sorted(set(found["waived"]) - set(waived)):
        return failed(
            name,
            f"the training text was not decontaminated against {', '.join(extra)}; run curate with this recipe, or add "
            "to suites.waived_tasks what cannot be read",
        )
    tasks = found["tasks"].values()
    num_items, num_short = sum(task["items"] for task in tasks), sum(task["too_short"] for task in tasks)
    detail = (
        f"{num_items - num_short:,} items of {len(tasks)} tasks were looked for, {num_short:,} are too short to be; "
        f"{sum(task['documents'] for task in tasks):,} documents were dropped for them"
    )
    if found["waived"]:
        detail = f"{detail}; waived: {', '.join(found['waived'])}"
    return Check(name=name, status=Status.PASS, detail=detail)


def steps(found: Mapping[str, Any], pretrain: PretrainConfig, vocabulary_size: int, most_loss_ratio: float) -> Check:
    """Verdict on the trial: losses that a model which knows nothing has, and a gradient that moves it."""
    name = "two batches"
    losses, norms, seconds = found["losses"], found["gradient_norms"], found["seconds"]
    if any(loss is None or not math.isfinite(loss) for loss in [*losses, found["heldout_loss"]]):
        return failed(
            name, f"losses {losses}, held-out {found['heldout_loss']}: not finite; lower model.initializer_std"
        )
    # A step has none where fp16 skips it: its first ones most often, until the loss scale fits.
    if not all(norm is None or (math.isfinite(norm) and norm > 0) for norm in norms):
        return failed(name, f"gradient norms {norms}: nothing would be learnt")
    knows_nothing = math.log(vocabulary_size)
    # The last step of the trial has the largest batch of the ramp.
    places = max(size for _, size in pretrain.batch_sizes()) * pretrain.sequence_tokens
    hours = seconds[-1] * pretrain.total_places / places / 3600
    detail = (
        f"loss {', '.join(f'{loss:.4f}' for loss in losses)} (a uniform guess has {knows_nothing:.4f}), held-out "
        f"{found['heldout_loss']:.4f}; sequences of {' and '.join(map(str, sorted(set(found['sequence_tokens']))))} "
        f"tokens; {seconds[-1]:.3f} s for the last step on {found['num_processes']} processes, so "
        f"{pretrain.num_steps} steps take about {_duration(hours)}"
    )
    if losses[0] > most_loss_ratio * knows_nothing:
        return Check(
            name=name, status=Status.WARN, detail=f"{detail}; the first loss is high, see model.initializer_std"
        )
    return Check(name=name, status=Status.PASS, detail=detail)


def memory(peak_bytes: float, planned_bytes: float, available_bytes: float, reserve_ratio: float) -> Check:
    """All processes of this machine together. Resident pages that processes share are counted once for each."""
    name = "memory"
    detail = (
        f"peak {peak_bytes / 1e9:.2f} GB of {available_bytes / 1e9:.2f} GB; planned {planned_bytes / 1e9:.2f} GB "
        f"({peak_bytes / planned_bytes - 1:+.0%})"
    )
    if peak_bytes > available_bytes:
        return failed(name, f"{detail}; lower pretrain.micro_batch_sequences")
    if peak_bytes * reserve_ratio > available_bytes:
        return Check(
            name=name, status=Status.WARN, detail=f"{detail}; little is left, see pretrain.micro_batch_sequences"
        )
    return Check(name=name, status=Status.PASS, detail=detail)


def disk(free_bytes: int, total_bytes: int, need_bytes: int, reserve_ratio: float) -> Check:
    """Whether the run's checkpoints fit: on the disk as it is, or if not, on it at all (`total_bytes`)."""
    name = "disk"
    detail = f"{free_bytes / 1e9:.2f} GB free, checkpoints need {need_bytes / 1e9:.2f} GB"
    if total_bytes < need_bytes:
        detail = f"{detail}; the whole disk has {total_bytes / 1e9:.2f} GB: raise pretrain.checkpoint_every_steps"
        return failed(name, detail)
    if free_bytes < need_bytes:
        detail = f"{detail}; free some space, or raise pretrain.checkpoint_every_steps"
        return Check(name=name, status=Status.FAIL, detail=detail, may_pass=True)
    status = Status.PASS if free_bytes >= reserve_ratio * need_bytes else Status.WARN
    return Check(name=name, status=status, detail=detail)


def form(name: str, problems: Sequence[str], detail: str) -> Check:
    """Verdict on an exported form: `problems` is what differs from the model that was written."""
    return failed(name, "; ".join(problems)) if problems else Check(name=name, status=Status.PASS, detail=detail)


def _duration(hours: float) -> str:
    if hours < 1 / 60:
        return f"{hours * 3600:.0f} s"
    return f"{hours * 60:.0f} min" if hours < 1 else f"{hours:.1f} h"
