"""The first pass: read a part of a source and judge each of its documents by itself.

Records that are not text are set aside; then come, in this order, language, personal data, quality rules, classifier
and perplexity, which planted documents pass untouched. What is kept stands in a shard's folder with its signatures, all
else in the same folder's record of what was dropped. Nothing here compares documents, so that it can stand before the
held-out split without a leak.
"""

from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data.dedup.signatures import sign
from data.quality.rules import Preset
from stages.curate.accounting import Step
from stages.curate.config import CurateConfig
from stages.curate.languages import UNKNOWN_LANGUAGE
from stages.curate.parts import Part, ReadBatch, read_part
from stages.curate.shard import DONE, Shard, finished_shards, found_shard
from stages.curate.sieve import Sieve
from stages.curate.tables import DOCUMENTS
from stages.files import fsync_directory

NO_LANGUAGE = ""  # where languages are not identified, and of records that never were a text
C4_LINES = "lines that the C4 rules remove"


@dataclass(frozen=True, kw_only=True)
class ReadAndJudge:
    """Reads and judges a part. folder: of this pass, in the work directory."""

    config: CurateConfig
    folder: Path

    def __call__(self, part: Part) -> tuple[Shard, ...]:
        """The shards of a part, empty ones included. Those that an earlier attempt finished are taken as they are."""
        folder = self.folder / f"{part.number:06}"
        folder.mkdir(parents=True, exist_ok=True)
        shards, done = finished_shards(folder)
        if not done:
            for number, batch in enumerate(read_part(part, skip_batches=len(shards)), start=len(shards)):
                self._judge(part, batch, folder / f"{number:06}")
            fsync_directory(folder)  # or DONE might outlast a power failure that a shard's name does not
            (folder / DONE).touch()
            shards, _ = finished_shards(folder)
        return tuple(found_shard(shard) for shard in shards)

    def _judge(self, part: Part, read: ReadBatch, folder: Path) -> None:
        config = self.config
        domain = read.batch.column("domain")[0].as_py() if read.batch.num_rows else ""
        documents = _documents(read.batch, config.identify_languages and not part.source.planted)
        sieve = Sieve(part.source_number, domain, documents, np.zeros(read.batch.num_rows))
        sieve.reject(read.rejected)
        sieve.enter()
        if domain and not part.source.planted:
            keep_languages(sieve, config.languages)
            scrub_pii(sieve, config.pii)
            judge_quality(sieve, part.source.presets(domain), config)
            score_quality(sieve, config)
        sieve.counts |= {
            "repairs": dict(read.repairs),
            "stopped_domains": list(read.stopped_domains),
            "done_bytes": read.done_bytes,
            "total_bytes": read.total_bytes,
        }
        sieve.write(folder, partial(sign, settings=config.near_duplicates()))


def _documents(batch: pa.RecordBatch, identify: bool) -> pa.RecordBatch:
    """The batch with the column `language`."""
    if identify:
        from data.language.identification import identify_column

        languages = identify_column(batch.column("text"))[0].cast(pa.string())
    else:
        languages = pa.repeat(pa.scalar(NO_LANGUAGE, pa.string()), batch.num_rows)
    return pa.RecordBatch.from_arrays([*batch.columns, languages], schema=DOCUMENTS)


def keep_languages(sieve: Sieve, wanted: tuple[str, ...]) -> None:
    """Drop documents in other languages; with none named, nothing."""
    if not wanted:
        return
    leaves = np.asarray(pc.invert(pc.is_in(sieve.languages, pa.array(wanted, pa.string()))))
    languages = sieve.languages

    def reason(rows: np.ndarray) -> pa.StringArray:
        return pc.binary_join_element_wise("language: ", languages.take(pa.array(rows)), " not wanted", "")

    sieve.drop(leaves, Step.LANGUAGE, reason, detail=_same(f"wanted: {', '.join(wanted)}"))


