"""The error for what a user wrote or supplied.

Every room raises it; the command line prints its message without a traceback and exits with code 2.
"""


class InputError(ValueError):
    """A setting or an input of the user cannot be used; the message names the fix."""
