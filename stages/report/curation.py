"""What the page says of the text: what went in, what each step left, what was dropped and why, with samples.

Read from the facts and samples.parquet of the corpus. Tokens of a step before tokenization are an estimate: its bytes,
at the tokens per byte that were measured on the domain's or language's kept text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.store import Artifact

SAMPLES_FILE = "samples.parquet"
UNITS = ("documents", "bytes")
TOKENS = "tokens, estimated"
FOLD_ROWS = 12  # of a table, behind which the others are folded
NOT_WANTED = ("language: ", " not wanted")  # around the code, in the reason for which curation drops such a text
FOLDED_SAMPLES = 20  # of the languages not wanted together


def data_rows(corpus: Mapping[str, Any], tokens: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each domain, what went in and where it went; the last row adds up, and says whether nothing is missing."""
    rows = []
    for domain, counts in sorted(corpus["domains"].items()):
        row = {"domain": domain}
        for unit in UNITS:
            row[f"{unit}_in"] = counts[f"{unit}_in"]
            row[f"{unit}_dropped"] = sum(reason[unit] for reason in counts["dropped"].values())
            row[f"{unit}_heldout"], row[f"{unit}_train"] = counts[f"heldout_{unit}"], counts[f"train_{unit}"]
        row["bytes_edited"] = sum(counts["edited"].values())
        encoded = tokens["domains"].get(domain, {})
        row["tokens_train"], row["tokens_heldout"] = encoded.get("train_tokens", 0), encoded.get("heldout_tokens", 0)
        rows.append(row)
    total = {
        "domain": "all",
        **{name: sum(row[name] for row in rows) for name in (rows[0] if rows else {}) if name != "domain"},
    }
    return [*rows, total] if rows else []


def funnels(
    corpus: Mapping[str, Any], tokens: Mapping[str, Any], tokenizer: Mapping[str, Any]
) -> dict[str, dict[str, dict[str, list[float]]]]:
    """ "domains" and "languages" -> unit -> group -> what is left after each step of facts["funnel"]["steps"]. Without
    languages, where they were not identified. tokens, tokenizer: the facts of pretokenize and tokenizer.
    """
    per_byte = _tokens_per_byte(corpus, tokens)
    overall = per_byte.pop("all", 0.0)
    of_language = {
        language: 1 / found["bytes_per_token"]
        for language, found in tokenizer["languages"].items()
        if found["bytes_per_token"]
    }
    found = {}
    for kind, rates in (("domains", per_byte), ("languages", of_language)):
        groups = corpus["funnel"][kind]
        if groups:
            found[kind] = {
                unit: {group: [float(step[at]) for step in steps] for group, steps in groups.items()}
                for at, unit in enumerate(UNITS)
            }
            found[kind][TOKENS] = {
                group: [num_bytes * rates.get(group, overall) for num_bytes in values]
                for group, values in found[kind]["bytes"].items()
            }
    return found


def _tokens_per_byte(corpus: Mapping[str, Any], tokens: Mapping[str, Any]) -> dict[str, float]:
    """Domain, and "all" -> tokens for each byte of kept text, the tokens that end documents among them."""
    sums: dict[str, list[int]] = {}
    for row in data_rows(corpus, tokens):
        counts = sums.setdefault(row["domain"], [0, 0])
        counts[0] += row["tokens_train"] + row["tokens_heldout"]
        counts[1] += row["bytes_train"] + row["bytes_heldout"]
    return {domain: num_tokens / num_bytes for domain, (num_tokens, num_bytes) in sums.items() if num_bytes}


