from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of the user's is read or written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
