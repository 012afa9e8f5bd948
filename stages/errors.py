"""What a stage may fail with, and the exit code that a shell or a flow sees.

`data.errors.InputError` (what a user wrote; exit code 2) is the other half.
"""

OK = 0
FAILED = 1
BAD_INPUT = 2
TRY_AGAIN = 75  # EX_TEMPFAIL of sysexits.h: the same command may succeed later


class TryAgain(RuntimeError):
    """Nothing is wrong with the request, but it cannot be done now: a lease is held, a disk is full."""


class LeaseHeld(TryAgain):
    """Another live process builds the same artifact."""


class LeaseLost(TryAgain):
    """Another process took the lease over while this one was not heard of."""


class StoreConflict(RuntimeError):
    """One key has been built twice with different results."""
