"""Digests of files are remembered, and never when the file may have changed."""

import hashlib
import os
import time

import pytest

from data.errors import InputError
from data.reading.filehash import FileHashes


def later() -> int:
    """A clock by which every file here has been left alone for long."""
    return time.time_ns() + 10_000_000_000


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_an_unchanged_file_is_not_read_again(tmp_path, monkeypatch):
    path, cache = tmp_path / "a", tmp_path / "deep/cache.json"
    path.write_bytes(b"one")
    with FileHashes(cache, later) as hashes:
        assert hashes.of(path) == (3, digest(b"one"))
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("read again"))
    with FileHashes(cache) as hashes:
        assert hashes.of(path) == (3, digest(b"one"))


def test_a_file_that_changed_within_one_tick_of_its_clock_is_read_again(tmp_path):
    path, cache = tmp_path / "a", tmp_path / "cache.json"
    path.write_bytes(b"one")
    stamp = path.stat().st_mtime_ns
    with FileHashes(cache) as hashes:
        hashes.of(path)
    path.write_bytes(b"two")
    os.utime(path, ns=(stamp, stamp))
    with FileHashes(cache) as hashes:
        assert hashes.of(path) == (3, digest(b"two"))


def test_an_edit_in_place_whose_modification_time_was_set_back_is_read(tmp_path):
    path, cache = tmp_path / "a", tmp_path / "cache.json"
    path.write_bytes(b"one")
    before = path.stat()
    with FileHashes(cache, later) as hashes:
        hashes.of(path)
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        path.write_bytes(b"two")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns and path.stat().st_ino == before.st_ino
    with FileHashes(cache, later) as hashes:
        assert hashes.of(path) == (3, digest(b"two"))


@pytest.mark.parametrize("content", [b"", b"not json", b"[]", b'{"x": 1}'])
def test_a_broken_cache_is_only_slower(tmp_path, content):
    path, cache = tmp_path / "a", tmp_path / "cache.json"
    path.write_bytes(b"one")
    cache.write_bytes(content)
    with FileHashes(cache, later) as hashes:
        assert hashes.of(path) == (3, digest(b"one"))
    assert str(path) in cache.read_text()


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="none: No such file"):
        FileHashes(tmp_path / "cache.json").of(tmp_path / "none")
