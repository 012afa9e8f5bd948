"""Documents and tokens: a library that imports nothing else of this project, and never torch.

Compiled kernels are kept on disk by numba, which notices a change of the file that a kernel stands in, but not of one
whose kernels it has inlined. So each state of the kernels' sources has a cache of its own, unless NUMBA_CACHE_DIR says
where to keep them.
"""

import hashlib
import os
from pathlib import Path


def _kernels_digest(folder: Path) -> str:
    state = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        source = path.read_bytes()
        if b"numba" in source:
            state.update(path.relative_to(folder).as_posix().encode() + b"\0" + source)
    return state.hexdigest()[:12]


def _cache_kernels(folder: Path) -> None:
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    cache = folder / "__pycache__" / f"kernels-{_kernels_digest(folder)}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a read-only installation: numba then keeps them in the user's own folder
    os.environ["NUMBA_CACHE_DIR"] = str(cache)


_cache_kernels(Path(__file__).parent)
