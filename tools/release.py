"""Build the sdist and the wheel, and look at everything that has to be right before they go out.

    python -m tools.release [--folder dist]

What is looked at: one version everywhere, a dated changelog entry for it, what the two archives
hold, their metadata, the sizes of their files, that the sdist builds the same wheel, and the
licences of what the package needs. Every fault is printed; the status is 1 if there is one. An SBOM
is written beside the archives.
"""

from __future__ import annotations

import argparse
import email
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

from tools import audit

ROOT = Path(__file__).resolve().parents[1]
LARGEST_FILE, LARGEST_WHEEL, LARGEST_SDIST = 500_000, 3_000_000, 10_000_000
"""Bytes: of a file in an archive as it is unpacked, and of the archives."""

SHIPPED_BY_SDIST = (
    *("pyproject.toml", "conftest.py", "Makefile", "constraints.txt", "README.md", "LICENSE"),
    *("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "SECURITY.md", ".gitignore"),
    *("benchmarks/page.md", "benchmarks/results/small.json", "benchmarks/mixed_peers.json"),
    *("docs/benchmarks.md", "docs/readme-picture.svg", "docs/_ext/options.py", "docs/conf.py"),
    *("examples/plot_missing.py", "tests/api.txt", "tests/files/stored_models"),
    *("tools/mutants/equivalent.txt", "tools/release.py", "src/dualpca/py.typed"),
)
"""Files, and folders, that building or testing from an unpacked sdist needs; some of each kind."""

SHIPPED_BY_WHEEL = (
    *("py.typed", "__init__.py", "app/literature/LICENSES.txt", "app/literature/README.md"),
    *("app/explorer/static/index.html", "app/live/static/index.html", "app/report/style.css"),
)
FIELDS = ("Name", "Version", "Summary", "License-Expression", "Requires-Python", "Keywords")
UNWANTED = re.compile(
    r"(^|/)(\.venv|\.git|__pycache__|\.\w+_cache|\.hypothesis|site|build|dist)/|\.(pyc|so|whl|orig)$"
)


# --- one version, and what changed ---------------------------------------------------------------


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def version() -> str:
    return str(tomllib.loads(read("pyproject.toml"))["project"]["version"])


def versions(texts: dict[str, str], wanted: str) -> Iterator[str]:
    """Yield what is wrong with the version in the texts of files, by name."""
    patterns = {
        "CITATION.cff": r"(?m)^version: (.+)$",
        "README.md": r"\bversion (\d+\.\d+\.\d+\w*)",
        "CHANGELOG.md": r"(?m)^## \[(.+?)\]",
    }
    for name, pattern in patterns.items():
        match = re.search(pattern, texts[name])
        if match is None or match[1] != wanted:
            found = match[1] if match else "none"
            yield f"{name} must name version {wanted}, that of pyproject.toml; found {found}."


def changelog(text: str, wanted: str) -> Iterator[str]:
    """Yield what is wrong with the changelog's entry for a version."""
    entry = re.search(rf"(?ms)^## \[{re.escape(wanted)}\]([^\n]*)\n(.*?)(?=^## |\Z)", text)
    if entry is None:
        yield f"CHANGELOG.md must have a heading '## [{wanted}] - YYYY-MM-DD'."
        return
    if not re.fullmatch(r" - \d{4}-\d\d-\d\d", entry[1]):
        yield f"CHANGELOG.md: the heading of {wanted} must end in a date, got {entry[1]!r}."
    if not re.search(r"(?m)^- ", entry[2]):
        yield f"CHANGELOG.md: the entry of {wanted} is empty."


def uncommitted() -> Iterator[str]:
    if not (ROOT / ".git").exists():
        return
    ask = ["git", "-C", str(ROOT), "status", "--porcelain"]
    if changed := subprocess.run(ask, capture_output=True, text=True, check=True).stdout:
        yield f"Commit first; these differ from the last commit:\n{changed.rstrip()}"


# --- the archives --------------------------------------------------------------------------------


def build(folder: Path, source: Path = ROOT) -> tuple[Path, Path]:
    """Return the sdist and the wheel of a source tree, made in a folder."""
    ask = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    for kind in ("sdist", "wheel"):
        subprocess.run([*ask, "-t", kind], cwd=source, check=True, capture_output=True)
    [sdist], [wheel] = folder.glob(f"*{version()}.tar.gz"), folder.glob(f"*-{version()}-*.whl")
    return sdist, wheel


def members(archive: Path) -> dict[str, int]:
    """Return the files of an archive and their sizes; those of an sdist without its top folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {one.filename: one.file_size for one in wheel.infolist()}
    with tarfile.open(archive) as sdist:
        return {one.name.partition("/")[2]: one.size for one in sdist if one.isfile()}


def contents(files: dict[str, int], needed: tuple[str, ...], kind: str) -> Iterator[str]:
    """Yield what is missing in an archive, too large or not meant to be there."""
    for name in needed:
        if not any(one == name or one.startswith(f"{name}/") for one in files):
            yield f"The {kind} lacks {name}."
    for name, size in files.items():
        if size > LARGEST_FILE:
            yield f"The {kind} has a file of {size:,} bytes: {name}."
        if UNWANTED.search(name):
            yield f"The {kind} must not have {name}."


def wheel_of_package_only(files: dict[str, int]) -> Iterator[str]:
    places = {name.partition("/")[0] for name in files}
    about = f"dualpca-{version()}.dist-info"
    for place in sorted(places - {"dualpca", about}):
        yield f"The wheel installs {place} beside the package."


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"dualpca-{version()}.dist-info/METADATA").decode("utf-8")
    return email.message_from_string(text)


def described(about: Message, files: dict[str, int]) -> Iterator[str]:
    """Yield what an index would refuse, or show badly, of a wheel's metadata."""
    for name in FIELDS:
        if not about[name]:
            yield f"The metadata has no {name}."
    if not str(about["Description-Content-Type"]).startswith("text/markdown"):
        yield "The metadata must say that the description is Markdown."
    if len(str(about.get_payload())) < 1000:
        yield "The metadata has no description to speak of: README.md is missing."
    for name in about.get_all("License-File", []):
        if not any(one.endswith(f"/licenses/{name}") for one in files):
            yield f"The wheel lacks the licence file {name} that its metadata names."
    from packaging.requirements import InvalidRequirement, Requirement

    for line in about.get_all("Requires-Dist", []):
        try:
            Requirement(line)
        except InvalidRequirement as error:
            yield f"The metadata has a requirement that is none: {line} ({error})."


def same(one: Path, other: Path) -> Iterator[str]:
    """Yield how the wheel that the sdist builds differs from that of the tree."""
    with zipfile.ZipFile(one) as a, zipfile.ZipFile(other) as b:
        mine, theirs = ({x.filename: x.CRC for x in z.infolist()} for z in (a, b))
    for name in sorted(mine.keys() | theirs.keys()):
        if mine.get(name) != theirs.get(name):
            yield f"The wheel built from the sdist differs in {name}."


def archives(folder: Path) -> Iterator[str]:
    """Build both, and yield what is wrong with them."""
    sdist, wheel = build(folder)
    for archive, most in ((sdist, LARGEST_SDIST), (wheel, LARGEST_WHEEL)):
        size = archive.stat().st_size
        print(f"{archive.name}: {size:,} bytes, {len(members(archive))} files")
        if size > most:
            yield f"{archive.name} has {size:,} bytes, more than {most:,}."
    installed = members(wheel)
    yield from contents(members(sdist), SHIPPED_BY_SDIST, "sdist")
    yield from contents(installed, tuple(f"dualpca/{n}" for n in SHIPPED_BY_WHEEL), "wheel")
    yield from wheel_of_package_only(installed)
    yield from described(metadata(wheel), installed)
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(sdist) as packed:
            packed.extractall(place, filter="data")
        again = Path(place) / "again"
        yield from same(wheel, build(again, Path(place) / f"dualpca-{version()}")[1])


def bill_of_materials(folder: Path) -> Iterator[str]:
    """Write what the package is made of beside the archives; yield licences nobody has reviewed."""
    target = folder / f"dualpca-{version()}.cdx.json"
    packages = audit.closure(audit.project())
    audit.write_bill(target, packages, [*folder.glob("*.tar.gz"), *folder.glob("*.whl")])
    print(f"{target.name}: {target.stat().st_size:,} bytes, {len(packages)} packages looked at")
    for told in audit.not_permissive(packages.values()).open:
        yield f"A licence that is not permissive, or not known: {told}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.release")
    parser.add_argument("--folder", type=Path, default=ROOT / "dist")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("dualpca-*"):
        old.unlink()
    texts = {name: read(name) for name in ("CITATION.cff", "README.md", "CHANGELOG.md")}
    faults = [*uncommitted(), *versions(texts, version())]
    faults += [*changelog(texts["CHANGELOG.md"], version())]
    faults += [*archives(folder), *bill_of_materials(folder)]
    print("\n".join(f"- {fault}" for fault in faults) or f"dualpca {version()} can go out.")
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
