"""What of the world outside the store a source stands for."""

from typing import Any

from data.canaries import DEFINITION
from data.reading.filehash import FileHashes
from data.reading.python_environment import PythonEnvironment
from data.reading.readers import expand, huggingface_identity
from stages.curate.source import PATTERNS, Kind, Source


def identity(source: Source, hashes: FileHashes) -> dict[str, Any]:
    """What decides the text of a source, beyond its configuration: digests of files, the commit of a dataset, the
    versions of packages."""
    if source.kind is Kind.PYTHON_ENVIRONMENT:
        return environment(source).identity()
    if source.kind is Kind.CANARIES:
        return {"canaries": DEFINITION}
    if source.kind is Kind.HUGGINGFACE:
        return huggingface_identity(source.name, source.revision, hashes)
    return {"files": {str(path): list(hashes.of(path)) for path in expand(source.path, PATTERNS[source.kind])}}


def environment(source: Source) -> PythonEnvironment:
    """What a source of kind python-environment reads. Raises InputError if it names what is not here."""
    return PythonEnvironment(
        domains=source.domains, packages=source.packages, package_source_bytes=source.package_source_bytes
    )
