"""The peers' environments: .bench/<peer>/, made once by pip with the versions that stand here.

A marker with these versions is written last, so a build that was cut short, or one of other versions, is made anew.
"""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

BENCH = Path(".bench")
MARKER = "ready"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A tool to compare with. installs: one call of pip each; `torch` alone comes first, so that pip takes its build
    for the CPU where the machine has one.
    """

    name: str
    title: str
    settings: str
    installs: tuple[tuple[str, ...], ...]

    @property
    def version(self) -> str:
        """Of the package that the peer is about."""
        return self.installs[-1][0].partition("==")[2]


NUMPY, TOKENIZERS, SENTENCEPIECE = "numpy==2.4.6", "tokenizers==0.23.3", "sentencepiece==0.2.3"
PEERS = (
    Peer(
        name="datatrove",
        title="datatrove DocumentTokenizer",
        settings="tokenizers, no shuffling, uint16",
        installs=(("datatrove==0.10.1", TOKENIZERS, NUMPY, "orjson==3.13.0", "humanize==4.17.0"),),
    ),
    Peer(
        name="megatron",
        title="Megatron-style preprocess",
        settings="tokenizers, batches of 1,000, uint16",
        installs=((TOKENIZERS, NUMPY),),
    ),
    Peer(
        name="datasets",
        title="datasets map, save_to_disk",
        settings="SentencePiece, in memory, uint16",
        installs=(("datasets==5.2.0", "pyarrow==26.0.1", SENTENCEPIECE, NUMPY),),
    ),
    Peer(
        name="litdata",
        title="litdata optimize",
        settings="SentencePiece, TokensLoader, one forked worker, uint16",
        installs=(
            ("torch==2.13.0",),
            ("litdata==0.2.76", "torch==2.13.0", "torchvision==0.28.0", SENTENCEPIECE, NUMPY),
        ),
    ),
)


def python_of(peer: Peer) -> Path:
    """The interpreter of the peer's environment, which is built if it is not there."""
    folder = BENCH / peer.name
    pins = "".join(f"{pin}\n" for install in peer.installs for pin in install)
    marker = folder / MARKER
    python = folder / "bin" / "python"
    if not marker.is_file() or marker.read_text() != pins:
        print(f"building {folder}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        for install in peer.installs:
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *install], check=True)
        marker.write_text(pins)
    return python
