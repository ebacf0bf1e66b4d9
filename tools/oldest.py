"""Print a requirements file with the oldest versions that pyproject.toml allows.

    python -m tools.oldest > oldest.txt
    pip install -r oldest.txt -e .

What users install, and frames and arrays that we read, come in their lower bounds. What only runs
the tests comes as pinned in constraints.txt, where its neighbours allow that.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("app", "search", "dask", "onnx")
READ = ("pandas", "pyarrow", "zarr")
"""Packages of the development extra whose objects the library reads."""

RUNNERS = (
    *("pytest", "pytest-xdist", "hypothesis", "numpydoc", "array-api-strict", "psutil"),
    *("httpx", "hatchling", "coverage", "playwright", "ppca-rs"),
)
"""Pinned; schemathesis is not among them, because it needs a newer rich."""

LOOSE = ("statsmodels", "onnxruntime")
"""Test tools whose pins need newer neighbours than the oldest: pip chooses their versions."""

FORM = re.compile(
    r"(?P<name>[\w.-]+)(?P<extras>\[[\w,]+\])?>=(?P<version>[\d.]+)(?:;.*)?", re.ASCII
)


class Bound(NamedTuple):
    """A requirement: its name, extras in brackets or nothing, and its lower bound."""

    name: str
    extras: str
    version: str

    @classmethod
    def of(cls, text: str) -> Bound:
        """Return what a line of pyproject.toml says, which must be a lower bound alone."""
        if (match := FORM.fullmatch(text.replace(" ", ""))) is None:
            raise ValueError(f"A requirement must be 'name>=version', got {text!r}.")
        return cls(match["name"], match["extras"] or "", match["version"])


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def bounds(about: dict) -> list[Bound]:
    """Return the lower bounds of what users install and of what is read, once each."""
    optional = about["optional-dependencies"]
    lines = [*about["dependencies"], *(line for extra in EXTRAS for line in optional[extra])]
    found = [Bound.of(line) for line in lines]
    found += [bound for line in optional["dev"] if (bound := Bound.of(line)).name in READ]
    return list(dict.fromkeys(found))


def pins() -> dict[str, str]:
    """Return the versions of constraints.txt by normalised name."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = (line.partition("==") for line in lines if "==" in line and line[0] != "#")
    return {normal(name): version for name, _, version in pairs}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements() -> list[str]:
    pinned = pins()
    oldest = [f"{name}{extras}=={version}" for name, extras, version in bounds(project())]
    return [*oldest, *(f"{name}=={pinned[normal(name)]}" for name in RUNNERS), *LOOSE]


if __name__ == "__main__":
    print("\n".join(requirements()))
