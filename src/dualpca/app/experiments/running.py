"""Running experiments and keeping what they found: pictures, numbers, a gallery."""

from __future__ import annotations

import io
import json
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

import dualpca
from dualpca.app.datasets import MissingDataError
from dualpca.app.experiments.base import Experiment, Outcome, chosen, plain
from dualpca.app.experiments.canvas import Canvas, style
from dualpca.app.experiments.gallery import PAGE, render
from dualpca.arrays import progress as reporting
from dualpca.data import replacing
from dualpca.errors import InterruptWarning

LIBRARIES = ("numpy", "scipy", "scikit-learn", "matplotlib")
FORMATS: dict[str, dict[str, Any]] = {
    "png": {"metadata": {"Software": None}},
    "svg": {"metadata": {"Date": None, "Creator": None}},
}
"""What figures are written as, without the date and the maker that would differ."""


class Record(NamedTuple):
    """One experiment that was run."""

    name: str
    files: list[str]
    seconds: float
    problem: str = ""  # why there are no files


def reproduce(
    names: Sequence[str] = (),
    folder: str | Path = "dualpca-figures",
    *,
    seed: int = 0,
    quick: bool = False,
    progress: Callable[[Record], None] | None = None,
) -> list[Record]:
    """Run experiments and write their pictures, their numbers and the gallery page.

    Each is written as soon as it is finished, so that an interruption keeps what there is; the
    page shows everything the folder holds, of earlier runs too.

    Parameters
    ----------
    names : sequence of str
        All experiments where it is empty.
    folder : path
        Made where it does not exist; files of the same names are replaced.
    seed : int
        Of all that is random: the same seed gives the same pictures.
    quick : bool
        Run smaller versions, for tests; the numbers say so.
    progress : function, optional
        Is told of each experiment as it ends.

    Returns
    -------
    list of Record
        One whose data or optional package is missing has a `problem` and no files; the others
        go on.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [record] = reproduce(["s0-figure-2"], folder, quick=True)
    >>> record.files
    ['s0-figure-2.png', 's0-figure-2.svg', 's0-figure-2.json']
    """
    experiments = list(chosen(list(names)))
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    records: list[Record] = []
    try:
        with reporting.task("experiments", len(experiments)) as tick, _interruptible():
            for one in experiments:
                records.append(_attempt(one, target, seed, quick))
                tick(f"{one.name} took {records[-1].seconds:.1f} s")
                if progress is not None:
                    progress(records[-1])
    finally:
        write_gallery(target)
    return records


def write_gallery(folder: Path) -> Path:
    """Write the page of all experiments whose numbers lie in the folder, and return its path."""
    path = folder / PAGE
    with replacing(path) as file:
        file.write(render(list(stored(folder))).encode())
    return path


def stored(folder: Path) -> Iterator[dict[str, Any]]:
    """Return what earlier runs wrote of the experiments that there are, in their order."""
    for one in chosen([]):
        path = folder / f"{one.name}.json"
        if path.is_file():
            yield json.loads(path.read_text(encoding="utf-8"))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end the work, also where a fit would rather keep the best model so far."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterruptWarning)
        try:
            yield
        except InterruptWarning as warning:
            raise KeyboardInterrupt from warning


def _attempt(one: Experiment, folder: Path, seed: int, quick: bool) -> Record:
    """Run one experiment and write its files; without its data or an extra say why not."""
    start = time.perf_counter()
    with style():
        try:
            outcome = one.run(Canvas(seed, quick))
        except (MissingDataError, ModuleNotFoundError) as error:
            if (getattr(error, "name", "") or "").startswith("dualpca"):
                raise
            return Record(one.name, [], time.perf_counter() - start, str(error))
        files = _write_figures(one.name, outcome.figures, folder)
    record = _described(one, outcome, files)
    seconds = time.perf_counter() - start
    record |= {"seconds": round(seconds, 3), "seed": seed, "quick": quick, "versions": versions()}
    with replacing(folder / f"{one.name}.json") as file:
        file.write((json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
    return Record(one.name, [*(f for f in files), f"{one.name}.json"], seconds)


def _write_figures(name: str, figures: dict[str, Figure], folder: Path) -> list[str]:
    """Write each figure in each format and return the files' names."""
    files = []
    for key, figure in figures.items():
        stem = name if len(figures) == 1 else f"{name}-{key}"
        for ending, options in FORMATS.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=ending, **options)
            with replacing(folder / f"{stem}.{ending}") as file:
                file.write(buffer.getvalue())
            files.append(f"{stem}.{ending}")
    return files


def _described(one: Experiment, outcome: Outcome, files: list[str]) -> dict[str, Any]:
    """Return what the JSON file says, but for what differs from run to run."""
    sizes = [
        [round(100 * side) for side in figure.get_size_inches()]
        for figure in outcome.figures.values()
    ]
    return {
        "name": one.name,
        "source": one.source,
        "title": one.title,
        "caption": one.caption,
        "agrees": outcome.agrees,
        "differs": outcome.differs,
        "numbers": plain(outcome.numbers),
        "figures": [
            {"png": png, "svg": svg, "width": w, "height": h}
            for png, svg, (w, h) in zip(files[::2], files[1::2], sizes, strict=True)
        ],
        "timed": one.timed,
    }


def versions() -> dict[str, str]:
    """Return the versions that numbers may depend on."""
    found = {"dualpca": dualpca.__version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
