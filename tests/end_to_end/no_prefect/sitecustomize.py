"""Python imports this by itself in every process whose PYTHONPATH names this folder: what ABSENT_PACKAGES lists
cannot be imported, as on a machine where it was never installed."""

import os
import sys


class Absent:
    """A finder that knows the absent packages, and that they are absent."""

    names = frozenset(os.environ.get("ABSENT_PACKAGES", "").split(","))

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())  # type: ignore[arg-type]
