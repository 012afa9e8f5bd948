"""Train what curation can score documents by: a quality classifier, or an n-gram model of clean text.

python -m stages.curate.train classifier --good FILES --bad FILES --out quality.arrow
python -m stages.curate.train perplexity --text FILES --out clean.arrow

FILES are paths or globs of .jsonl, .parquet, .html or .warc files, and any others as plain text (jsonl and text also
.gz, .zst). The same files and settings give the same bytes. A recipe uses the result as `curate.classifier` with
`classifier_least`, or as `curate.perplexity_model` with `perplexity_most`; what is printed says which bounds fit.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from data.errors import InputError
from data.text.text_sample import sample
from stages.cli import run_and_exit
from stages.curate.source import Kind, Source
from stages.out_file import check_place

MOST_BYTES = 256 << 20
KINDS = {".jsonl": Kind.JSONL, ".parquet": Kind.PARQUET, ".html": Kind.HTML, ".htm": Kind.HTML, ".warc": Kind.WARC}
COMPRESSED = (".gz", ".zst")


def read_texts(patterns: Sequence[str], text_field: str, most_bytes: int) -> pa.LargeStringArray:
    """The texts of files, in their order. Of more than most_bytes those with the smallest hashes are taken, so which
    ones does not depend on the order of the files. What is no text is left out, as curation leaves it out, and counted
    on the terminal. Raises InputError for files that are not there, cannot be read or hold no text."""
    from stages.curate.parts import plan_parts, read_part

    rejected: Counter[str] = Counter()

    def batches() -> Iterator[pa.LargeStringArray]:
        for part in plan_parts(tuple(_source(pattern, text_field) for pattern in patterns)):
            for read in read_part(part):
                rejected.update(record.reason for record in read.rejected)
                yield read.batch.column("text")

    texts = sample(batches(), most_bytes)
    for reason, count in sorted(rejected.items()):
        print(f"left out: {count} records ({reason})")
    if not len(texts):
        raise InputError(f"{', '.join(patterns)}: there is no text in these files; name others")
    print(f"read: {len(texts)} texts of {texts.nbytes / 1e6:.1f} MB from {', '.join(patterns)}")
    return texts


def _source(pattern: str, text_field: str) -> Source:
    suffixes = [suffix for suffix in Path(pattern).suffixes if suffix not in COMPRESSED]
    kind = KINDS.get(suffixes[-1].lower() if suffixes else "", Kind.TEXT)
    fields = {"text_field": text_field} if kind in (Kind.JSONL, Kind.PARQUET) else {}
    return Source(kind=kind, domain="text", path=pattern, **fields)


def train_classifier_file(arguments: argparse.Namespace) -> None:
    from data.quality.classifier_training import TrainingSettings, train_classifier

    settings = TrainingSettings(
        recall=arguments.recall,
        epochs=arguments.epochs,
        rate=arguments.rate,
        bits=arguments.bits,
        seed=arguments.seed,
    )
    good, bad = (
        read_texts(files, arguments.text_field, arguments.most_bytes) for files in (arguments.good, arguments.bad)
    )
    classifier, losses = train_classifier(good, bad, settings)
    classifier.save(arguments.out)
    report = classifier.report
    print(
        f"trained on {report['good_texts']} good and {report['bad_texts']} bad texts ({report['texts_in_both']} that "
        f"are in both left out); mean loss by epoch {', '.join(f'{loss:.4f}' for loss in losses)} bits"
    )
    print(
        f"held out {report['good_held_out']} good and {report['bad_held_out']} bad: AUC {report['auc']:.4f}; at least "
        f"{report['threshold']:.4f} keeps {report['recall']:.1%} of the good, and {report['precision']:.1%} of what it "
        "keeps is good"
    )
    print(f'{arguments.out}\nclassifier = "{arguments.out}"\nclassifier_least = {report["threshold"]:.4f}')


def train_ngram_file(arguments: argparse.Namespace) -> None:
    from data.quality.ngram_training import NgramSettings, train_ngrams

    settings = NgramSettings(least_word_count=arguments.least_word_count, max_words=arguments.max_words)
    model = train_ngrams(read_texts(arguments.text, arguments.text_field, arguments.most_bytes), settings)
    model.save(arguments.out)
    report = model.report
    print(
        f"trained on {report['texts']} texts, {report['tokens']} tokens: {report['words']} words, "
        f"{report['kept_pairs']} pairs, {report['kept_triples']} triples; {arguments.out.stat().st_size / 1e6:.1f} MB"
    )
    print(f'{arguments.out}\nperplexity_model = "{arguments.out}"')
    if report["held_out"]:
        shares = ", ".join(f"{share:.0%} have at most {bits:.3f}" for share, bits in report["held_out_quantiles"])
        print(f"perplexity_most = {report['held_out_quantiles'][-1][1]:.3f}")
        print(f"held out {report['held_out']} texts: {report['held_out_bits_per_byte']:.4f} bits per byte; {shares}")
    else:
        print("no text was held out to measure by, since there are so few: set perplexity_most by trial")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m stages.curate.train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    classifier = commands.add_parser("classifier", help="a quality classifier from good and bad documents")
    classifier.add_argument("--good", nargs="+", required=True, metavar="FILES", help="documents as they should be")
    classifier.add_argument("--bad", nargs="+", required=True, metavar="FILES", help="documents as they should not be")
    classifier.add_argument(
        "--recall", type=float, default=0.9, help="share of the good documents that the printed bound keeps (0.9)"
    )
    classifier.add_argument("--epochs", type=int, default=5, help="passes over the documents (5)")
    classifier.add_argument("--rate", type=float, default=1.0, help="size of AdaGrad's steps (1)")
    classifier.add_argument("--bits", type=int, default=20, help="2**BITS weights (20: a file of 4 MB)")
    classifier.add_argument("--seed", type=int, default=0, help="of the order of the documents (0)")
    classifier.set_defaults(command=train_classifier_file)

    perplexity = commands.add_parser("perplexity", help="an n-gram model from clean documents")
    perplexity.add_argument("--text", nargs="+", required=True, metavar="FILES", help="clean documents")
    perplexity.add_argument("--least-word-count", type=int, default=2, help="a rarer word is spelled, not known (2)")
    perplexity.add_argument("--max-words", type=int, default=500_000, help="most words that are known (500000)")
    perplexity.set_defaults(command=train_ngram_file)

    for command in (classifier, perplexity):
        command.add_argument("--out", type=Path, required=True, help="the file to write")
        command.add_argument("--text-field", default="text", help="field or column of the text (text)")
        command.add_argument(
            "--most-bytes", type=int, default=MOST_BYTES, help=f"of text to use of each set ({MOST_BYTES})"
        )
    return parser


def main(words: Sequence[str] | None = None) -> None:
    """Run one command. words: of the command line, by default those of this process."""
    arguments = _parser().parse_args(words)
    check_place(arguments.out)
    arguments.command(arguments)


if __name__ == "__main__":
    run_and_exit(main)
