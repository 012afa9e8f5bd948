"""The facts of a run: what was read, kept and dropped, by source, domain and language."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stages.curate.accounting import DROPPED, FUNNEL, READ, Accounts, Step, domain_facts, language_facts
from stages.curate.config import CurateConfig
from stages.curate.shard import COUNTS, Shard


def findings(
    config: CurateConfig, accounts: Accounts, shards: Sequence[Shard], renamed: Mapping[int, int]
) -> dict[str, Any]:
    """shards: of the first pass. renamed: source number -> documents whose name was taken."""
    counts = [json.loads((shard.folder / COUNTS).read_text()) for shard in shards]
    domains = accounts.by("domain")
    languages = {language: found for language, found in accounts.by("language").items() if language}
    return {
        "sources": _sources(config, accounts, counts, renamed),
        "domains": {name: domain_facts(found) for name, found in domains.items()},
        "languages": {name: language_facts(found) for name, found in languages.items()},
        "funnel": {
            "steps": list(FUNNEL),
            "domains": {name: found.funnel() for name, found in domains.items()},
            "languages": {name: found.funnel() for name, found in languages.items()},
        },
        "pii": dict(sorted(_total(entry.get("pii", {}) for entry in counts).items())),
        "not_judged": _not_judged(counts),
    }


def _sources(
    config: CurateConfig, accounts: Accounts, counts: list[dict[str, Any]], renamed: Mapping[int, int]
) -> list[dict[str, Any]]:
    read: dict[int, dict[str, list[int]]] = {}
    rejected: dict[int, Counter[str]] = {}
    keys = ["source_number", "domain", "step", "outcome"]
    totals = accounts.table.group_by(keys, use_threads=False).aggregate([("documents", "sum"), ("bytes", "sum")])
    for row in totals.sort_by([(key, "ascending") for key in keys]).to_pylist():
        number, domain, documents, num_bytes = (
            row["source_number"],
            row["domain"],
            row["documents_sum"],
            row["bytes_sum"],
        )
        entry = read.setdefault(number, {}).setdefault(domain, [0, 0])
        if row["outcome"] == READ:
            entry[0] += documents
            entry[1] += num_bytes
        elif row["step"] == Step.CLEAN:
            entry[0] -= documents
            entry[1] -= num_bytes
            rejected.setdefault(number, Counter())[row["outcome"].removeprefix(DROPPED)] += documents
    found = []
    for number, source in enumerate(config.sources):
        mine = [entry for entry in counts if entry["source_number"] == number]
        found.append(
            {
                "kind": source.kind.value,
                "source": source.path or source.name or source.kind.value,
                "documents": {domain: entry[0] for domain, entry in read[number].items()},
                "bytes": {domain: entry[1] for domain, entry in read[number].items()},
                "rejected": dict(sorted(rejected.get(number, {}).items())),
                "repaired": dict(sorted(_total(entry["repairs"] for entry in mine).items())),
                "renamed_ids": renamed.get(number, 0),
                "stopped_at_max_bytes": sorted({domain for entry in mine for domain in entry["stopped_domains"]}),
            }
        )
    return found


def _not_judged(counts: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, int]]]:
    """Language -> domain -> documents and bytes that no quality rule covers."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for entry in counts:
        for language, (documents, num_bytes) in entry.get("not_judged", {}).items():
            total = found.setdefault(language or "any", {}).setdefault(entry["domain"], {"documents": 0, "bytes": 0})
            total["documents"] += documents
            total["bytes"] += num_bytes
    return {language: dict(sorted(domains.items())) for language, domains in sorted(found.items())}


def _total(counters: Any) -> Counter[str]:
    total: Counter[str] = Counter()
    for counter in counters:
        total.update(counter)
    return total
