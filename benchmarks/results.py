"""Stored results: one JSON file a section, `{"parts": {part: {"about": …, "rows": [...]}}}`.

A row is one line of a table. In rows of ours `ratio` (and `…_ratio`) is our time over that of the
fastest other library: such a number is a cell of the summary.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple

from benchmarks.run import Row
from benchmarks.sections import SECTIONS

FOLDER = Path(__file__).parent / "results"
BEHIND = 1.0
"""Ratio above which ours is slower."""


@dataclass
class Part:
    """What one run found: the rows, and when, where and with what it ran."""

    about: dict[str, Any]
    rows: list[Row] = field(default_factory=list)


Parts = dict[str, Part]


def read(path: Path) -> Parts:
    if not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))["parts"]
    return {name: Part(**part) for name, part in stored.items()}


def load(folder: Path = FOLDER) -> dict[str, Parts]:
    """Return all stored sections by name; other files of the folder are not looked at."""
    found = {name: read(folder / f"{name}.json") for name in SECTIONS}
    return {name: parts for name, parts in found.items() if parts}


def keep(folder: Path, section: str, found: Parts) -> None:
    """Put parts into the file of their section; its other parts stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{section}.json"
    with locked(folder):
        parts = {name: asdict(part) for name, part in (read(path) | found).items()}
        path.write_text(as_text(parts), encoding="utf-8")


def as_text(parts: dict[str, Any]) -> str:
    """Return JSON with one row a line, so that changes can be read."""
    blocks = []
    for name, part in parts.items():
        rows = ",\n".join(f"  {as_json(row)}" for row in part["rows"])
        about = as_json(part["about"])
        blocks.append(f'{as_json(name)}: {{\n "about": {about},\n "rows": [\n{rows}\n ]\n}}')
    return '{"parts": {\n' + ",\n".join(blocks) + "\n}}\n"


def as_json(value: Any) -> str:
    return json.dumps(rounded(value), ensure_ascii=False, allow_nan=False)


def rounded(value: Any) -> Any:
    """Return numbers with eight digits; NaN and infinity become null."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    if hasattr(value, "item"):  # NumPy's
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.8g}") if isfinite(value) else None
    return value


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process write at a time: sections may run side by side."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def take(source: Path, folder: Path) -> list[str]:
    """Copy the parts that another machine measured; return their names."""
    found = load(source)
    for section, parts in found.items():
        keep(folder, section, parts)
    return [f"{section}:{part}" for section, parts in found.items() for part in parts]


# --- cells ---------------------------------------------------------------------------------------


class Cell(NamedTuple):
    section: str
    group: str
    name: str
    ratio: float


def cells(section: str, parts: Parts) -> list[Cell]:
    """Return every ratio of ours to the fastest other library."""
    found = []
    for part in parts.values():
        for row in part.rows:
            if not row.get("ours", True):
                continue
            for key, value in row.items():
                if (key == "ratio" or key.endswith("_ratio")) and value is not None:
                    found.append(Cell(section, row.get("group", ""), cell_name(row, key), value))
    return found


def cell_name(row: Row, key: str) -> str:
    who = str(row.get("who", "")).removeprefix("dualpca").strip()
    what = key.removesuffix("ratio").replace("_", " ").strip()
    return ", ".join(word for word in (row["name"], who, what) if word)


class Standing(NamedTuple):
    """How many cells there are, their geometric mean, and those that are behind."""

    count: int
    mean: float
    behind: list[Cell]

    @classmethod
    def of(cls, found: list[Cell]) -> Standing:
        mean = geometric_mean([cell.ratio for cell in found]) if found else 0.0
        return cls(len(found), mean, [cell for cell in found if cell.ratio > BEHIND])
