"""Commands on the store: list, lineage, verify, explain, seen, dropped, promote, baselines, history, gc.

Run as `python -m stages COMMAND`.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from data.errors import InputError
from stages import fingerprint, manifest
from stages.cli import add_root_argument
from stages.compare.baselines import promoted
from stages.compare.commands import add_baseline_commands
from stages.history.commands import add_history_command
from stages.manifest import Manifest
from stages.out_file import check_place
from stages.resolve import MissingInput, Resolver, lineage
from stages.store import Artifact, Store


def add_commands(parser: argparse.ArgumentParser) -> None:
    """The sub-commands; each sets `command`, a function of the parsed arguments."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="the artifacts that are there")
    listing.add_argument("stage", nargs="?", default="", help="only those of this stage")
    listing.set_defaults(command=_list)

    tree = commands.add_parser("lineage", help="what an artifact was made from")
    tree.add_argument("artifact", help="key, first digits of it, name or path")
    tree.set_defaults(command=_lineage)

    check = commands.add_parser("verify", help="compare the bytes of artifacts with their manifests")
    check.add_argument("artifacts", nargs="*", help="which ones (default: all)")
    check.set_defaults(command=_verify)

    explain = commands.add_parser("explain", help="why two artifacts of a stage have different keys")
    explain.add_argument("a")
    explain.add_argument("b")
    explain.set_defaults(command=_explain)

    seen = commands.add_parser("seen", help="which documents a checkpoint or a finished training has seen")
    seen.add_argument("artifact", help="key, first digits of it, name or path")
    seen.add_argument("--out", type=Path, help="write a line of JSON for each of these documents into this file")
    seen.set_defaults(command=_seen)

    dropped = commands.add_parser("dropped", help="which documents a corpus does not hold, and why")
    dropped.add_argument("artifact", help="a corpus: key, first digits of it, name or path")
    dropped.add_argument("--reason", default="", help="only for this reason, or for all that begin so (quality)")
    dropped.add_argument("--domain", default="", help="only of this domain")
    dropped.add_argument("--language", default="", help="only in this language, as en")
    dropped.add_argument("--source", default="", help="only from this file")
    dropped.add_argument("--id", default="", help="what became of this document")
    dropped.add_argument("--show", type=_count, default=20, metavar="N", help="documents to show (default: 20)")
    dropped.add_argument("--out", type=Path, help="write them all into this .parquet or .jsonl file")
    dropped.set_defaults(command=_dropped)

    add_baseline_commands(commands)
    add_history_command(commands)

    collect = commands.add_parser(
        "gc", help="remove what the given recipes do not use, but no baseline (shows it only, unless --delete)"
    )
    collect.add_argument("recipes", nargs="+", type=Path, metavar="RECIPE")
    collect.add_argument("--set", action="append", default=[], metavar="TABLE.FIELD=VALUE", dest="settings")
    collect.add_argument("--delete", action="store_true")
    collect.set_defaults(command=_collect)

    for command in (listing, tree, check, explain, seen, dropped, collect):
        add_root_argument(command)


def _count(word: str) -> int:
    number = int(word)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is less than 0")
    return number


def _list(arguments: argparse.Namespace) -> None:
    for artifact in Store(arguments.root).all(arguments.stage):
        made = artifact.manifest
        print(
            f"{made.stage:<12} {made.key}  {made.provenance['finished']}  "
            f"{_size(_artifact_bytes(made)):>9}  {artifact.path}"
        )


def _lineage(arguments: argparse.Namespace) -> None:
    store = Store(arguments.root)
    for depth, stage, key, artifact in lineage(store.lookup(arguments.artifact), store):
        print(
            f"{'  ' * depth}{stage} {key}  "
            + (f"{artifact.digest[:12]}  {artifact.path}" if artifact else "(no longer there)")
        )


def _verify(arguments: argparse.Namespace) -> None:
    store = Store(arguments.root)
    artifacts = [store.lookup(name) for name in arguments.artifacts] or list(store.all())
    broken = 0
    for artifact in artifacts:
        problems = manifest.verify(artifact.path, artifact.manifest)
        broken += bool(problems)
        print(f"{'broken' if problems else 'intact'}  {artifact.path}")
        for problem in problems:
            print(f"        {problem}")
    if broken:
        raise InputError(
            f"{broken} of {len(artifacts)} artifacts are broken: remove their folders and run their stages again"
        )


def _explain(arguments: argparse.Namespace) -> None:
    store = Store(arguments.root)
    a, b = store.lookup(arguments.a), store.lookup(arguments.b)
    if a.stage != b.stage:
        raise InputError(
            f"{a.path.name} is of {a.stage} and {b.path.name} of {b.stage}: only artifacts of one stage can be compared"
        )
    lines = list(differences(a, b, store))
    print("\n".join(lines) if lines else "nothing that enters the key differs")


