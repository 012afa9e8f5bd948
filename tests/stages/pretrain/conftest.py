from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stages.pretrain.batches.exclusions import Draws
from stages.pretrain.checkpoints.checkpoint import StepState
from stages.pretrain.config import PretrainConfig
from stages.pretrain.step import Training
from tests.stages.pretrain import micro

Build = Callable[..., tuple[Training, StepState]]


@pytest.fixture(scope="session")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the micro corpus."""
    folder = tmp_path_factory.mktemp("tokens")
    micro.write_tokens(folder)
    return folder


@pytest.fixture
def build(tokens: Path, tmp_path: Path) -> Iterator[Build]:
    """`build(config, resume_step=0, excluded=())` sets a training up in this process, as a worker does; its run lies in
    tmp_path."""
    import torch
    from accelerate.state import AcceleratorState, GradientState

    from stages.pretrain.setup import set_up

    threads = torch.get_num_threads()

    def forget() -> None:
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()

    def build(config: PretrainConfig, *, resume_step: int = 0, excluded: Draws = ()) -> tuple[Training, StepState]:
        forget()
        return set_up(micro.worker_job(config, tokens, tmp_path / "run", resume_step=resume_step, excluded=excluded))

    yield build
    forget()
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)
