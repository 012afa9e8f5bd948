"""A few steps of the real worker on the real layout in a scratch directory, for the preflight checks.

    trial(config, model, tokens_path, directory, steps=2)["losses"]

Where batches differ in the length of their sequences, or grow, the last step has the longest and the most, whenever
they come up in the training: they need most memory.
"""

import json
from pathlib import Path
from typing import Any

from data.errors import InputError
from stages import manifest
from stages.errors import BAD_INPUT, TRY_AGAIN, TryAgain
from stages.pretrain.batches.exclusions import Draws
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.config import LENGTH_BUCKETS, ModelConfig, PretrainConfig
from stages.pretrain.job import make_job, read_lines
from stages.pretrain.supervision.attempt import log_tail, train_once
from stages.pretrain.supervision.supervise import OUT_OF_MEMORY

MOST_DRAWS = 20_000


def trial(
    config: PretrainConfig, model: ModelConfig, tokens_artifact_path: Path, directory: Path, steps: int = 2
) -> dict[str, Any]:
    """Launch the workers for `steps` steps and a checkpoint. `directory` is empty or not there; nothing outside it is
    written.

    Returns losses and gradient_norms [steps], sequence_tokens [steps], the length of the sequences, heldout_loss,
    seconds [steps], peak_memory_bytes (all processes), parameters, num_processes, device, and checkpoint_bytes. Raises
    InputError, TryAgain (no space, or a process killed from outside), or RuntimeError with the end of the log.
    """
    found = manifest.read(tokens_artifact_path)
    if found is None:
        raise InputError(f"{tokens_artifact_path} is not a finished artifact; run pretokenize first")
    largest = max(size for _, size in config.batch_sizes())
    short = PretrainConfig.model_validate(
        {
            **config.model_dump(),
            "model": model.model_dump(),
            "num_steps": steps,
            "checkpoint_every_steps": steps,
            "length_schedule": (),
            "batch_ramp": ({"from_step": steps, "batch_sequences": largest},) if config.batch_ramp else (),
        }
    )
    skipped, lengths = to_the_longest(short, tokens_artifact_path, steps=steps, draws=config.num_steps)
    job = make_job(
        short,
        tokens=tokens_artifact_path,
        facts=found.facts,
        tokens_digest=found.digest,
        config_fingerprint="trial",
        directory=directory,
    ).model_copy(update={"excluded": skipped})
    assert not any(directory.iterdir()), f"{directory} is not empty"
    end = train_once(job)
    if end.code in (BAD_INPUT, OUT_OF_MEMORY):
        raise InputError(end.cause)
    if end.code == TRY_AGAIN or end.code < 0:
        raise TryAgain(f"the trial of {steps} steps did not end: {end.cause}; run the same command again")
    if end.code:
        raise RuntimeError(f"the trial of {steps} steps failed: {end.cause}\n{log_tail(job.run)}")
    saved = job.run.checkpoints / checkpoint.step_name(steps)
    metrics = read_lines(job.run.metrics)
    return {
        "losses": [line["loss"] for line in metrics],
        "sequence_tokens": lengths,
        "gradient_norms": [line["gradient_norm"] for line in metrics],
        "heldout_loss": checkpoint.read_state(saved).heldout_loss,
        "seconds": [line["seconds"] for line in read_lines(job.run.timing)],
        "checkpoint_bytes": sum(path.stat().st_size for path in saved.rglob("*") if path.is_file()),
        **json.loads(job.run.result.read_text(encoding="utf-8")),
    }


def to_the_longest(config: PretrainConfig, tokens: Path, *, steps: int, draws: int) -> tuple[Draws, list[int]]:
    """Draws to leave out, so that the last of `steps` steps has the longest sequences of the first `draws` draws, of
    MOST_DRAWS at most; and the length of the sequences of each step. tokens: folder of the tokens artifact.
    """
    if config.packing != LENGTH_BUCKETS:
        return (), [config.sequence_tokens] * steps
    from stages.pretrain.batches.sequences import open_train

    order = open_train(config, tokens, local=True).order
    lengths = [order.samples_of_draw(draw).length for draw in range(max(steps, min(draws, MOST_DRAWS)))]
    longest = lengths.index(max(lengths))
    last = max(longest, steps - 1)
    skipped = ((steps - 1, last),) if last >= steps else ()
    return skipped, [*lengths[: steps - 1], lengths[last]]
