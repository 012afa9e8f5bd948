"""torchrun that dies with its parent, and whose ranks die with it.

python -m stages.pretrain.launch <arguments of torch.distributed.run>
"""

import os
import sys

from stages.pretrain.processes import PARENT, die_with_parent

if __name__ == "__main__":
    die_with_parent()
    os.environ[PARENT] = str(os.getpid())
    from torch.distributed.run import main

    main(sys.argv[1:])
