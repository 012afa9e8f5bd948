"""From the mixture and the schedules of a recipe to the phases of the order; the plan reads this too."""

from collections.abc import Mapping

from data.errors import InputError
from data.mixture import ResolvedMixture, resolve_phases
from stages.pretrain.config import PretrainConfig

Sizes = Mapping[str, int]
Pools = Mapping[str, Mapping[int, int]]


def train_phases(config: PretrainConfig, num_tokens: Sizes, num_sequences: Pools) -> ResolvedMixture:
    """The phases of the training. num_tokens: by domain; num_sequences: by domain and length. Raises InputError for a
    mixture that the tokens cannot serve.
    """
    lengths = [(phase.from_step - 1, phase.longest_tokens) for phase in config.length_schedule]
    if not lengths or lengths[0][0] > 0:
        lengths.insert(0, (0, config.sequence_tokens))
    schedule = [(phase.from_step - 1, phase.weights) for phase in config.mixture_schedule]
    found = resolve_phases(config.mixture, schedule, lengths, num_tokens=num_tokens, num_sequences=num_sequences)
    late = tuple(
        f"pretrain.{name}: the phase from step {phase.from_step} on has no effect, since the training ends with step "
        f"{config.num_steps}"
        for name, phases in (("mixture_schedule", config.mixture_schedule), ("length_schedule", config.length_schedule))
        for phase in phases
        if phase.from_step > config.num_steps
    )
    return ResolvedMixture(phases=found.phases, warnings=(*found.warnings, *late))


def heldout_phases(config: PretrainConfig, num_tokens: Sizes, num_sequences: Pools) -> ResolvedMixture:
    """The one phase of the held-out sequences: the training's first mixture, less the domains that have nothing held
    out. Raises InputError if none is left.
    """
    weights = {domain: weight for domain, weight in config.mixture.items() if domain in num_tokens}
    if config.mixture and not weights:
        raise InputError("no domain of pretrain.mixture has held-out text: raise curate.heldout_fraction")
    lengths = [(0, config.sequence_tokens)]
    return resolve_phases(weights, [], lengths, num_tokens=num_tokens, num_sequences=num_sequences)
