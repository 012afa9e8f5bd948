"""datatrove's four quality filters on given texts: what each decides, with its defaults.

    python -m tests.benchmarks.peers.curation.datatrove_decisions TEXTS.jsonl DECISIONS.json

Every text goes through every filter as it was read. Decisions are lists of the reasons by filter, "" for a text that is
kept; a filter that fails on a text drops it.
"""

import json
import sys
from pathlib import Path

from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)
from datatrove.utils.logging import logger


def main() -> None:
    logger.remove()
    filters = {
        "gopher-quality": GopherQualityFilter(),
        "gopher-repetition": GopherRepetitionFilter(),
        "c4": C4QualityFilter(),
        "fineweb": FineWebQualityFilter(),
    }
    decisions: dict[str, list[str]] = {name: [] for name in filters}
    with Path(sys.argv[1]).open() as file:
        for line in file:
            text = json.loads(line)
            for name, one in filters.items():
                decisions[name].append(_reason(one, text))
    Path(sys.argv[2]).write_text(json.dumps(decisions))


def _reason(one: object, text: str) -> str:
    try:
        found = one.filter(Document(text=text, id=""))
    except ZeroDivisionError:
        return "failed"
    return "" if found is True else found[1]


if __name__ == "__main__":
    main()