def scrub_pii(sieve: Sieve, kinds: tuple[Any, ...]) -> None:
    """Replace personal data by placeholders."""
    if not kinds:
        return
    from data.pii.scrub import scrub

    scrubbed = scrub(sieve.texts, kinds)
    sieve.edit(scrubbed.texts, "personal data")
    sieve.counts["pii"] = {str(kind): int(counts.sum()) for kind, counts in scrubbed.counts.items()}


def judge_quality(sieve: Sieve, presets: tuple[Preset, ...], config: CurateConfig) -> None:
    """Drop what breaks a rule of the presets, and remove the lines that they do not want."""
    from data.quality.judgement import judge

    rules = config.quality_rules(presets)
    if not rules.presets:
        return
    languages = None if not config.identify_languages else _known(sieve.languages)
    verdict = judge(sieve.texts, languages, rules)
    names, uncovered = pa.array(rules.names, pa.string()), verdict.rule == len(rules.rules)
    if not verdict.judged.all():
        unjudged = pa.table({"language": sieve.languages, "bytes": sieve.num_bytes}).filter(pa.array(~verdict.judged))
        by_language = unjudged.group_by("language", use_threads=False).aggregate([("bytes", "count"), ("bytes", "sum")])
        sieve.counts["not_judged"] = {
            row["language"]: [row["bytes_count"], row["bytes_sum"]] for row in by_language.to_pylist()
        }
    sieve.edit(verdict.texts, C4_LINES)
    sieve.drop(
        verdict.rule >= 0,
        Step.QUALITY,
        lambda rows: names.take(pa.array(verdict.rule[rows])),
        detail=lambda rows: _bounds(verdict.bound[rows], uncovered[rows]),
        score=np.where(uncovered, np.nan, verdict.value),
    )


def score_quality(sieve: Sieve, config: CurateConfig) -> None:
    """Drop what the classifier or the n-gram model rejects; the classifier's score decides who survives among
    duplicates."""
    if config.classifier:
        scores = np.round(_classifier(*_version(config.classifier)).score(sieve.texts).astype(np.float64), 6)
        sieve.quality = scores
        sieve.drop(
            scores < config.classifier_least,
            Step.QUALITY,
            _same("quality: least classifier score"),
            detail=_same(f"bound {config.classifier_least:g}"),
            score=scores,
        )
    if config.perplexity_model:
        bits = np.round(
            _ngram_model(*_version(config.perplexity_model)).bits_per_byte(sieve.texts).astype(np.float64), 6
        )
        if not config.classifier:
            sieve.quality = -bits
        sieve.drop(
            bits > config.perplexity_most,
            Step.QUALITY,
            _same("quality: most bits per byte"),
            detail=_same(f"bound {config.perplexity_most:g}"),
            score=bits,
        )


@lru_cache(maxsize=1)
def _classifier(path: Path, written: int) -> Any:
    from data.quality.classifier import Classifier

    return Classifier.load(path)


@lru_cache(maxsize=1)
def _ngram_model(path: Path, written: int) -> Any:
    from data.quality.ngram_model import NgramModel

    return NgramModel.load(path)


def _version(path: str) -> tuple[Path, int]:
    """A file, and when it was written, so that a process that lives on does not use what it held before."""
    return Path(path), Path(path).stat().st_mtime_ns


def _known(languages: pa.StringArray) -> pa.StringArray:
    """Codes of languages, with nothing in place of unknown ones."""
    return pc.if_else(pc.equal(languages, UNKNOWN_LANGUAGE), NO_LANGUAGE, languages)


def _same(text: str) -> Any:
    return lambda rows: pa.repeat(pa.scalar(text, pa.string()), len(rows))


def _bounds(bounds: np.ndarray, without: np.ndarray) -> pa.StringArray:
    """In words; nothing for those without one (bool[n])."""
    pairs = zip(bounds.tolist(), without.tolist(), strict=True)
    return pa.array(["" if none else f"bound {value:g}" for value, none in pairs], pa.string())
