"""A process that reads a stream out of remote shards, for tests to kill:

python -m tests.data.shards.remote_reader INDEX_FOLDER URL PORT CACHE_DIRECTORY
"""

import sys
from pathlib import Path

from data.shards.cache import BlockCache
from data.shards.remote import RemoteShards
from data.shards.streams import open_streams
from tests.services.s3 import options

if __name__ == "__main__":
    folder, url, port, directory = sys.argv[1:]
    print("begun", flush=True)
    files = RemoteShards(url, BlockCache(Path(directory), 10**9), readers=2, options=options(int(port)))
    stream = open_streams(Path(folder), files=files)["a"]
    stream.read(0, len(stream))