def differences(a: Artifact, b: Artifact, store: Store, where: str = "") -> Iterable[str]:
    """Field by field, why two artifacts of one stage have different keys; through differing inputs to where the
    difference began."""
    prefix = f"{where}{a.stage}: "
    for part in ("revision", "identity", "externals"):
        for name, left, right in fingerprint.difference(
            {part: getattr(a.manifest, part)}, {part: getattr(b.manifest, part)}
        ):
            yield f"{prefix}{name.removeprefix('identity.')}: {left!r} / {right!r}"
    for name, entries in a.manifest.inputs.items():
        others = b.manifest.inputs.get(name, ())
        if [e.digest for e in entries] == [e.digest for e in others] or any(e.runtime for e in entries):
            continue
        yield f"{prefix}input {name}: {_names(entries)} / {_names(others)}"
        if len(entries) == len(others) == 1 and entries[0].stage == others[0].stage:
            left_input, right_input = (
                store.find(entries[0].stage, entries[0].key),
                store.find(others[0].stage, others[0].key),
            )
            if left_input and right_input:
                yield from differences(left_input, right_input, store, where + "  ")


def _names(entries: Iterable[manifest.InputEntry]) -> str:
    return ", ".join(f"{entry.stage} {entry.key}" for entry in entries) or "none"


def _seen(arguments: argparse.Namespace) -> None:
    from stages.pretrain.batches.seen import read_past, seen, summary, write_lines

    if arguments.out:
        check_place(arguments.out)
    store = Store(arguments.root)
    past = read_past(store.lookup(arguments.artifact), store)
    found = seen(past)
    if arguments.out:
        write_lines(arguments.out, found)
    print(f"after step {past.step}: {past.tokens_seen:,} tokens")
    for row in summary(found):
        print(
            f"{row['domain']}: {row['documents_seen']:,} of {row['documents']:,} documents, {row['tokens_seen']:,} "
            f"tokens of {row['tokens']:,}, at most {row['most_times']:g} times"
        )
    for first, last in past.excluded:
        print(f"left out: draws {first} to {last - 1}")


def _dropped(arguments: argparse.Namespace) -> None:
    from stages.curate import query
    from stages.curate.dropped_table import show

    if arguments.out:
        check_place(arguments.out)
        query.check_format(arguments.out)
    corpus = Store(arguments.root).lookup(arguments.artifact)
    query.require_corpus(corpus)
    names = ("reason", "domain", "language", "source", "id")
    asked = query.Query(**{name: getattr(arguments, name) for name in names})
    query.require_some(corpus, asked)
    if arguments.out:
        written = query.write(corpus, asked, arguments.out)
        print(f"{written:,} documents in {arguments.out}")
    else:
        show(corpus, asked, most=arguments.show)


def _collect(arguments: argparse.Namespace) -> None:
    from stages.recipe import STAGES, load

    store = Store(arguments.root)
    kept: set[Path] = {baseline.path for baseline in promoted(store)}
    runs: set[str] = set()
    for recipe in arguments.recipes:
        resolver = Resolver(load(recipe, arguments.settings), store, STAGES)
        for name, stage in STAGES.items():
            try:
                jobs = resolver.jobs(name)
            except MissingInput:
                continue
            runs |= {job.key for job in jobs}
            made = [found for job in jobs if (found := store.find(name, job.key))]
            made += [artifact for derived in stage.derives for artifact in resolver.derived(derived)]
            kept |= {entry.path for artifact in made for _, _, _, entry in lineage(artifact, store) if entry}
    freed = 0
    for path in garbage(store, kept, runs):
        freed += _folder_bytes(path)
        print(f"{'removed' if arguments.delete else 'would remove'}  {_size(_folder_bytes(path)):>9}  {path}")
        if arguments.delete:
            store.remove(path)
    print(f"{_size(freed)} {'freed' if arguments.delete else 'can be freed; add --delete to do it'}")


def garbage(store: Store, kept: set[Path], runs: set[str]) -> list[Path]:
    """Folders of the store that nothing needs: artifacts that are not in `kept`, runs that are not in `runs`, and
    what dead processes left."""
    found = [artifact.path for artifact in store.all() if artifact.path not in kept]
    for folder in sorted(store.artifacts_path.glob("*/.work-*")):
        stage, key = folder.parent.name, folder.name.removeprefix(".work-")
        if key not in runs and not store.is_being_built(stage, key):
            found.append(folder)
    found += sorted(store.artifacts_path.glob("*/.trash-*"))
    for folder in sorted((store.root / "runs").glob("*")):
        in_use = folder.name in runs or any(
            store.is_being_built(stage.name, folder.name) for stage in store.artifacts_path.glob("*")
        )
        if folder.is_dir() and not in_use:
            found.append(folder)
    return found


def _artifact_bytes(made: Manifest) -> int:
    return sum(entry.bytes for entry in made.files)


def _folder_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _size(num_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} TB"
