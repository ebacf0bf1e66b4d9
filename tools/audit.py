"""List the packages that dualpca needs, their licences and known vulnerabilities; write an SBOM.

    python -m tools.audit [--sbom FILE] [--advisories FILE | --online]

What is installed here is looked at: what pyproject.toml asks for, in the core and in every extra,
and what these packages ask for in turn. Nothing is fetched unless `--online` is given.
`--advisories` is a copy of OSV's records of PyPI (the file all.zip, or a folder of its JSON files),
to be compared without a network. The status is 1 if there is a known vulnerability, or a licence
that is neither permissive nor reviewed below.

The SBOM is CycloneDX 1.6 and lists what users install, not what only develops the library.
`tools.release` puts it beside the archives.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import time
import tomllib
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from packaging.licenses import canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[1]
CORE = "core"
DEVELOPMENT = ("dev", "docs")
"""Extras of those who work on the library; what users install are all others."""

OSV = "https://api.osv.dev/v1/querybatch"
TIMEOUT = 60.0
"""Seconds that OSV may take to answer."""


# --- Licences ------------------------------------------------------------------------------------

PERMISSIVE = frozenset(
    "0BSD Apache-2.0 BSD BSD-2-Clause BSD-3-Clause BSL-1.0 CC-BY-4.0 CC0-1.0 HPND ISC MIT MIT-0 "
    "MIT-CMU PSF-2.0 Python-2.0 Unlicense Zlib".split()
)
"""Identifiers of SPDX, and BSD where a package does not say with how many clauses."""

WORDS = {
    "2-clause bsd": "BSD-2-Clause",
    "3-clause bsd": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd license": "BSD",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "isc license (iscl)": "ISC",
    "isc license": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "the unlicense (unlicense)": "Unlicense",
}
"""What packages write where they do not use SPDX."""

REVIEWED = {
    "certifi": "it covers its own files, which nobody changes or ships here",
    "codespell": "checks the spelling of the pages only; nothing of it is shipped",
    "docutils": "public domain and BSD but for an Emacs mode under the GPL; builds the pages only",
    "hypothesis": "it covers its own files; runs the tests only",
    "pathspec": "it covers its own files; builds and checks the package only",
    "tqdm": "it covers its own files, which nobody changes or ships here; comes with optuna",
}
"""Packages with licences that are not permissive, and why they may be needed."""


def licence_of(about: Any) -> str:
    """Return the licence that a package's metadata name: an SPDX expression if they allow one."""
    own = str(about.get("License") or "").strip().partition("\n")[0].strip()
    told = [
        line.split(" :: ")[-1]
        for line in about.get_all("Classifier", [])
        if line.startswith("License ::")
    ]
    for text in (about.get("License-Expression"), own):
        if found := spdx(str(text or "")):
            return found
    if told:
        return " AND ".join(WORDS.get(one.lower(), one) for one in told)
    return own[:60] or "unknown"


def spdx(text: str) -> str:
    """Return the SPDX expression that a text is, or stands for; nothing if there is none."""
    try:
        return str(canonicalize_license_expression(text))
    except ValueError:
        return WORDS.get(text.lower(), "BSD" if text == "BSD" else "")


def is_permissive(licence: str) -> bool:
    """Return True if one may do nearly anything: of alternatives one suffices, otherwise all must.

    OR binds closer than AND here, whatever the parentheses say: that never permits too much.
    """
    return all(
        any(one.partition(" WITH ")[0].strip() in PERMISSIVE for one in part.split(" OR "))
        for part in re.sub(r"[()]", "", licence).split(" AND ")
    )


# --- Packages ------------------------------------------------------------------------------------


class Package(NamedTuple):
    """A package that is needed: its version, None if it is not installed, and what it needs."""

    name: str
    version: str | None
    licence: str
    groups: tuple[str, ...]  # the core and the extras that lead to it
    needs: tuple[str, ...]

    @property
    def purl(self) -> str:
        at = "" if self.version is None else f"@{quote(self.version, safe='')}"
        return f"pkg:pypi/{self.name}{at}"

    @property
    def is_for_users(self) -> bool:
        """Return True if more than the work on the library itself needs the package."""
        return not set(self.groups) <= set(DEVELOPMENT)


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def asked_for(about: Mapping[str, Any]) -> dict[str, list[Requirement]]:
    """Return what the core and every extra ask for; not the project's own extras once more."""
    groups = {CORE: about["dependencies"], **about["optional-dependencies"]}
    own = canonicalize_name(about["name"])
    found = {group: [Requirement(line) for line in lines] for group, lines in groups.items()}
    return {
        group: others
        for group, all_of_it in found.items()
        if (others := [one for one in all_of_it if canonicalize_name(one.name) != own])
    }


Installed = Callable[[str], metadata.Distribution]


