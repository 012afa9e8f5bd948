"""Which difference a comparison could have shown."""

POWER = 0.8


def minimal_detectable_difference(standard_error: float, freedom: int, level: float, power: float = POWER) -> float:
    """The true difference that a two-sided test at `level` finds with probability `power`, in the metric's units: the
    standard error of the difference times the two quantiles of Student's t with `freedom` degrees of freedom (Bloom
    1995).
    """
    from scipy.special import stdtrit

    return float((stdtrit(freedom, 1 - level / 2) + stdtrit(freedom, power)) * standard_error)
