"""From a job to everything that the training loop works with, on each rank."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from data.order.loader import BatchLoader
from stages.pretrain.batches.exclusions import before
from stages.pretrain.batches.feed import Feed
from stages.pretrain.batches.sequences import Sequences, open_heldout, open_train
from stages.pretrain.checkpoints import checkpoint, measured
from stages.pretrain.checkpoints.cadence import LEAST_LOCAL_SECONDS
from stages.pretrain.checkpoints.checkpoint import StepState
from stages.pretrain.checkpoints.saver import Saver
from stages.pretrain.config import PretrainConfig
from stages.pretrain.faults import Hook, load_hook
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
from stages.pretrain.parallel.redundant import Replicas
from stages.pretrain.parallel.redundant_groups import Place, of_group
from stages.pretrain.parallel.redundant_members import Membership
from stages.pretrain.parallel.spread import spread, start
from stages.pretrain.parallel.timeouts import Timeouts, set_timeouts
from stages.pretrain.step import Training
from stages.pretrain.supervision.beats import Heart
from stages.pretrain.supervision.notices import Requests

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel


def set_up(job: Job, heart: Heart | None = None) -> tuple[Training, StepState]:
    """Join the other ranks, open the data, build and spread the model, and load the checkpoint that the job names.

    Raises InputError for data or a checkpoint that cannot be used, CheckpointError for a damaged one.
    """
    place = Place.here() if job.config.redundant else None
    if place is not None:
        job = job.model_copy(update={"config": of_group(job.config)})
    joins = place is not None and place.joins
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
        materialise=allocate if job.resume_step or joins else first_weights,  # a checkpoint, or others, bring theirs
    )
    set_timeouts(config, model)
    model.train()
    optimizer = build_optimizer(config, config.model.resolved(), model, layout)
    optimizer.create_state()

    hook = load_hook(job.hook)
    deal = partial(dealt, config, train, ranks.device)
    loader, train_feed = deal(ranks.rank, ranks.size)
    training = Training(
        config=config,
        ranks=ranks,
        model=model,
        optimizer=optimizer,
        precision=precision,
        attention=attention(config, train, precision),
        train=loader,
        train_feed=train_feed,
        heldout=heldout.loader(rank=ranks.rank, world_size=ranks.size),
        heldout_feed=feed(config, heldout, ranks.device, world_size=ranks.size),
        heldout_attention=attention(config, heldout, precision),
        draw=train.order.draw,
        excluded=job.excluded,
        checkpoints=job.run.checkpoints,
        checkpoint_seconds=job.checkpoint_seconds or config.checkpoint_seconds or LEAST_LOCAL_SECONDS,
        local_seconds=partial(measured.local_seconds, config, job.run),
        saver=Saver(
            job.run.checkpoints,
            ranks,
            config_values(shape),
            asynchronous=config.asynchronous_checkpoints,
            log=job.run.saves,
            timeout_seconds=config.collective_timeout_seconds,
            hook=hook,
        ),
        monitor=Monitor(config=config, ranks=ranks, model=model, vocabulary_size=job.padded_vocabulary_size),
        timeouts=Timeouts(config, heart),
        requests=Requests(job.run.request),
        hook=hook,
        replicas=None if place is None else replicas(job, place, ranks, hook),
        deal=deal,
    )
    return training, first_state(job, training, joins=joins)


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


def first_state(job: Job, training: Training, *, joins: bool = False) -> StepState:
    """The state to train from; that of the checkpoint which the job names is loaded. joins: it is to be received, so
    that this one does not count."""
    if joins or not job.resume_step:
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
        verified=job.verified,
    )


def attention(config: PretrainConfig, sequences: Sequences, precision: Precision) -> Attention:
    """How the model attends within `sequences`."""
    return Attention(config.attention, sequences.needs_mask, precision.dtype)


def feed(config: PretrainConfig, sequences: Sequences, device: "torch.device", *, world_size: int) -> Feed:
    """What brings this rank's part of the batches of `sequences` to its device."""
    return Feed(
        device=device,
        micro_batch_tokens=config.micro_batch_sequences * config.sequence_tokens,
        world_size=world_size,
    )


def dealt(
    config: PretrainConfig, sequences: Sequences, device: "torch.device", rank: int, size: int
) -> tuple[BatchLoader, Feed]:
    """What reads the rows of one rank among `size`, and what brings them to the device."""
    loader = sequences.loader(rank=rank, world_size=size)
    return loader, feed(config, sequences, device, world_size=size)


def replicas(job: Job, place: Place, ranks: Ranks, hook: Hook) -> Replicas:
    """The other groups of a redundant training, which this one has still to meet."""
    return Replicas(
        Membership(job.run.redundancy, group=place.group, rank=ranks.rank),
        ranks,
        has_state=not place.joins,
        seconds=job.config.collective_timeout_seconds,
        bucket_bytes=job.config.bucket_bytes,
        hook=hook,
    )