def closure(
    about: Mapping[str, Any], installed: Installed = metadata.distribution
) -> dict[str, Package]:
    """Return every package that a project leads to, by name in order, as far as installed."""
    reached: dict[str, set[str]] = {}
    needs: dict[str, set[str]] = {}
    found: dict[str, metadata.Distribution | None] = {}
    for group, wanted in asked_for(about).items():
        seen: set[tuple[str, str]] = set()
        waiting = list(applicable(wanted, ""))
        while waiting:
            one = waiting.pop()
            name = canonicalize_name(one.name)
            if name not in found:
                found[name] = _distribution(name, installed)
            reached.setdefault(name, set()).add(group)
            theirs = [Requirement(line) for line in getattr(found[name], "requires", None) or ()]
            for extra in {"", *one.extras} - {of for who, of in seen if who == name}:
                seen.add((name, extra))
                more = list(applicable(theirs, extra))
                needs.setdefault(name, set()).update(canonicalize_name(m.name) for m in more)
                waiting += more
    return {name: _package(name, found[name], reached, needs) for name in sorted(found)}


def applicable(wanted: Iterable[Requirement], extra: str) -> Iterator[Requirement]:
    """Yield the requirements whose markers hold here; with an extra also those that need it."""
    for one in wanted:
        if one.marker is None or one.marker.evaluate({"extra": extra}):
            yield one


def _distribution(name: str, installed: Installed) -> metadata.Distribution | None:
    try:
        return installed(name)
    except metadata.PackageNotFoundError:
        return None


def _package(
    name: str,
    found: metadata.Distribution | None,
    reached: Mapping[str, set[str]],
    needs: Mapping[str, set[str]],
) -> Package:
    version = None if found is None else found.version
    licence = "unknown" if found is None else licence_of(found.metadata)
    groups = sorted(reached[name], key=lambda group: (group != CORE, group))
    return Package(name, version, licence, tuple(groups), tuple(sorted(needs.get(name, ()))))


# --- Known vulnerabilities -----------------------------------------------------------------------

Found = list[tuple[Package, str]]
"""Packages with the identifiers of advisories on their versions."""


def from_records(packages: Iterable[Package], path: Path) -> Found:
    """Compare with OSV's records of PyPI: a zip archive or a folder of JSON files."""
    installed = {one.name: one for one in packages if one.version is not None}
    found, count = [], 0
    for record in _records(path):
        count += 1
        if record.get("withdrawn"):
            continue
        for affected in record.get("affected", ()):
            about = affected.get("package", {})
            one = installed.get(canonicalize_name(str(about.get("name", ""))))
            if one and about.get("ecosystem") == "PyPI" and is_affected(str(one.version), affected):
                told = " = ".join([record["id"], *sorted(record.get("aliases", ()))])
                found.append((one, told))
    if not count:
        raise ValueError(f"{path} must hold advisories of OSV as JSON files, got none.")
    return sorted(set(found))


def _records(path: Path) -> Iterator[dict[str, Any]]:
    if path.is_dir():
        yield from (json.loads(one.read_text("utf-8")) for one in sorted(path.glob("*.json")))
        return
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".json"):
                yield json.loads(archive.read(name))


def is_affected(version: str, affected: Mapping[str, Any]) -> bool:
    """Return True if an advisory lists a version, or has a range that it lies in."""
    here = Version(Version(version).public)
    listed = (_version(one) for one in affected.get("versions", ()))
    ranges = (one for one in affected.get("ranges", ()) if one.get("type") == "ECOSYSTEM")
    return here in listed or any(_lies_in(here, one.get("events", ())) for one in ranges)


def _lies_in(here: Version, events: Iterable[Mapping[str, str]]) -> bool:
    """Return where the last event at or before a version leaves it: affected or not."""
    inside = False
    told = [(_version(text), kind) for event in events for kind, text in event.items()]
    known = [(at, kind) for at, kind in told if at is not None]
    for at, kind in sorted(known, key=lambda one: one[0]):
        if kind == "introduced" and at <= here:
            inside = True
        elif (kind == "fixed" and at <= here) or (kind == "last_affected" and at < here):
            inside = False
    return inside


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def from_network(packages: Iterable[Package], url: str = OSV) -> Found:
    """Ask OSV for the advisories on these packages; it is told their names and versions."""
    installed = [one for one in packages if one.version is not None]
    queries = [
        {
            "package": {"ecosystem": "PyPI", "name": one.name},
            "version": Version(str(one.version)).public,
        }
        for one in installed
    ]
    body = json.dumps({"queries": queries}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        results = json.load(answer)["results"]
    pairs = zip(installed, results, strict=True)
    return [(one, told["id"]) for one, found in pairs for told in found.get("vulns", ())]


# --- The bill of materials -----------------------------------------------------------------------


def bill(about: Mapping[str, Any], packages: Mapping[str, Package], files: Iterable[Path]) -> Any:
    """Return a CycloneDX document of a project, what users install for it, and its archives.

    The same packages and archives give the same document; SOURCE_DATE_EPOCH sets its time.
    """
    kept = {name: one for name, one in packages.items() if one.is_for_users}
    direct = {
        canonicalize_name(one.name)
        for group, wanted in asked_for(about).items()
        if group not in DEVELOPMENT
        for one in applicable(wanted, "")
    }
    own = Package(about["name"], about["version"], about["license"], (), tuple(sorted(direct)))
    whole = all(one.version is not None for one in kept.values())
    main = _component(own) | {
        "description": about["description"],
        "components": [_file(path) for path in sorted(files)],
    }
    document: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "tools": {
                "components": [
                    {"type": "application", "name": "tools.audit", "version": about["version"]}
                ]
            },
            "authors": list(about["authors"]),
            "component": main,
        },
        "components": [_component(one) for one in kept.values()],
        "dependencies": [
            {"ref": one.purl, "dependsOn": [kept[name].purl for name in one.needs if name in kept]}
            for one in (own, *kept.values())
        ],
        "compositions": [
            {"aggregate": "complete" if whole else "incomplete", "dependencies": [own.purl]}
        ],
    }
    when = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    serial = uuid5(NAMESPACE_URL, json.dumps(document, sort_keys=True))
    document["serialNumber"] = f"urn:uuid:{serial}"
    document["metadata"]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", when)
    return document


