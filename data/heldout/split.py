"""The held-out split: which groups (source files, packages) are kept out of training.

A keyed hash of the group decides, so the choice depends neither on order nor on the other groups, except that every
domain gets at least one group on either side, and that a domain's held-out text stays within a limit. A group that
spans domains is decided once, for all of them.
"""

from collections.abc import Callable, Sequence

import numpy as np

from data.errors import InputError


def draws(groups: np.ndarray, seed: int) -> np.ndarray:
    """float64[n] in [0, 1) that follow from the groups' keys (uint64[n]) and the seed alone."""
    key = _mixed(np.array([seed & (1 << 64) - 1], np.uint64))
    return (_mixed(groups ^ key) >> np.uint64(11)) / float(1 << 53)


def heldout_rows(
    *,
    groups: np.ndarray,
    domains: np.ndarray,
    num_bytes: np.ndarray,
    domain_names: Sequence[str],
    fraction: float,
    most_bytes: int,
    seed: int,
    group_name: Callable[[int], str] = str,
) -> np.ndarray:
    """bool[n], the documents to hold out: whole groups. groups: uint64[n], `data.text.keys` of their names. domains:
    integers [n], places in `domain_names`, each of which occurs. num_bytes: int64[n]. group_name: the group of a
    document, for messages.

    A drawn group that would take one of its domains over `most_bytes` stays in training, unless that domain has no
    other held-out group. Raises InputError for a domain that cannot have text on both sides.
    """
    split = _Split(groups, domains, num_bytes, len(domain_names), most_bytes)
    for domain, members in enumerate(split.members.tolist()):
        if members < 2:
            only = group_name(int(np.flatnonzero(domains == domain)[0]))
            raise InputError(
                f"domain {domain_names[domain]!r} has all its text in one group ({only}), "
                "so that nothing can be held out for evaluation; "
                "it needs documents of at least two groups (files, packages, or values of the source's group_field)"
            )
    drawn = draws(split.groups, seed)
    order = np.lexsort((split.groups, drawn))
    for group in order[drawn[order] < fraction].tolist():
        if split.fits(group) and split.leaves_training(group):
            split.hold(group)
    for domain, name in enumerate(domain_names):
        if split.held_count[domain]:
            continue
        possible = [group for group in order[split.in_domain(domain)[order]].tolist() if split.leaves_training(group)]
        if not possible:
            raise InputError(
                f"domain {name!r} shares all its groups with domains that would be left without training text; "
                "add documents to them"
            )
        within = next((group for group in possible if split.fits(group)), None)
        split.hold(min(possible, key=lambda group: split.size(group, domain)) if within is None else within)
    return split.held[split.group_of_row]


class _Split:
    """Groups by number, their bytes in each domain, and which of them are held out so far."""

    def __init__(
        self, groups: np.ndarray, domains: np.ndarray, num_bytes: np.ndarray, num_domains: int, most_bytes: int
    ) -> None:
        self.most_bytes = most_bytes
        self.groups, self.group_of_row = np.unique(groups, return_inverse=True)
        pairs, pair_of_row = np.unique(self.group_of_row * num_domains + domains, return_inverse=True)
        self._pair_group, self._pair_domain = np.divmod(pairs, num_domains)
        # float64 holds sums below 2^53 bytes exactly
        self._pair_bytes = np.bincount(pair_of_row, weights=num_bytes, minlength=len(pairs)).astype(np.int64)
        self._first = np.searchsorted(self._pair_group, np.arange(len(self.groups) + 1))
        self.members = np.bincount(self._pair_domain, minlength=num_domains)
        self.held = np.zeros(len(self.groups), bool)
        self.held_count = [0] * num_domains
        self._held_bytes = [0] * num_domains

    def _parts(self, group: int) -> list[tuple[int, int]]:
        """(domain, bytes) of a group."""
        chosen = slice(self._first[group], self._first[group + 1])
        return list(zip(self._pair_domain[chosen].tolist(), self._pair_bytes[chosen].tolist(), strict=True))

    def in_domain(self, domain: int) -> np.ndarray:
        """bool[groups]: which have text in a domain."""
        found = np.zeros(len(self.groups), bool)
        found[self._pair_group[self._pair_domain == domain]] = True
        return found

    def size(self, group: int, domain: int) -> int:
        return dict(self._parts(group))[domain]

    def leaves_training(self, group: int) -> bool:
        return all(self.held_count[domain] + 1 < self.members[domain] for domain, _ in self._parts(group))

    def fits(self, group: int) -> bool:
        return all(self._held_bytes[domain] + size <= self.most_bytes for domain, size in self._parts(group))

    def hold(self, group: int) -> None:
        self.held[group] = True
        for domain, size in self._parts(group):
            self.held_count[domain] += 1
            self._held_bytes[domain] += size


def _mixed(values: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64, on uint64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
