"""The documentation that every Python installation carries, as a corpus: real, messy text with real duplicates, and no
download.

| domain    | documents                                                                  | group            |
|-----------|----------------------------------------------------------------------------|------------------|
| reference | topics of the language reference; docstrings of at least 300 characters    | the source file  |
| code      | source files of the standard library                                       | the source file  |
| readme    | descriptions of the installed packages                                     | the package      |
| licence   | licence files of the installed packages                                    | the package      |

Source is parsed and never imported. Tests are left out, and of `code` the character tables in encodings/ and
pydoc_data/topics.py, which is the reference itself, and _sysconfigdata*.py, which says where and how this Python was
built. A docstring has the group of its source file, so the two never
stand on different sides of a held-out split.
"""

import ast
import hashlib
import importlib.metadata
import platform
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from data.errors import InputError
from data.reading.documents import MISSING_TEXT, Document, Place, Rejected, admit

DOMAINS = ("reference", "code", "readme", "licence")
ALL_PACKAGES = "*"
OWN_PROJECT = "longhaul"
MIN_DOCSTRING_CHARACTERS = 300
NOT_PARSED = "not parsed"
NOT_CODE = ("stdlib/encodings/", "stdlib/pydoc_data/topics.py", "stdlib/_sysconfigdata")

TEST_PARTS = {"test", "tests", "idle_test", "__pycache__", "site-packages", "dist-packages"}
TEST_FILE = re.compile(r"test_.*\.py|conftest\.py")
LICENCE_FILE = re.compile(r"(licen[cs]e|copying|notice)[^/]*", re.IGNORECASE)
HEADER = re.compile(r"^(name|version):[ \t]*(.*?)[ \t]*$", re.IGNORECASE | re.MULTILINE)

COMPOUND = (ast.If, ast.Try, ast.TryStar, ast.ExceptHandler, ast.With, ast.For, ast.While)

Record = Document | Rejected
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class SourceFile:
    """One .py file. `name` is the same on every machine: stdlib/json/decoder.py, numpy/linalg/_linalg.py."""

    path: Path
    name: str
    package: str


@dataclass(frozen=True, kw_only=True)
class PythonEnvironment:
    """What to read of this installation.

    domains: some of DOMAINS. packages: distributions whose docstrings are read beside those of the standard library, or
    `*` for all. package_source_bytes: how much source of packages is parsed at most (about 6 MB a second); the files
    are drawn by a hash of their name.
    """

    domains: tuple[str, ...] = DOMAINS
    packages: tuple[str, ...] = ()
    package_source_bytes: int | None = None

    def __post_init__(self) -> None:
        unknown = [domain for domain in self.domains if domain not in DOMAINS]
        if unknown or not self.domains:
            raise InputError(
                f"python-environment: domains are some of {', '.join(DOMAINS)}; got {', '.join(unknown) or 'none'}"
            )
        missing = [
            name for name in self.packages if name != ALL_PACKAGES and _canonical(name) not in self.distributions
        ]
        if missing:
            raise InputError(
                f"python-environment: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed here: "
                f"`pip install {' '.join(missing)}`, or take what is missing out of the source's `packages`"
            )

    @cached_property
    def distributions(self) -> dict[str, importlib.metadata.Distribution]:
        """The installed distributions by canonical name, in the order of the names; without this project."""
        paths = sysconfig.get_paths()
        folders = list(dict.fromkeys([paths["purelib"], paths["platlib"]]))
        found: dict[str, importlib.metadata.Distribution] = {}
        for distribution in importlib.metadata.distributions(path=folders):
            try:
                name = _canonical(_headers(distribution).get("name", ""))
            except UnicodeDecodeError as error:
                raise InputError(
                    f"python-environment: a package in {folders[0]} has metadata that is not UTF-8 "
                    f"({error}); uninstall it"
                ) from None
            if name and name != OWN_PROJECT:
                found.setdefault(name, distribution)
        return dict(sorted(found.items()))

    def identity(self) -> dict[str, object]:
        """What decides the text, apart from the settings: the Python version and every package with its version and
        what its RECORD says of the files that are read."""
        packages = {
            name: {"version": _headers(distribution).get("version"), "record": _record_digest(distribution)}
            for name, distribution in self.distributions.items()
        }
        return {
            "implementation": platform.python_implementation(),
            "python": platform.python_version(),
            "packages": packages,
        }

    def read(self, domain: str, repairs: Counter[str], progress: Progress) -> Iterator[Record]:
        """Every document of a domain and every record set aside, in an order that is the same everywhere. `progress`
        is told files or packages done, and of how many."""
        if domain == "reference":
            yield from _topics(repairs)
            files = [*standard_library(), *self._package_files()]
            for done, file in enumerate(files):
                progress(done, len(files))
                yield from _docstrings(file, repairs)
        elif domain == "code":
            files = [file for file in standard_library() if _is_code(file)]
            for done, file in enumerate(files):
                progress(done, len(files))
                content = file.path.read_bytes()
                yield admit(content, Place(file.name, domain, file.package), group=file.name, repairs=repairs)
        else:
            texts = _description if domain == "readme" else _licences
            for done, (name, distribution) in enumerate(self.distributions.items()):
                progress(done, len(self.distributions))
                yield from texts(name, distribution, repairs)
        progress(1, 1)

    def _package_files(self) -> list[SourceFile]:
        every = ALL_PACKAGES in self.packages
        chosen = list(self.distributions) if every else sorted({_canonical(name) for name in self.packages})
        files: dict[str, SourceFile] = {}
        for name in chosen:
            for entry in self.distributions[name].files or ():
                if entry.suffix == ".py" and ".." not in entry.parts and not _is_test(entry.parts):
                    files.setdefault(str(entry), SourceFile(Path(str(entry.locate())), str(entry), name))
        drawn, size = [], 0
        for file in sorted(files.values(), key=lambda file: _draw(file.name)):
            size += file.path.stat().st_size if file.path.is_file() else 0
            if self.package_source_bytes is not None and size > self.package_source_bytes:
                break
            drawn.append(file)
        return sorted(drawn, key=lambda file: file.name)


