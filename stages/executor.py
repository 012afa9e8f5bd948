"""Map a function over shards. Threads: the work is done in kernels that release the GIL."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_shards(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> list[Result]:
    """Results in the order of `items`, whatever the number of workers. The first error surfaces; what has not begun
    is dropped."""
    with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
