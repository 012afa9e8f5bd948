"""Which difference a comparison could have shown."""

POWER = 0.8


def minimal_detectable_difference(
    standard_error: float, num_clusters: int, level: float, power: float = POWER
) -> float | None:
    """The true difference that a two-sided test at `level` finds with probability `power`, in the metric's units: the
    standard error of the difference times the two quantiles of Student's t with num_clusters - 1 degrees of freedom
    (Bloom 1995). None where no difference could be shown: so few clusters have too few patterns of signs.
    """
    from scipy.special import stdtrit

    if num_clusters < 2 or 2.0 ** (1 - num_clusters) > level:
        return None
    degrees = num_clusters - 1
    return float((stdtrit(degrees, 1 - level / 2) + stdtrit(degrees, power)) * standard_error)
