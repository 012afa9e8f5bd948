"""The held-out split: which groups (source files, packages) are kept out of training.

A keyed hash of the group's name decides, so the choice depends neither on order nor on the other groups, except that
every domain gets at least one group on either side, and that a domain's held-out text stays within a limit. A group
that spans domains is decided once, for all of them.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable

from data.errors import InputError


def draw(group: str, seed: int) -> float:
    """A number in [0, 1) that follows from the group's name and the seed alone."""
    key = seed.to_bytes(8, "little", signed=True)
    return int.from_bytes(hashlib.blake2b(group.encode(), key=key, digest_size=8).digest()[:7], "little") / (1 << 56)


def heldout_groups(sizes: Iterable[tuple[str, str, int]], *, fraction: float, most_bytes: int, seed: int) -> set[str]:
    """The groups to hold out. `sizes`: (domain, group, bytes), any number for each.

    A drawn group that would take one of its domains over `most_bytes` stays in training, unless that domain has no
    other held-out group. Raises InputError for a domain that cannot have text on both sides.
    """
    group_bytes: dict[str, Counter[str]] = defaultdict(Counter)
    members: dict[str, set[str]] = defaultdict(set)
    for domain, group, num_bytes in sizes:
        group_bytes[group][domain] += num_bytes
        members[domain].add(group)
    for domain in sorted(members):
        if len(members[domain]) < 2:
            raise InputError(
                f"domain {domain!r} has all its text in one group ({next(iter(members[domain]))}), "
                "so that nothing can be held out for evaluation; "
                "it needs documents of at least two groups (files, packages, or values of the source's group_field)"
            )
    order = sorted(group_bytes, key=lambda group: (draw(group, seed), group))
    held: set[str] = set()
    held_bytes: Counter[str] = Counter()
    held_count: Counter[str] = Counter()

    def leaves_training(group: str) -> bool:
        return all(held_count[domain] + 1 < len(members[domain]) for domain in group_bytes[group])

    def fits(group: str) -> bool:
        return all(held_bytes[domain] + num_bytes <= most_bytes for domain, num_bytes in group_bytes[group].items())

    def hold(group: str) -> None:
        held.add(group)
        held_bytes.update(group_bytes[group])
        held_count.update(group_bytes[group].keys())

    for group in order:
        if draw(group, seed) < fraction and fits(group) and leaves_training(group):
            hold(group)
    for domain in sorted(members):
        if held_count[domain]:
            continue
        possible = [group for group in order if group in members[domain] and leaves_training(group)]
        if not possible:
            raise InputError(
                f"domain {domain!r} shares all its groups with domains that would be left without training text; "
                "add documents to them"
            )
        within = [group for group in possible if fits(group)]
        hold(within[0] if within else min(possible, key=lambda group: group_bytes[group][domain]))
    return held
