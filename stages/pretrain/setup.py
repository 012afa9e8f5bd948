"""From a job to everything that the training loop works with, on each rank."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stages.pretrain.batches.exclusions import before
from stages.pretrain.batches.feed import Feed
from stages.pretrain.batches.sequences import Sequences, open_heldout, open_train
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.checkpoints.checkpoint import StepState
from stages.pretrain.config import PretrainConfig
from stages.pretrain.faults import load_hook
from stages.pretrain.job import Job
from stages.pretrain.memory import recompute
from stages.pretrain.memory.precision import Precision, convert, precision_of
from stages.pretrain.model import liger
from stages.pretrain.model.attention import Attention, implementation, require_usable
from stages.pretrain.model.build import build, config_values, huggingface_config
from stages.pretrain.model.compiled import compile_layers
from stages.pretrain.model.initialise import allocate, materialise
from stages.pretrain.model.loss import Scoring
from stages.pretrain.monitor.monitor import Monitor
from stages.pretrain.optimise.optimizer import build_optimizer
from stages.pretrain.parallel.layout import layout_of
from stages.pretrain.parallel.ranks import Ranks
from stages.pretrain.parallel.spread import spread, start
from stages.pretrain.parallel.timeouts import Timeouts, process_groups
from stages.pretrain.step import Training

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


def set_up(job: Job) -> tuple[Training, StepState]:
    """Join the other ranks, open the data, build and spread the model, and load the checkpoint that the job names.

    Raises InputError for data or a checkpoint that cannot be used, CheckpointError for a damaged one.
    """
    config = job.config
    layout = layout_of(config)
    accelerator, ranks = start(config, layout)
    precision = precision_of(config, ranks.device, fully_sharded=layout.is_sharded)
    require_usable(config.attention, ranks.device, precision.dtype)

    train = open_train(config, Path(job.tokens), excluded=job.excluded)
    heldout = open_heldout(config, Path(job.tokens))
    for side in (train, heldout):
        side.check_vocabulary(size=job.vocabulary_size, padded_size=job.padded_vocabulary_size, end_id=job.eos_id)

    shape = huggingface_config(config.model, vocabulary_size=job.padded_vocabulary_size, eos_id=job.eos_id)
    first_weights = partial(materialise, shape=config.model.resolved(), seed=config.seed)
    model = spread(
        accelerator,
        on_meta(job, shape),
        config,
        layout,
        materialise=allocate if job.resume_step else first_weights,  # a checkpoint brings its own
    )
    model.train()
    optimizer = build_optimizer(config, config.model.resolved(), model, layout)
    optimizer.create_state()

    training = Training(
        config=config,
        ranks=ranks,
        model=model,
        optimizer=optimizer,
        precision=precision,
        attention=attention(config, train, precision),
        train=train.loader(rank=ranks.rank, world_size=ranks.size),
        train_feed=feed(config, train, ranks),
        heldout=heldout.loader(rank=ranks.rank, world_size=ranks.size),
        heldout_feed=feed(config, heldout, ranks),
        heldout_attention=attention(config, heldout, precision),
        draw=train.order.draw,
        excluded=job.excluded,
        checkpoints=job.run.checkpoints,
        model_config=config_values(shape),
        monitor=Monitor(config=config, ranks=ranks, model=model, vocabulary_size=job.padded_vocabulary_size),
        timeouts=Timeouts(config, ranks, process_groups(model)),
        hook=load_hook(job.hook),
    )
    return training, first_state(job, training)


def on_meta(job: Job, shape: "PretrainedConfig") -> "PreTrainedModel":
    """The model as it will compute, without weights."""
    config = job.config
    model = build(shape, implementation(config.attention), device="meta", trains=True)
    model.scoring = Scoring(
        vocabulary_size=job.vocabulary_size, chunk_tokens=config.loss_chunk_tokens, z_loss=config.z_loss
    )
    liger.apply(config, model)
    convert(config, model)
    recompute.apply(config, model)
    if config.compile:
        compile_layers(model)
    return model


def first_state(job: Job, training: Training) -> StepState:
    """The state to train from; that of the checkpoint which the job names is loaded."""
    if not job.resume_step:
        return StepState(
            step=0,
            tokens_seen=0,
            vocabulary_size=job.vocabulary_size,
            config_fingerprint=job.config_fingerprint,
            data_fingerprint=job.data_fingerprint,
        )
    return checkpoint.load(
        training.checkpoints,
        job.resume_step,
        training.tensors(),
        data_fingerprint=job.data_fingerprint,
        excluded=before(job.excluded, training.draw(job.resume_step - 1)),
    )


def attention(config: PretrainConfig, sequences: Sequences, precision: Precision) -> Attention:
    """How the model attends within `sequences`."""
    return Attention(config.attention, sequences.needs_mask, precision.dtype)


def feed(config: PretrainConfig, sequences: Sequences, ranks: Ranks) -> Feed:
    """What brings the batches of `sequences` to this rank's device."""
    return Feed(
        device=ranks.device,
        micro_batch_tokens=config.micro_batch_sequences * config.sequence_tokens,
        world_size=ranks.size,
    )