def left_rows(corpus: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """For each domain or language, the one with most bytes first and languages not wanted last: the share of its bytes
    that each step left.
    """
    last = _unwanted(corpus) if kind == "languages" else set()
    return [
        {"group": group, "bytes_in": steps[0][1], "shares": [step[1] / max(1, steps[0][1]) for step in steps]}
        for group, steps in sorted(
            corpus["funnel"][kind].items(), key=lambda entry: (entry[0] in last, -entry[1][0][1], entry[0])
        )
    ]


def _unwanted(corpus: Mapping[str, Any]) -> set[str]:
    """The languages that the recipe does not want."""
    return {
        language for language, counts in corpus["languages"].items() if language.join(NOT_WANTED) in counts["dropped"]
    }


def language_rows(corpus: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each language, the one with most bytes first and those not wanted last: what went in, the shares that were
    kept, the reason that took most bytes, and how many documents no quality rule covered. wiped_out: whether nothing of
    it was kept although it was wanted.
    """
    rows, unwanted = [], _unwanted(corpus)
    for language, counts in corpus["languages"].items():
        reasons = sorted(counts["dropped"].items(), key=lambda entry: (-entry[1]["bytes"], entry[0]))
        rows.append(
            {
                "language": language,
                **{name: counts[name] for name in ("documents_in", "kept_documents", "bytes_in", "kept_bytes")},
                "kept_documents_share": counts["kept_documents"] / max(1, counts["documents_in"]),
                "kept_bytes_share": counts["kept_bytes"] / max(1, counts["bytes_in"]),
                "biggest_reason": reasons[0][0] if reasons else "",
                "not_judged": sum(found["documents"] for found in corpus["not_judged"].get(language, {}).values()),
                "wanted": language not in unwanted,
                "wiped_out": counts["documents_in"] > 0 and not counts["kept_documents"] and language not in unwanted,
            }
        )
    return sorted(rows, key=lambda row: (not row["wanted"], -row["bytes_in"], row["language"]))


def drop_rows(corpus: Mapping[str, Any], samples: Mapping[str, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Every reason for which text was left out, the one with most bytes first, with its samples; languages not wanted
    are one reason.
    """
    reasons: dict[str, dict[str, Any]] = {}
    languages = {
        reason for counts in corpus["domains"].values() for reason in counts["dropped"] if _of_language(reason)
    }
    folded = f"languages not wanted ({len(languages)})"
    total = sum(counts["documents_in"] for counts in corpus["domains"].values())
    for domain, counts in sorted(corpus["domains"].items()):
        for reason, lost in counts["dropped"].items():
            name = folded if reason in languages else reason
            row = reasons.setdefault(name, {"reason": name, "documents": 0, "bytes": 0, "domains": []})
            row["documents"] += lost["documents"]
            row["bytes"] += lost["bytes"]
            if domain not in row["domains"]:
                row["domains"].append(domain)
    for row in reasons.values():
        row["share"] = row["documents"] / max(1, total)
        row["samples"] = samples.get(row["reason"], [])
    if languages:
        reasons[folded]["samples"] = _in_turns([samples.get(reason, []) for reason in sorted(languages)])
    return sorted(reasons.values(), key=lambda row: (-row["bytes"], row["reason"]))


def _of_language(reason: str) -> bool:
    return reason.startswith(NOT_WANTED[0]) and reason.endswith(NOT_WANTED[1])


def _in_turns(samples: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The first of each, then the second of each and so on, FOLDED_SAMPLES at most."""
    from itertools import chain, islice, zip_longest

    found = (sample for sample in chain.from_iterable(zip_longest(*samples)) if sample is not None)
    return list(islice(found, FOLDED_SAMPLES))


def read_samples(corpus: Artifact) -> dict[str, list[dict[str, Any]]]:
    """Reason -> the sampled drops, as samples.parquet has them."""
    import pyarrow.parquet as pq

    found: dict[str, list[dict[str, Any]]] = {}
    for row in pq.read_table(corpus.path / SAMPLES_FILE).to_pylist():
        found.setdefault(row["reason"], []).append(row)
    return found


def edit_rows(corpus: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was edited, also of documents that a later step dropped: the bytes that it took away, and the domains."""
    rows: dict[str, dict[str, Any]] = {}
    for domain, counts in sorted(corpus["domains"].items()):
        for what, num_bytes in counts["edited"].items():
            row = rows.setdefault(what, {"what": what, "bytes": 0, "domains": []})
            row["bytes"] += num_bytes
            row["domains"].append(domain)
    return sorted(rows.values(), key=lambda row: (-row["bytes"], row["what"]))


def task_rows(corpus: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What training text was compared with, and how many documents went for it: held-out text, then task by task."""
    found = corpus["decontamination"]
    return [
        {"task": "held-out text", **found["heldout"]},
        *({"task": task, **counts} for task, counts in sorted(found["tasks"].items())),
    ]


def source_rows(corpus: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each source, in the recipe's order: documents and bytes that are text, and records that were not, or that
    were mended or named anew.
    """
    return [
        {
            "source": found["source"],
            "kind": found["kind"],
            "documents": sum(found["documents"].values()),
            "bytes": sum(found["bytes"].values()),
            "rejected": sum(found["rejected"].values()),
            "repaired": found["repaired"],
            "renamed_ids": found["renamed_ids"],
            "stopped": found["stopped_at_max_bytes"],
        }
        for found in corpus["sources"]
    ]


def mixture_rows(plan: Mapping[str, Any], pretrain: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each domain that was drawn from: its share and its epochs, as planned and as they were. capped: whether the
    cap on epochs made them fewer.
    """
    return [
        {
            "domain": domain,
            **found,
            "tokens": pretrain["packing"]["domains"][domain]["tokens"],
            "planned_epochs": plan["domains"][domain]["epochs"],
            "capped": plan["domains"][domain]["epochs"] < plan["domains"][domain]["wanted_epochs"],
        }
        for domain, found in sorted(pretrain["mixture"].items())
    ]
