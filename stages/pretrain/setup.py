"""From a job to everything that the training loop works with, on each rank."""

from pathlib import Path

from data.errors import InputError
from stages.pretrain.batches.exclusions import before
from stages.pretrain.batches.feed import Feed
from stages.pretrain.batches.sequences import Sequences, open_heldout, open_train
from stages.pretrain.checkpoints import checkpoint
from stages.pretrain.checkpoints.checkpoint import StepState
from stages.pretrain.config import PretrainConfig
from stages.pretrain.faults import load_hook
from stages.pretrain.job import Job
from stages.pretrain.loop import Training
from stages.pretrain.model import build as model
from stages.pretrain.model.attention import Attention, implementation
from stages.pretrain.optimise import optimizer as optim
from stages.pretrain.parallel import spread as parallel
from stages.pretrain.parallel.spread import Ranks


def set_up(job: Job) -> tuple[Training, StepState]:
    """Join the other ranks, open the data, build and spread the model, and load the checkpoint that the job names.

    Raises InputError for data or a checkpoint that cannot be used, CheckpointError for a damaged one.
    """
    config = job.config
    accelerator, ranks = parallel.start(config)
    train = open_train(config, Path(job.tokens), excluded=job.excluded)
    heldout = open_heldout(config, Path(job.tokens))
    for side in (train, heldout):
        side.check_vocabulary(size=job.vocabulary_size, padded_size=job.padded_vocabulary_size, end_id=job.eos_id)

    shape = model.huggingface_config(config.model, vocabulary_size=job.padded_vocabulary_size, eos_id=job.eos_id)
    plain = model.build(shape, implementation(config.attention))
    model.initialise(plain, seed=config.seed, std=shape.initializer_range, num_layers=shape.num_hidden_layers)
    optimizer = optim.build_optimizer(config, plain)
    spread, optimizer = parallel.spread(accelerator, plain, optimizer, compile_layers=config.compile)
    optim.create_state(optimizer)
    spread.train()

    training = Training(
        config=config,
        ranks=ranks,
        model=spread,
        optimizer=optimizer,
        attention=attention(config, train, ranks),
        vocabulary_size=job.vocabulary_size,
        train=train.loader(rank=ranks.rank, world_size=ranks.size),
        train_feed=feed(config, train, ranks),
        heldout=heldout.loader(rank=ranks.rank, world_size=ranks.size),
        heldout_feed=feed(config, heldout, ranks),
        heldout_attention=attention(config, heldout, ranks),
        draw=train.order.draw,
        excluded=job.excluded,
        checkpoints=job.run.checkpoints,
        model_config=model.config_values(shape),
        hook=load_hook(job.hook),
    )
    if job.resume_step:
        state = checkpoint.load(
            training.checkpoints,
            job.resume_step,
            training.tensors(),
            data_fingerprint=job.data_fingerprint,
            excluded=before(job.excluded, train.order.draw(job.resume_step - 1)),
            ranks=ranks,
        )
    else:
        state = StepState(
            step=0,
            tokens_seen=0,
            vocabulary_size=job.vocabulary_size,
            config_fingerprint=job.config_fingerprint,
            data_fingerprint=job.data_fingerprint,
        )
    return training, state


def attention(config: PretrainConfig, sequences: Sequences, ranks: Ranks) -> Attention:
    """How the model attends within `sequences`. Raises InputError for a back end that cannot be trained with here."""
    import torch

    if config.attention == "flex" and ranks.device.type == "cpu":
        raise InputError('pretrain.attention = "flex" has no backward pass on a CPU; use "sdpa" or "eager" here')
    dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
    return Attention(config.attention, sequences.needs_mask, dtype)


def feed(config: PretrainConfig, sequences: Sequences, ranks: Ranks) -> Feed:
    """What brings the batches of `sequences` to this rank's device."""
    return Feed(
        device=ranks.device,
        batch_tokens=sequences.batch_tokens,
        micro_batch_tokens=config.micro_batch_sequences * config.sequence_tokens,
        world_size=ranks.size,
    )