def _component(one: Package) -> dict[str, Any]:
    """Return a package as a component; its licence as an expression, or as a name."""
    found: dict[str, Any] = {"type": "library", "bom-ref": one.purl, "name": one.name}
    if one.version is not None:
        found["version"] = one.version
    if one.groups:
        found["scope"] = "required" if CORE in one.groups else "optional"
    if one.licence != "unknown":
        try:
            told: Any = {"expression": str(canonicalize_license_expression(one.licence))}
        except ValueError:
            told = {"license": {"name": one.licence}}
        found["licenses"] = [told]
    return found | {"purl": one.purl}


def _file(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "type": "file",
        "bom-ref": f"file:{path.name}",
        "name": path.name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def write_bill(target: Path, packages: Mapping[str, Package], files: Iterable[Path] = ()) -> None:
    """Write the SBOM of the project, with the archives that it is to name."""
    text = json.dumps(bill(project(), packages, files), indent=2, ensure_ascii=False)
    target.write_text(text + "\n", "utf-8")


# --- What is said --------------------------------------------------------------------------------


def table(packages: Iterable[Package]) -> Iterator[str]:
    rows = [("package", "version", "licence", "needed by")]
    rows += [
        (one.name, one.version, short(one.licence), ", ".join(one.groups))
        for one in packages
        if one.version is not None
    ]
    widths = [max(len(row[k]) for row in rows) for k in range(3)]
    for row in rows:
        yield "  ".join([*(row[k].ljust(widths[k]) for k in range(3)), row[3]])


def short(text: str, most: int = 48) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


class Restricted(NamedTuple):
    """Packages with licences that are not permissive: those reviewed, with reasons, and others."""

    reviewed: list[str]
    open: list[str]


def not_permissive(packages: Iterable[Package]) -> Restricted:
    found = Restricted([], [])
    for one in packages:
        if one.version is None or is_permissive(one.licence):
            continue
        told = f"{one.name} ({', '.join(one.groups)}), {one.licence}"
        if one.name in REVIEWED:
            found.reviewed.append(f"{told}: {REVIEWED[one.name]}.")
        else:
            found.open.append(f"{told}.")
    return found


HOW_TO_CHECK = """\
  python -m tools.audit --online              asks https://api.osv.dev with names and versions,
  python -m tools.audit --advisories all.zip  compares with a copy of OSV's records of PyPI:
                                              https://google.github.io/osv.dev/data/"""


def advisories(packages: list[Package], path: Path | None, online: bool) -> tuple[bool, str]:
    """Return whether there is something to act on, and the advisories, or why none were read."""
    if path is None and not online:
        return (
            False,
            f"Known vulnerabilities were NOT checked, as nothing was asked.\n{HOW_TO_CHECK}",
        )
    try:
        found = from_network(packages) if path is None else from_records(packages, path)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        return True, f"Known vulnerabilities were NOT checked: {error}\n{HOW_TO_CHECK}"
    told = [f"- {one.name} {one.version}: {what}" for one, what in found]
    return bool(found), "\n".join(["Known vulnerabilities:", *(told or ["none"])])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.audit")
    parser.add_argument("--sbom", type=Path, help="write a CycloneDX document")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--advisories", type=Path, help="OSV's records of PyPI: all.zip or a folder")
    where.add_argument("--online", action="store_true", help=f"ask {OSV}")
    asked = parser.parse_args(arguments)
    packages = closure(project())
    everything = list(packages.values())
    print("\n".join(table(everything)))
    if absent := [f"{one.name} ({', '.join(one.groups)})" for one in everything if not one.version]:
        print(f"\nNot installed here, so not looked at: {', '.join(absent)}")
    restricted = not_permissive(everything)
    if restricted.reviewed:
        print("\nNot permissive, and reviewed:", *restricted.reviewed, sep="\n- ")
    if restricted.open:
        print("\nNot permissive, or not known, and not reviewed:", *restricted.open, sep="\n- ")
    known, words = advisories(everything, asked.advisories, asked.online)
    print(f"\n{words}")
    if asked.sbom:
        write_bill(asked.sbom, packages)
        print(f"\nWrote {asked.sbom}.")
    return int(known or bool(restricted.open))


if __name__ == "__main__":
    raise SystemExit(main())
