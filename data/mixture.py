"""In which proportions a training run draws from its domains."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from data.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """weights: share of each domain that is drawn from; they sum to 1. warnings: what the user asked for and does not
    get, one sentence each.
    """

    weights: dict[str, float]
    warnings: tuple[str, ...]


def resolve_mixture(
    weights: Mapping[str, float], *, num_tokens: Mapping[str, int], num_sequences: Mapping[str, int]
) -> Mixture:
    """The mixture that a run really has.

    weights: what the user wrote, in any scale; empty means in proportion to the tokens. num_tokens, num_sequences: of
    each domain that is there. A domain without one whole sequence gives its share to the others. Raises InputError for
    a domain that is not there, for a weight that is not positive, and if no domain is left.
    """
    for domain, weight in weights.items():
        if domain not in num_tokens:
            present = ", ".join(sorted(num_tokens)) or "none"
            raise InputError(f"the mixture names domain {domain!r}, which the corpus lacks; it has {present}")
        if not (math.isfinite(weight) and weight > 0):
            raise InputError(
                f"the mixture's weight of {domain!r} is {weight}; it must be above 0 (leave a domain out to draw "
                "nothing from it)"
            )
    wanted = dict(weights) or {domain: float(count) for domain, count in num_tokens.items() if count}
    usable = {domain: weight for domain, weight in sorted(wanted.items()) if num_sequences[domain] > 0}
    if not usable:
        have = ", ".join(f"{domain} {num_tokens[domain]} tokens" for domain in sorted(wanted)) or "no tokens at all"
        raise InputError(
            f"no domain of the mixture has one training sequence ({have}); add text or lower sequence_tokens"
        )
    total = math.fsum(usable.values())
    return Mixture(
        weights={domain: weight / total for domain, weight in usable.items()},
        warnings=tuple(
            f"domain {domain!r} has {num_tokens[domain]} tokens, less than one sequence; its share goes to the "
            "other domains"
            for domain in sorted(set(wanted) - set(usable))
        ),
    )
