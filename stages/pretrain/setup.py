"""From a job to everything that the training loop works with, on each rank."""

from pathlib import Path

from stages.pretrain import checkpoint, model, optim, parallel
from stages.pretrain.checkpoint import StepState
from stages.pretrain.faults import load_hook
from stages.pretrain.heldout import num_heldout_sequences
from stages.pretrain.job import Job
from stages.pretrain.loop import Training
from stages.pretrain.streams import HELDOUT, TRAIN, open_sequences


def set_up(job: Job) -> tuple[Training, StepState]:
    """Join the other ranks, open the data, build and spread the model, and load the checkpoint that the job names.

    Raises InputError for data or a checkpoint that cannot be used, CheckpointError for a damaged one.
    """
    config = job.config
    accelerator, ranks = parallel.start(config)
    train = open_sequences(config, Path(job.tokens), TRAIN)
    heldout = open_sequences(config, Path(job.tokens), HELDOUT)
    num_heldout = num_heldout_sequences(config, heldout)

    shape = model.huggingface_config(config.model, vocabulary_size=job.vocabulary_size, eos_id=job.eos_id)
    plain = model.build(shape)
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
        train=train.loader(
            batch_sequences=config.batch_sequences,
            sequence_tokens=config.sequence_tokens,
            rows=ranks.rows(config.batch_sequences),
        ),
        heldout=heldout.loader(
            batch_sequences=num_heldout, sequence_tokens=config.sequence_tokens, rows=ranks.rows(num_heldout)
        ),
        num_heldout=num_heldout,
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
            ranks=ranks,
        )
    else:
        state = StepState(
            step=0,
            tokens_seen=0,
            config_fingerprint=job.config_fingerprint,
            data_fingerprint=job.data_fingerprint,
        )
    return training, state
