"""A few steps of the real worker on the real layout in a scratch directory, for the preflight checks.

trial(config, model, tokens_path, directory, steps=2)["losses"]
"""

import json
from pathlib import Path
from typing import Any

from data.errors import InputError
from stages import manifest
from stages.errors import BAD_INPUT, TRY_AGAIN, TryAgain
from stages.pretrain import checkpoint
from stages.pretrain.attempt import Workers, explain, log_tail
from stages.pretrain.config import ModelConfig, PretrainConfig
from stages.pretrain.job import make_job, read_lines


def trial(
    config: PretrainConfig, model: ModelConfig, tokens_artifact_path: Path, directory: Path, steps: int = 2
) -> dict[str, Any]:
    """Launch the workers for `steps` steps and a checkpoint. `directory` is empty or not there; nothing outside it is
    written.

    Returns losses and gradient_norms [steps], heldout_loss, seconds [steps], peak_memory_bytes (all processes),
    parameters, num_processes, device, and checkpoint_bytes. Raises InputError, TryAgain (no space, or a process killed
    from outside), or RuntimeError with the end of the log.
    """
    found = manifest.read(tokens_artifact_path)
    if found is None:
        raise InputError(f"{tokens_artifact_path} is not a finished artifact; run pretokenize first")
    changes = {"model": model.model_dump(), "num_steps": steps, "checkpoint_every_steps": steps}
    short = PretrainConfig.model_validate({**config.model_dump(), **changes})
    job = make_job(
        short,
        tokens=tokens_artifact_path,
        facts=found.facts,
        tokens_digest=found.digest,
        config_fingerprint="trial",
        directory=directory,
    )
    assert not any(directory.iterdir()), f"{directory} is not empty"
    job.write()
    with Workers(job) as workers:
        returned = workers.wait(lambda: None)
    end = explain(job.run, returned)
    if end.code == BAD_INPUT:
        raise InputError(end.cause)
    if end.code == TRY_AGAIN or end.code < 0:
        raise TryAgain(f"the trial of {steps} steps did not end: {end.cause}; run the same command again")
    if end.code:
        raise RuntimeError(f"the trial of {steps} steps failed: {end.cause}\n{log_tail(job.run)}")
    saved = job.run.checkpoints / checkpoint.step_name(steps)
    metrics = read_lines(job.run.metrics)
    return {
        "losses": [line["loss"] for line in metrics],
        "gradient_norms": [line["gradient_norm"] for line in metrics],
        "heldout_loss": checkpoint.read_state(saved).heldout_loss,
        "seconds": [line["seconds"] for line in read_lines(job.run.timing)],
        "checkpoint_bytes": sum(path.stat().st_size for path in saved.rglob("*") if path.is_file()),
        **json.loads(job.run.result.read_text(encoding="utf-8")),
    }
