"""The documentation of an installation as a corpus, on a small installation made for the test, and its promises on the
real one."""

import sysconfig
from collections import Counter
from pathlib import Path

import pytest

from data.errors import InputError
from data.reading.documents import Document, Rejected
from data.reading.python_environment import DOMAINS, PythonEnvironment

LONG = "Explains at length what it does. " * 12


def distribution(site: Path, name: str, files: dict[str, str], *, description: str = "", licence: str = "") -> None:
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n\n{description}")
    if licence:
        (info / "licenses").mkdir()
        (info / "licenses/LICENSE.txt").write_text(licence)
    for path, content in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(content)
    listed = [*files, f"{info.name}/METADATA", *([f"{info.name}/licenses/LICENSE.txt"] if licence else [])]
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in listed))


@pytest.fixture
def installation(tmp_path, monkeypatch):
    library, site = tmp_path / "lib", tmp_path / "lib/site-packages"
    files = {
        "json/decoder.py": f'"""{LONG}"""\nimport nowhere_to_be_found\nclass A:\n'
        f'    def f(self):\n        """{LONG}f"""\n',
        "short.py": '"""Short."""\n',
        "conditional.py": f'try:\n    def g():\n        """{LONG}"""\nexcept X:\n    def g():\n        """{LONG}"""\n',
        "broken.py": f'"""{LONG}"""\ndef (:\n',
        "latin.py": "",
        "_sysconfigdata__linux_.py": "build_time_vars = {'prefix': '/somewhere'}\n",
        "encodings/cp1.py": "table = 'abc'\n" * 9,
        "pydoc_data/topics.py": f"topics = {{'if': {LONG!r}, 'while': {LONG + 'w'!r}}}\n",
        "test/test_json.py": f'"""{LONG}"""\n',
        "unittest/test/more.py": f'"""{LONG}"""\n',
    }
    for name, content in files.items():
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_text(content)
    (library / "latin.py").write_bytes(b"# caf\xe9\n")
    distribution(
        site,
        "Num-Py",
        {"numpy/core.py": f'"""{LONG}"""\n', "numpy/tests/test_a.py": f'"""{LONG}"""\n'},
        description=LONG,
        licence="Do as you like.",
    )
    distribution(site, "other", {"other.py": f'"""{LONG}"""\n'})
    distribution(site, "longhaul", {"data/reading/documents.py": f'"""{LONG}"""\n'}, description=LONG, licence="Ours.")
    monkeypatch.setattr(
        sysconfig, "get_paths", lambda: {"stdlib": str(library), "purelib": str(site), "platlib": str(site)}
    )
    return tmp_path


def read(**settings) -> tuple[list[Document], list[Rejected]]:
    environment = PythonEnvironment(**settings)
    records = [
        r for domain in environment.domains for r in environment.read(domain, Counter(), lambda done, total: None)
    ]
    return [r for r in records if isinstance(r, Document)], [r for r in records if isinstance(r, Rejected)]


def test_each_domain_holds_what_it_should(installation):
    documents, rejected = read(packages=("num_py",))
    assert {d.id for d in documents if d.domain == "reference"} == {
        "topic/if",
        "topic/while",
        "stdlib/json/decoder.py::module:1",
        "stdlib/json/decoder.py::A.f:4",
        "stdlib/conditional.py::g:2",
        "stdlib/conditional.py::g:5",
        "numpy/core.py::module:1",
    }
    assert {d.id for d in documents if d.domain == "code"} == {
        "stdlib/json/decoder.py",
        "stdlib/short.py",
        "stdlib/conditional.py",
        "stdlib/broken.py",
    }
    assert [(d.id, d.source) for d in documents if d.domain == "readme"] == [("readme/num-py", "num-py")]
    assert [(d.id, d.text) for d in documents if d.domain == "licence"] == [
        ("licence/num-py/licenses/LICENSE.txt", "Do as you like.")
    ]
    assert {(r.id, r.reason) for r in rejected} == {
        ("stdlib/broken.py", "not parsed"),
        ("stdlib/latin.py", "invalid UTF-8"),
    }


def test_a_docstring_has_the_group_of_its_source_file_and_a_package_is_one_group(installation):
    documents, _ = read(packages=("*",))
    groups = {d.id: d.group for d in documents}
    assert groups["stdlib/json/decoder.py::A.f:4"] == groups["stdlib/json/decoder.py"] == "stdlib/json/decoder.py"
    assert groups["readme/num-py"] == groups["licence/num-py/licenses/LICENSE.txt"] == "package/num-py"
    assert groups["other.py::module:1"] == "other.py"


def test_this_project_is_not_part_of_its_own_corpus(installation):
    documents, _ = read(packages=("*",))
    assert not [d for d in documents if "longhaul" in d.id or "data/documents" in d.id]
    packages = PythonEnvironment().identity()["packages"]
    assert {name: entry["version"] for name, entry in packages.items()} == {"num-py": "1.0", "other": "1.0"}
    with pytest.raises(InputError, match="longhaul is not installed here"):
        PythonEnvironment(packages=("longhaul",))


def test_the_identity_follows_the_files_of_a_package_and_not_the_place_of_the_installation(installation):
    def identities() -> dict:
        return PythonEnvironment().identity()["packages"]

    before = identities()
    record = installation / "lib/site-packages/Num_Py-1.0.dist-info/RECORD"
    listed = record.read_text()
    record.write_text(listed + "../../../bin/num,sha256=a,9\nnumpy/__pycache__/core.cpython-311.pyc,,\n")
    assert identities() == before
    record.write_text(listed.replace("numpy/core.py,,", "numpy/core.py,sha256=b,7"))
    after = identities()
    assert after["num-py"] != before["num-py"] and after["other"] == before["other"]
    assert after["num-py"]["version"] == before["num-py"]["version"]


def test_a_byte_limit_bounds_the_source_that_is_parsed(installation):
    def from_packages(limit: int) -> list[Document]:
        documents, _ = read(packages=("*",), package_source_bytes=limit)
        return [d for d in documents if d.domain == "reference" and d.source != "stdlib"]

    assert [len(from_packages(limit)) for limit in (10, 500, 5000)] == [0, 1, 2]


def test_settings_that_name_nothing_are_refused(installation):
    with pytest.raises(InputError, match="domains are some of reference, code, readme, licence; got music"):
        PythonEnvironment(domains=("code", "music"))
    with pytest.raises(InputError, match="nothing-like-it is not installed here: `pip install nothing-like-it`, or"):
        PythonEnvironment(packages=("nothing-like-it",))


def test_the_real_installation_fills_every_domain():
    documents, _ = read(domains=("code", "readme", "licence"))
    assert Counter(d.domain for d in documents).keys() == set(DOMAINS) - {"reference"}
    assert {d.id for d in documents} >= {"stdlib/json/decoder.py", "readme/numpy"}
    assert len({d.id for d in documents}) == len(documents)
