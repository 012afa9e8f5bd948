"""fsspec file systems whose every attempt is one request, so that whoever repeats one counts right."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from data.errors import InputError

# Attempts are counted by whoever calls and in no layer below: with the defaults of s3fs and botocore, which multiply,
# one read of a server that resets every connection is 250 requests in three minutes.
OPTIONS: Mapping[str, dict[str, Any]] = {
    "s3": {
        "config_kwargs": {
            "retries": {"total_max_attempts": 1},
            "connect_timeout": 10,
            "read_timeout": 30,
            "max_pool_connections": 64,
        }
    }
}
# What no later attempt can mend, or is a mistake of ours.
LASTING = (InputError, AssertionError, AttributeError, ImportError, NameError, TypeError)


def file_system(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """An fsspec file system of its own, whose every attempt is one request, and the path of `url` on it. options: of
    the file system, besides or instead of those in OPTIONS. Raises InputError if there is none for such a URL."""
    from fsspec.core import split_protocol, url_to_fs

    try:
        defaults = OPTIONS.get(split_protocol(url)[0] or "", {})
        found, root = url_to_fs(url, **{**_merged(defaults, options), "skip_instance_cache": True})
    except (ImportError, ValueError) as error:
        raise InputError(f"no file system for {url}: {error}") from error
    if hasattr(found, "retries"):  # s3fs, gcsfs
        found.retries = 1
    return found, root


def _merged(defaults: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The settings chosen, and those of the defaults that they do not name; a copy, as botocore writes into them."""
    merged = deepcopy({**defaults, **chosen})
    for name, value in defaults.items():
        if isinstance(value, Mapping) and isinstance(chosen.get(name), Mapping):
            merged[name] = _merged(value, chosen[name])
    return merged
