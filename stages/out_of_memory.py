"""Out of memory, told from all other failures, and the settings with which a stage needs less.

The same command with the same settings would run out of memory again, so this is something that a user has to change.
Libraries report it in words of their own: torch as OutOfMemoryError or as a RuntimeError of its CPU allocator, numpy,
pyarrow and C++ as MemoryError, the system as ENOMEM.
"""

import errno
import re
from typing import TypeVar

from data.errors import InputError
from stages.config import StageConfig
from stages.disk import causes

Error = TypeVar("Error", bound=BaseException)

SAYS_SO = re.compile(
    r"out of memory|not enough memory|can(no|')t allocate memory|unable to allocate|ALLOC_FAILED|bad_alloc", re.I
)
NAMES = ("OutOfMemoryError", "OutOfMemory")  # of torch, and of Ray
TRAINING = ("pretrain", "preflight")  # which tries what the other does
# By stage.
LOWER = {
    "curate": ("lower curate.workers", "take less text in curate.sources"),
    "tokenizer": ("lower tokenizer.sample_bytes", "lower tokenizer.size"),
    "pretokenize": ("lower pretokenize.workers", "lower pretokenize.shard_bytes"),
    "evaluate": ("lower evaluate.batch_tokens", 'set evaluate.beside = "queue" where a training runs beside it'),
    "compare": ("lower compare.most_flips",),
    "export": ("lower export.batch_tokens", "name fewer export.forms"),
}


def explained(error: Error, stage: str, config: StageConfig) -> Error | InputError:
    """`error` itself, or what a user can do about it if `stage` has run out of memory."""
    if isinstance(error, InputError) or not says_so(error):
        return error
    told = InputError(f"{stage} has run out of memory ({_first_line(error)}); {advice(stage, config)}")
    told.__cause__ = error  # a traceback shows where
    return told


def says_so(error: BaseException) -> bool:
    """Whether `error`, or something that it came from, says that there was no memory."""
    return any(_says_so(cause) for cause in causes(error))


def _says_so(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ in NAMES:
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and bool(SAYS_SO.search(str(error)))


def _first_line(error: BaseException) -> str:
    said = next(cause for cause in causes(error) if _says_so(cause))
    return (str(said).strip().partition("\n")[0] or type(said).__name__).rstrip(".")


def advice(stage: str, config: StageConfig) -> str:
    """What to change, for a message."""
    settings = list(LOWER.get(stage, ()))
    if stage in TRAINING:
        from stages.pretrain.config import PretrainConfig
        from stages.pretrain.memory.less import less_memory

        training = getattr(config, "pretrain", config)
        assert isinstance(training, PretrainConfig)
        settings = less_memory(training)
    if not settings:
        return "none of its settings makes it need less: it needs a machine with more memory"
    return f"{', or '.join(settings)}: with the same settings it would end the same way"
