"""The steps of curation, in the order in which they happen.

1. read; records that are not text are set aside
2. quality: each document by itself, so that this can stand before the split without a leak
3. held-out split by group
4. exact duplicates, then near duplicates; held-out text survives against training text
5. decontamination of training text against held-out text and suite items

A document that is dropped is recorded with its reason, and at the end in = training + held-out + dropped is asserted in
documents and bytes, per domain.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data.decontaminate import JudgedText
from data.dedup import exact_survivors, fingerprints, near_duplicates, rank
from data.errors import InputError
from data.quality import NOT_JUDGED, judge
from data.quality_rules import RULES
from data.split import heldout_groups
from eval.suites import fixed_texts
from stages.base import Facts
from stages.curate.artifact import HELDOUT, TRAIN, domain_path
from stages.curate.config import CurateConfig
from stages.curate.corpus import COMPRESSION, Drop, Dropped, Shard, apply, map_with_progress, write
from stages.curate.sources import Reading, as_facts, preset, read
from stages.journal import Journal

EXACT = ("exact duplicate of training text", "exact duplicate of held-out text")
NEAR = ("near duplicate of training text", "near duplicate of held-out text")
HOLDS_HELDOUT, HOLDS_ITEM = "holds a held-out text", "holds a suite item"
OVERLAP = ("overlap with held-out text", "overlap with suite items", HOLDS_HELDOUT, HOLDS_ITEM)


class Curation:
    """One run of the stage: the shards as they become fewer, and what is found out on the way."""

    def __init__(self, config: CurateConfig, journal: Journal) -> None:
        self.config = config
        self.journal = journal
        self.shards: list[Shard] = []
        self.dropped = Dropped()
        self.facts: dict[str, Any] = {}
        self.documents_in: Counter[str] = Counter()
        self.bytes_in: Counter[str] = Counter()

    def read(self) -> None:
        taken: set[str] = set()
        facts = []
        for source in self.config.sources:
            reading = Reading()
            for batch in read(source, taken, reading, self.journal):
                self.shards.append(Shard(batch, preset(source, batch.column("domain")[0].as_py())))
            for record in reading.rejected:
                self.dropped.add_rejected(record)
                self.documents_in[record.domain] += 1
                self.bytes_in[record.domain] += record.num_bytes
            self.documents_in.update(reading.documents)
            self.bytes_in.update(reading.text_bytes)
            facts.append(as_facts(source, reading))
        self.facts["sources"] = facts
        self._require_text()

    def judge_quality(self) -> None:
        verdicts = self._map(lambda shard: judge(shard.texts, shard.preset), "quality")
        not_judged: dict[str, dict[str, int]] = {}
        drops = []
        for shard, verdict in zip(self.shards, verdicts, strict=True):
            if not verdict.judged.all():
                entry = not_judged.setdefault(shard.domain, {"documents": 0, "bytes": 0})
                entry["documents"] += int((~verdict.judged).sum())
                entry["bytes"] += int(shard.num_bytes[~verdict.judged].sum())
            leaving = []
            for row in np.nonzero(verdict.rule >= 0)[0].tolist():
                rule = RULES[shard.preset][verdict.rule[row]]
                leaving.append(Drop(row, f"quality: {rule.name}", f"bound {rule.bound:g}", float(verdict.value[row])))
            drops.append(leaving)
        self.facts["not_judged"] = {NOT_JUDGED: not_judged}
        self.shards = apply(self.shards, drops, self.dropped)
        self._require_text()

    def split(self) -> None:
        sizes: list[tuple[str, str, int]] = []
        for shard in self.shards:
            groups = shard.batch.column("group").to_pylist()
            sizes += [(shard.domain, group, size) for group, size in zip(groups, shard.num_bytes.tolist(), strict=True)]
        held = heldout_groups(
            sizes,
            fraction=self.config.heldout_fraction,
            most_bytes=self.config.heldout_max_bytes,
            seed=self.config.heldout_seed,
        )
        names = pa.array(sorted(held), pa.string())
        divided = []
        for shard in self.shards:
            mask = pa.compute.is_in(shard.batch.column("group"), names)
            for heldout, chosen in ((False, pa.compute.invert(mask)), (True, mask)):
                batch = shard.batch.filter(chosen)
                if batch.num_rows:
                    divided.append(Shard(batch, shard.preset, heldout))
        self.shards = divided
        self.facts["heldout_groups"] = len(held)

    def remove_exact_duplicates(self) -> None:
        prints = np.concatenate(self._map(lambda shard: fingerprints(shard.texts), "fingerprints"))
        survivor = exact_survivors([shard.texts for shard in self.shards], prints, self._ranks(prints))
        self._remove_in_favour(survivor, np.ones(len(survivor)), EXACT)

    def remove_near_duplicates(self) -> None:
        settings = self.config.near_duplicates()
        self.journal.event(
            "note",
            text=f"near duplicates: {settings.bands} bands of {settings.rows} rows are expected to find "
            f"{settings.expected_recall:.3f} of the pairs at {settings.threshold:g}",
        )
        prints = np.concatenate(self._map(lambda shard: fingerprints(shard.texts), "fingerprints of distinct texts"))
        steps = iter(("near duplicates: signatures", "near duplicates: comparison"))

        def run(function: Callable, items: Any) -> list:
            return map_with_progress(
                function, list(items), name=next(steps), workers=self.config.workers, journal=self.journal
            )

        found = near_duplicates([shard.texts for shard in self.shards], self._ranks(prints), settings, run)
        self.facts["near_duplicates"] = {
            "expected_recall_at_threshold": round(settings.expected_recall, 6),
            "too_short_for_an_ngram": found.num_too_short,
            "candidates": found.num_candidates,
            "compared_exactly": found.num_compared,
        }
        self._remove_in_favour(found.survivor, found.similarity, NEAR)

    def decontaminate(self) -> None:
        n = self.config.overlap_ngram_words
        held = [shard for shard in self.shards if shard.heldout]
        names = [name for shard in held for name in shard.batch.column("id").to_pylist()]
        texts = (text for shard in held for text in shard.texts.to_pylist())
        heldout = JudgedText(texts, ngram_words=n, as_items=True)
        suites = self.config.suites
        items = JudgedText(fixed_texts(suites.names, suites.waived_tasks), ngram_words=n, as_items=True)
        self.facts["decontamination"] = {
            "heldout_texts": heldout.num_texts,
            "heldout_texts_too_short": heldout.num_too_short,
            "heldout_ngrams": heldout.num_ngrams,
            "suite_items": items.num_texts,
            "suite_items_too_short": items.num_too_short,
            "suite_ngrams": items.num_ngrams,
        }

        def leaving(shard: Shard) -> list[Drop]:
            if shard.heldout:
                return []
            in_heldout, in_items = heldout.overlap(shard.texts), items.overlap(shard.texts)
            shares = (in_heldout.text_share, in_items.text_share, in_heldout.item_share, in_items.item_share)
            bounds = [self.config.overlap_text_share] * 2 + [self.config.overlap_item_share] * 2
            over = np.stack(shares) >= np.array(bounds)[:, None]
            drops = []
            for row in np.nonzero(over.any(axis=0))[0].tolist():
                first = int(over[:, row].argmax())
                detail = f"bound {bounds[first]:g}"
                if OVERLAP[first] == HOLDS_HELDOUT:
                    detail = names[in_heldout.item[row]]
                elif OVERLAP[first] == HOLDS_ITEM:
                    detail = f"item {in_items.item[row]}"
                drops.append(Drop(row, OVERLAP[first], detail, float(shares[first][row])))
            return drops

        self.shards = apply(self.shards, self._map(leaving, "decontamination"), self.dropped)

    def write(self, out: Path) -> None:
        domains = {}
        for number, domain in enumerate(sorted(self.documents_in), start=1):
            entry: dict[str, Any] = {"documents_in": self.documents_in[domain], "bytes_in": self.bytes_in[domain]}
            for side, heldout in ((TRAIN, False), (HELDOUT, True)):
                chosen = [shard for shard in self.shards if shard.domain == domain and shard.heldout is heldout]
                if not chosen:
                    raise InputError(
                        self._nothing_left(
                            f"domain {domain!r} has no {'held-out' if heldout else 'training'} text left", domain
                        )
                    )
                (out / side).mkdir(exist_ok=True)
                entry[f"{side}_documents"], entry[f"{side}_bytes"] = write(chosen, domain_path(out, side, domain))
            documents, num_bytes = (
                self.dropped.documents.get(domain, Counter()),
                self.dropped.num_bytes.get(domain, Counter()),
            )
            entry["dropped"] = {
                reason: {"documents": documents[reason], "bytes": num_bytes[reason]} for reason in sorted(documents)
            }
            assert entry["documents_in"] == entry["train_documents"] + entry["heldout_documents"] + documents.total(), (
                domain,
                entry,
            )
            assert entry["bytes_in"] == entry["train_bytes"] + entry["heldout_bytes"] + num_bytes.total(), (
                domain,
                entry,
            )
            lost = num_bytes.total() / max(1, entry["bytes_in"])
            if lost > self.config.warn_lost_share:
                self.journal.warning(
                    f"domain {domain!r} lost {lost:.0%} of its bytes: {self.dropped.biggest_reason(domain)}; "
                    "dropped.parquet lists them"
                )
            domains[domain] = entry
            self.journal.progress("write", number, len(self.documents_in), unit="domains")
        pq.write_table(self.dropped.table(), out / "dropped.parquet", compression=COMPRESSION)
        self.facts["domains"] = domains

    def _map(self, function: Callable[[Shard], Any], name: str) -> list[Any]:
        return map_with_progress(function, self.shards, name=name, workers=self.config.workers, journal=self.journal)

    def _ranks(self, prints: np.ndarray) -> np.ndarray:
        return rank(
            num_bytes=np.concatenate([shard.num_bytes for shard in self.shards]),
            prints=prints,
            ids=pa.chunked_array([shard.batch.column("id") for shard in self.shards]),
            is_training=np.repeat(
                [not shard.heldout for shard in self.shards], [shard.batch.num_rows for shard in self.shards]
            ),
        )

    def _remove_in_favour(self, survivor: np.ndarray, similarity: np.ndarray, reasons: tuple[str, str]) -> None:
        """Drop the rows that have a survivor. survivor: int64 over all rows, -1 for none. reasons: if the survivor is
        training text, if it is held-out."""
        ids = pa.chunked_array([shard.batch.column("id") for shard in self.shards])
        heldout = np.repeat([shard.heldout for shard in self.shards], [shard.batch.num_rows for shard in self.shards])
        drops, first = [], 0
        for shard in self.shards:
            mine = survivor[first : first + shard.batch.num_rows]
            drops.append(
                [
                    Drop(
                        row,
                        reasons[int(heldout[mine[row]])],
                        ids[int(mine[row])].as_py(),
                        float(similarity[first + row]),
                    )
                    for row in np.nonzero(mine >= 0)[0].tolist()
                ]
            )
            first += len(mine)
        self.shards = apply(self.shards, drops, self.dropped)

    def _require_text(self) -> None:
        for domain in sorted(self.documents_in):
            if not any(shard.domain == domain for shard in self.shards):
                what = "the corpus is empty" if not self.shards else f"domain {domain!r} is empty"
                raise InputError(self._nothing_left(what, None if not self.shards else domain))

    def _nothing_left(self, what: str, domain: str | None) -> str:
        count = self.documents_in[domain] if domain else self.documents_in.total()
        advice = "loosen what dropped it, add text, or take the domain out" if domain else "check the sources' fields"
        return f"{what}: {count} records read, {self.dropped.biggest_reason(domain)}; {advice}"


def curate(config: CurateConfig, out: Path, journal: Journal) -> Facts:
    """Read, clean, divide and write the corpus."""
    curation = Curation(config, journal)
    curation.read()
    curation.judge_quality()
    curation.split()
    curation.remove_exact_duplicates()
    curation.remove_near_duplicates()
    curation.decontaminate()
    curation.write(out)
    return Facts(facts=curation.facts)
