"""What goes out: the oldest versions allowed, the archives, and what is said beside them."""

import ast
import importlib.metadata
import tarfile
from email.message import Message

import pytest
from packaging.version import Version

from tools import oldest, release

# --- the oldest versions -------------------------------------------------------------------------


def test_every_requirement_has_a_lower_bound_that_the_pinned_version_meets():
    pinned = oldest.pins()
    found = oldest.bounds(oldest.project())
    assert {bound.name for bound in found} >= {"numpy", "joblib", "polars", "pandas", "zarr"}
    for name, _, version in found:
        assert Version(pinned[oldest.normal(name)]) >= Version(version), name


def test_the_file_for_the_oldest_versions_names_each_package_once_and_users_first():
    lines = oldest.requirements()
    names = [line.partition("==")[0].partition("[")[0] for line in lines]
    assert len(set(names)) == len(names) and names[0] == "numpy"
    assert "pytest" in names and "dask[array,dataframe,distributed]==2025.1" in lines


@pytest.mark.parametrize("text", ["numpy", "numpy==2.0", "numpy>=2.0,<3", "numpy~=2.0", ">=2.0"])
def test_a_requirement_without_a_plain_lower_bound_is_refused(text):
    with pytest.raises(ValueError, match="must be 'name>=version'"):
        oldest.Bound.of(text)


def test_what_is_imported_is_declared():
    """Third-party packages that the library imports, apart from those only asked for by name."""
    declared = {oldest.normal(bound.name) for bound in oldest.bounds(oldest.project())}
    declared |= {"torch", "triton"}
    brings = importlib.metadata.packages_distributions()
    imported = set()
    for path in (oldest.ROOT / "src").rglob("*.py"):
        imported |= set(top_level_imports(path.read_text("utf-8")))
    unknown = {
        name
        for name in imported & brings.keys() - {"dualpca"}
        if not {oldest.normal(one) for one in brings[name]} & declared
    }
    # the arguments and answers of dask, fastapi and matplotlib, which bring them; cupy is only seen
    assert unknown <= {"distributed", "starlette", "pydantic", "cycler", "cupy"}


def top_level_imports(text):
    """Return what a module imports of others, wherever it does; docstrings are not code."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.partition(".")[0]


# --- version and changelog -----------------------------------------------------------------------


def test_the_version_is_one_everywhere():
    texts = {name: release.read(name) for name in ("CITATION.cff", "README.md", "CHANGELOG.md")}
    assert list(release.versions(texts, release.version())) == []
    assert list(release.changelog(texts["CHANGELOG.md"], release.version())) == []
    for name in texts:
        [fault] = release.versions(texts | {name: "nothing"}, release.version())
        assert fault.startswith(f"{name} must name version") and fault.endswith("found none.")
    assert len(list(release.versions(texts, "9.9.9"))) == 3


@pytest.mark.parametrize(
    "text, fault",
    [
        ("# Changelog\n", "must have a heading"),
        ("## [1.0.0] - 2020-01-01\n- a\n", "must have a heading"),
        ("## [1.2.3]\n- a\n", "must end in a date"),
        ("## [1.2.3] - soon\n- a\n", "must end in a date"),
        ("## [1.2.3] - 2020-01-01\n\n## [1.2.2] - 2019-01-01\n- a\n", "is empty"),
    ],
)
def test_a_changelog_without_a_dated_entry_is_refused(text, fault):
    [found] = release.changelog(text, "1.2.3")
    assert fault in found


# --- the archives --------------------------------------------------------------------------------


def test_what_an_archive_must_not_have_or_lacks_is_named():
    files = {"a.py": 10, "big.csv": release.LARGEST_FILE + 1, ".venv/x": 1, "b/__pycache__/c": 1}
    faults = list(release.contents(files, ("a.py", "b", "c"), "sdist"))
    assert [fault.split(" ")[-1].rstrip(".") for fault in faults] == [
        *("c", "big.csv", ".venv/x", "b/__pycache__/c")
    ]
    installed = {"dualpca/a.py": 1, f"dualpca-{release.version()}.dist-info/RECORD": 1}
    assert list(release.wheel_of_package_only(installed)) == []
    assert "tests beside" in next(release.wheel_of_package_only(installed | {"tests/a.py": 1}))


def test_metadata_that_an_index_refuses_are_named():
    about = Message()
    about["License-File"], about["Requires-Dist"] = "NOTICE", "numpy >= = 2"
    told = "\n".join(release.described(about, {}))
    for word in (*release.FIELDS, "Markdown", "README.md", "NOTICE", "numpy >= = 2"):
        assert word in told


def test_both_archives_are_whole_and_the_sdist_builds_the_same_wheel(tmp_path):
    assert list(release.archives(tmp_path)) == []
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as sdist:
        inside = {one.name.partition("/")[2] for one in sdist if one.isfile()}
    tests = {path.relative_to(release.ROOT).as_posix() for path in here("tests", "benchmarks")}
    assert tests <= inside


def here(*folders):
    for folder in folders:
        for path in (release.ROOT / folder).rglob("*"):
            apart = {"__pycache__", "out", ".pytest_cache"} & set(path.parts)
            if path.is_file() and not apart:
                yield path