def standard_library() -> list[SourceFile]:
    """Source files of the standard library without its tests, in order."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = sorted(path.relative_to(root) for path in root.rglob("*.py") if not _is_test(path.relative_to(root).parts))
    return [SourceFile(root / path, f"stdlib/{path.as_posix()}", "stdlib") for path in found]


def _is_test(parts: Sequence[str]) -> bool:
    return not TEST_PARTS.isdisjoint(parts) or TEST_FILE.fullmatch(parts[-1]) is not None


def _is_code(file: SourceFile) -> bool:
    return not file.name.startswith(NOT_CODE)


def _topics(repairs: Counter[str]) -> Iterator[Record]:
    """The language reference as `help()` shows it: each topic is a document and a group of its own."""
    path = Path(sysconfig.get_paths()["stdlib"]) / "pydoc_data/topics.py"
    if not path.is_file():
        return
    for statement in ast.parse(path.read_bytes()).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            for topic, text in ast.literal_eval(statement.value).items():
                name = f"topic/{topic}"
                yield admit(text, Place(name, "reference", "stdlib"), group=name, repairs=repairs)


def _docstrings(file: SourceFile, repairs: Counter[str]) -> Iterator[Record]:
    try:
        content = file.path.read_bytes()
        if b'"""' not in content and b"'''" not in content:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        size = file.path.stat().st_size if file.path.is_file() else 0
        yield Rejected(file.name, "reference", file.package, NOT_PARSED, f"{type(error).__name__}: {error}", size)
        return
    for node, qualified in _definitions(tree):
        text = ast.get_docstring(node)
        if text is not None and len(text) >= MIN_DOCSTRING_CHARACTERS:
            line = getattr(node, "lineno", 1)
            yield admit(
                text,
                Place(f"{file.name}::{qualified}:{line}", "reference", file.package),
                group=file.name,
                repairs=repairs,
            )


def _definitions(
    tree: ast.Module,
) -> Iterator[tuple[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """The module, its classes and functions, and theirs, in the order of the source; those inside an `if` or a `try`
    too."""
    yield tree, "module"
    waiting: list[tuple[ast.AST, str]] = [(node, "") for node in reversed(tree.body)]
    while waiting:
        node, prefix = waiting.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, prefix + node.name
            prefix += node.name + "."
        elif not isinstance(node, COMPOUND):
            continue
        waiting += [
            (child, prefix)
            for child in reversed(list(ast.iter_child_nodes(node)))
            if isinstance(child, ast.stmt | ast.ExceptHandler)
        ]


def _description(name: str, distribution: importlib.metadata.Distribution, repairs: Counter[str]) -> Iterator[Record]:
    text = distribution.metadata["Description"]
    if text is not None and text.strip() not in ("", "UNKNOWN"):
        yield admit(text, Place(f"readme/{name}", "readme", name), group=f"package/{name}", repairs=repairs)


def _licences(name: str, distribution: importlib.metadata.Distribution, repairs: Counter[str]) -> Iterator[Record]:
    for entry in sorted(distribution.files or (), key=str):
        if LICENCE_FILE.fullmatch(entry.name) and any(part.endswith(".dist-info") for part in entry.parts):
            inner = "/".join(entry.parts[1:])
            place = Place(f"licence/{name}/{inner}", "licence", name)
            try:
                content = Path(str(entry.locate())).read_bytes()
            except OSError as error:
                yield Rejected(place.id, "licence", place.source, MISSING_TEXT, str(error), 0)
                continue
            yield admit(content, place, group=f"package/{name}", repairs=repairs)


def _headers(distribution: importlib.metadata.Distribution) -> dict[str, str]:
    """The name and the version of a package. importlib reads the description too, which takes ten times as long, and
    every look-up of a key asks two hundred packages."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or distribution.read_text("") or ""
    found: dict[str, str] = {}
    for header in HEADER.finditer(text.partition("\n\n")[0]):
        found.setdefault(header[1].lower(), header[2])
    return found


def _record_digest(distribution: importlib.metadata.Distribution) -> str:
    """sha256, in hex, of the lines of RECORD for source, metadata and licences; of none for a package without RECORD.

    The other lines are left out, since they differ from place to place: scripts name their interpreter, caches and
    notes of the installer come and go.
    """
    state = hashlib.sha256()
    for line in sorted((distribution.read_text("RECORD") or "").splitlines()):
        path = line.rsplit(",", 2)[0].strip('"')
        name = path.rpartition("/")[2]
        if not path.startswith("..") and (name.endswith(".py") or name == "METADATA" or LICENCE_FILE.fullmatch(name)):
            state.update(f"{line}\n".encode())
    return state.hexdigest()


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _draw(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()
