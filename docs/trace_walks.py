"""Trace fits and write `docs/design/walk.md`: the files that a call enters, in that order.

    python docs/trace_walks.py            # writes the page
    python docs/trace_walks.py --check    # fails if the page differs from what was traced

A call is made once before it is traced, so that imports and caches do not count.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import dask.array
import numpy as np

import dualpca as dp

ROOT = Path(__file__).resolve().parents[1]
HOME = Path(dp.__file__).parent
PAGE = ROOT / "docs/design/walk.md"

UNCOUNTED = ("arrays/", "errors.py")
"""Algebra and messages: every file uses them, and nobody gets lost there."""


def rooms() -> list[set[str]]:
    """Return the rooms of the package, highest first, as import-linter knows them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c["type"] == "layers")
    return [set(layer.split(" | ")) for layer in layers]


ROOMS = rooms()


def floor(path: str) -> int:
    """Return the height of a file's room: 0 is the highest."""
    room = path.split("/")[0].removesuffix(".py")
    return next((k for k, layer in enumerate(ROOMS) if room in layer), -1)


@dataclass
class Walk:
    """What one call entered: the first function of every file, and calls from below."""

    entered: dict[str, tuple[str, str]] = field(default_factory=dict)  # file: (function, caller)
    upward: dict[tuple[str, str], None] = field(default_factory=dict)  # (caller, function)
    functions: set[tuple[str, str]] = field(default_factory=set)

    def see(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call; a hook for `sys.setprofile`."""
        path, name = place(frame)
        if event != "call" or path is None or name.startswith("<"):
            return
        caller = from_file(frame)
        self.functions.add((path, name))
        self.entered.setdefault(path, (name, caller))
        if caller and floor(caller) > floor(path) >= 0:
            self.upward.setdefault((caller, f"{path}:{name}"))

    @property
    def counted(self) -> list[str]:
        """The files without those of `UNCOUNTED`."""
        return [path for path in self.entered if not path.startswith(UNCOUNTED)]


def place(frame: FrameType) -> tuple[str | None, str]:
    """Return the file of a frame, below `src/dualpca`, and its function; None if it is not ours."""
    code = frame.f_code
    path = Path(code.co_filename)
    if not path.is_relative_to(HOME):
        return None, ""
    return path.relative_to(HOME).as_posix(), code.co_qualname.replace(".<locals>", "")


def from_file(frame: FrameType) -> str:
    """Return the file of ours that led to a frame, or ''."""
    above = frame.f_back
    while above is not None:
        path, _ = place(above)
        if path is not None:
            return path
        above = above.f_back
    return ""


def walk(call: Callable[[], object]) -> Walk:
    """Make a call twice and trace the second."""
    found = Walk()
    call()
    sys.setprofile(found.see)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


# --- The calls -----------------------------------------------------------------------------------


def table(n: int, d: int, missing: float = 0.0) -> np.ndarray:
    """Return rows with three strong directions, a share of them missing."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, 3)) @ rng.normal(size=(3, d)) + 0.3 * rng.normal(size=(n, d))
    rows[rng.random((n, d)) < missing] = np.nan
    return rows


def chunked() -> Any:
    """Return rows as a Dask array."""
    return dask.array.from_array(table(500, 5), chunks=(100, 5))


def calls(folder: Path) -> dict[str, tuple[Callable[[], object], int | None]]:
    """Return what is traced: a title, the call, and the largest number of files it may enter."""
    small, large, missing = table(150, 4), table(5000, 50), table(150, 6, 0.1)
    many_missing, points, many_points = table(5000, 60, 0.1), table(500, 5), table(3000, 5)
    some, chunks, path = table(200, 5, 0.1), chunked(), folder / "model.dpca"
    fitted = dp.PPCA(2).fit(missing)
    return {
        "`PCA(3).fit(X)`, 150 × 4": (lambda: dp.PCA(3).fit(small), 12),
        "`PCA(3).fit(X)`, 5,000 × 50": (lambda: dp.PCA(3).fit(large), 12),
        "`PPCA(2).fit(X)` with missing values, 150 × 6": (lambda: dp.PPCA(2).fit(missing), 14),
        "`PPCA(2).fit(X)` with missing values, 5,000 × 60": (
            lambda: dp.PPCA(2).fit(many_missing),
            14,
        ),
        '`KernelPCA(2, kernel="rbf").fit(X)`, 500 points': (
            lambda: dp.KernelPCA(2, kernel="rbf").fit(points),
            14,
        ),
        '`KernelPCA(2, kernel="rbf").fit(X)`, 3,000 points': (
            lambda: dp.KernelPCA(2, kernel="rbf").fit(many_points),
            14,
        ),
        "`MixturePPCA(3, 2).fit(X)`, 500 × 5": (
            lambda: dp.MixturePPCA(3, 2, random_state=0).fit(points),
            20,
        ),
        "`CopulaPPCA(2).fit(X)`, 200 × 5": (lambda: dp.CopulaPPCA(2).fit(some), 12),
        "`PPCA(2).fit(dask_array)`, 500 × 5": (lambda: dp.PPCA(2).fit(chunks), 18),
        "`save(path)`": (lambda: fitted.save(path), 9),
        "`load(path)`": (lambda: dp.load(path), 10),
    }


# --- The page ------------------------------------------------------------------------------------

INTRODUCTION = """\
# Walks through the house

Which files a call enters, in the order in which it first enters them: traced by
`docs/trace_walks.py`, which writes this page, and traced again by a test. Paths are below
`src/dualpca`; `arrays/` and `errors.py`, which every file uses, are left out. A file is entered
from the one named beside it; **↑** says that this one lies in a room below. Nothing imports upward:
an upward call is a function that was handed down, such as what one block of rows adds to a sum.
"""


def purpose(path: str) -> str:
    """Return what a file is for: the first sentence of its docstring."""
    said = ast.get_docstring(ast.parse((HOME / path).read_text("utf-8"))) or ""
    return " ".join(said.split("\n\n")[0].split()).removesuffix(".").replace("|", "\\|")


def section(found: Walk) -> str:
    """Return what the page says about one call."""
    rows = ["| file | entered at | from | what it is for |", "|---|---|---|---|"]
    for path in found.counted:
        name, caller = found.entered[path]
        up = " ↑" if caller and floor(caller) > floor(path) >= 0 else ""
        where = f"`{caller}`{up}" if caller else ""
        rows.append(f"| `{path}` | `{name}` | {where} | {purpose(path)} |")
    lines = [f"{len(found.counted)} files.", "", *rows, ""]
    back = [
        (caller, called)
        for caller, called in found.upward
        if not caller.startswith(UNCOUNTED) and not called.startswith(UNCOUNTED)
    ]
    if back:
        said = ", ".join(f"`{called.replace(':', ' ')}` by `{caller}`" for caller, called in back)
        lines += [f"Called from below: {said}.", ""]
    return "\n".join(lines)


def traced() -> tuple[str, dict[str, tuple[int, int | None]]]:
    """Return the page as it should be, and for every call its number of files and their bound."""
    parts, sizes, written = [INTRODUCTION], {}, {}
    in_this_thread = dask.config.set(scheduler="synchronous")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), in_this_thread:
        warnings.simplefilter("ignore")
        for title, (call, bound) in calls(Path(folder)).items():
            found = walk(call)
            text = section(found)
            first = written.setdefault(text, title)
            parts.append(f"## {title}\n")
            parts.append(text if first == title else f"The same as {first}.\n")
            sizes[title] = (len(found.counted), bound)
    return "\n".join(parts), sizes


def main() -> int:
    """Write the page, or check it."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true", help="compare; write nothing")
    check = options.parse_args().check
    page, sizes = traced()
    problems = [
        f"{title} enters {size} files, more than {bound}"
        for title, (size, bound) in sizes.items()
        if bound is not None and size > bound
    ]
    if check:
        if PAGE.read_text("utf-8") != page:
            problems.append("docs/design/walk.md differs: run python docs/trace_walks.py")
    else:
        PAGE.write_text(page, "utf-8")
    print(*problems, sep="\n", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
