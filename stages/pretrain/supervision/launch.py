"""torchrun that dies with its parent, whose ranks die with it, and that passes on how they ended.

python -m stages.pretrain.supervision.launch <arguments of torch.distributed.run>

Exit code: that of the rank that says most, 128 + n for a rank that signal n has killed, else 1.
"""

import os
import signal
import sys
from collections.abc import Sequence

from stages.errors import FAILED
from stages.pretrain.supervision.processes import PARENT, die_with_parent
from stages.pretrain.supervision.supervise import TELLING


def exit_code(codes: Sequence[int]) -> int:
    """Of the launcher, whose ranks failed with `codes`, the first failure first; negative ones are signals.

    torchrun ends the ranks that are left with SIGTERM, so that signal counts only where it came first.
    """
    for telling in TELLING:
        if telling in codes:
            return telling
    if -signal.SIGKILL in codes:
        return 128 + signal.SIGKILL
    return 128 - codes[0] if codes[0] < 0 else FAILED


if __name__ == "__main__":
    die_with_parent()
    os.environ[PARENT] = str(os.getpid())
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    try:
        main(sys.argv[1:])
    except ChildFailedError as error:
        print(error, file=sys.stderr)
        sys.exit(exit_code([failure.exitcode for failure in error.failures.values()]))
    except SignalException as error:
        sys.exit(128 + error.sigval)
