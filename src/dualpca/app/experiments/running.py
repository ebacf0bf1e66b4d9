"""Experiments: what one is, running them, and the files and the gallery page they become."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

import dualpca
from dualpca.app import datasets
from dualpca.app.datasets import MissingDataError
from dualpca.app.experiments.canvas import Canvas, style
from dualpca.arrays import progress as reporting
from dualpca.data import replacing
from dualpca.errors import DualPCAError, InterruptWarning

# --- what an experiment is ---------------------------------------------------------------------

Numbers = dict[str, Any]
"""Floats, lists and dictionaries of them: what JSON can hold."""


class UnknownExperimentError(DualPCAError, ValueError):
    """No experiment has the name."""


@dataclass(frozen=True)
class Outcome:
    """The results of an experiment.

    Attributes
    ----------
    figures : dict of Figure
        A single one is written under the experiment's name, several under ``name-key``.
    numbers : dict
        The numbers behind the figures: floats, lists and dictionaries of them.
    agrees, differs : str
        A sentence on what agrees with the document, and one on what does not or cannot agree.
        Both follow from `numbers`: another seed or other data may turn a sentence around.
    data : str
        What was fitted: the name of a data set, or of what stands in for it.
    """

    figures: dict[str, Figure]
    numbers: Numbers
    agrees: str
    differs: str
    data: str = "simulated"


def said(holds: bool | np.bool_, so: str, otherwise: str) -> str:
    """Return the sentence that the numbers bear out.

    Examples
    --------
    >>> said(1 < 2, "One is less.", "One is not less.")
    'One is less.'
    """
    return so if holds else otherwise


@dataclass(frozen=True)
class Experiment:
    """A registered experiment.

    Attributes
    ----------
    name : str
        Name on the command line: 's3-figure-1'.
    source : str
        The document and its figure or section: 'S3 Fig. 1'.
    title : str
        One line.
    run : function
        From a Canvas to an Outcome.
    caption : str
        What the figures show and how to read them.
    timed : bool
        Whether figures show times, which differ from run to run.
    test : str
        The test that asserts what the figures show: 'test_experiments.py::test_s3_figure_1_…' in
        ``tests/app``.
    """

    name: str
    source: str
    title: str
    run: Callable[[Canvas], Outcome] = field(repr=False)
    caption: str = ""
    timed: bool = False
    test: str = ""

    @property
    def document(self) -> str:
        """The document: 'S3', or '—' if it is none of the five."""
        code = self.source.split()[0]
        return code if code in DOCUMENTS else "—"

    @property
    def section(self) -> str:
        """The figure or section of the document: 'Fig. 1'."""
        return self.source.partition(" ")[2]


REGISTRY: dict[str, Experiment] = {}
"""Every experiment by name."""


def experiment(
    *,
    source: str,
    title: str,
    caption: str = "",
    timed: bool = False,
    test: str = "",
    name: str = "",
) -> Callable[[Callable[[Canvas], Outcome]], Callable[[Canvas], Outcome]]:
    """Register the decorated function as an experiment; by default its name is the function's.

    Examples
    --------
    >>> from dualpca.app.experiments import EXPERIMENTS
    >>> EXPERIMENTS["s3-figure-1"].source
    'S3 Fig. 1'
    """

    def register(run: Callable[[Canvas], Outcome]) -> Callable[[Canvas], Outcome]:
        key = name or run.__name__.replace("_", "-")
        if key in REGISTRY and REGISTRY[key].run.__module__ != run.__module__:
            raise ValueError(f"two experiments have the name {key!r}: rename one of them.")
        REGISTRY[key] = Experiment(key, source, title, run, caption, timed, test)
        return run

    return register


def ordered() -> dict[str, Experiment]:
    """Return all experiments by name, in the order of the documents: figure 10 after figure 9."""

    def place(one: Experiment) -> list[tuple[str, int]]:
        pairs = re.findall(r"(\D*)(\d*)", f"{one.source} {one.name}")
        return [(word, int(number or 0)) for word, number in pairs]

    return {one.name: one for one in sorted(REGISTRY.values(), key=place)}


def chosen(names: list[str]) -> Iterator[Experiment]:
    """Return the experiments with these names, each once; by default all of them.

    Raises
    ------
    UnknownExperimentError
        If a name is not registered; the message lists those that are.
    """
    unknown = [name for name in names if name not in REGISTRY]
    if unknown:
        raise UnknownExperimentError(
            f"no experiment has the name {', '.join(map(repr, unknown))}. "
            f"The names are {', '.join(ordered())}."
        )
    return (REGISTRY[name] for name in dict.fromkeys(names or ordered()))


def plain(value: Any) -> Any:
    """Return numbers for JSON: arrays as lists, scalars of NumPy as Python's, None for NaN.

    Examples
    --------
    >>> plain({"noise": np.float64(0.5), "values": np.arange(2), "none": np.nan})
    {'noise': 0.5, 'values': [0, 1], 'none': None}
    """
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if not isinstance(value, bool | int | float | str | None):
        raise TypeError(f"an experiment's numbers must be numbers or text, got {value!r}.")
    return value


TABLE = "| document | section | what it is | here | asserted by |"


def table() -> str:
    """Return all experiments as a table in Markdown, for docs/data.md.

    Examples
    --------
    >>> table().splitlines()[0]
    '| document | section | what it is | here | asserted by |'
    """
    rows = [TABLE, "|---" * 5 + "|"]
    for one in ordered().values():
        where = f'<a href="reproduced/index.html#{one.name}"><code>{one.name}</code></a>'
        cells = (one.document, one.section, one.title, where, f"`tests/app/{one.test}`")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


# --- the gallery page --------------------------------------------------------------------------

PAGE = "index.html"
SHOWN = 8
"""Most numbers of one experiment on the page; the JSON file has all."""

DOCUMENTS = {
    "S0": "De Plaen and Suykens (2023), A dual formulation for probabilistic principal component "
    "analysis",
    "S1": "Montemurri and Mhedhbi, Probabilistic PCA and extensions",
    "S2": "Muscarnera (2024), A survey on kernel PCA",
    "S3": "Zhang, Wang, Yeung and Kwok (2004), Probabilistic kernel principal component analysis",
    "S4": "Zabaras (2017), Continuous latent variable models",
}
"""The documents that experiments reproduce."""

_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src 'self' file: data:; style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>The documents, reproduced</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>The documents, reproduced</h1>
<p class="lead">Every figure below was drawn by dualpca. Each says what agrees with the published
one and what does not. Click a picture for a version that stays sharp at any size. Measured:
{measured}</p>
"""


def render(records: Sequence[dict[str, Any]]) -> str:
    """Return the page of these experiments, document by document.

    Examples
    --------
    >>> record = {"name": "a", "source": "S3 Fig. 1", "title": "Two & more", "caption": "Seen."}
    >>> record |= {"agrees": "All.", "differs": "None.", "numbers": {}, "figures": []}
    >>> "Two &amp; more" in render([record])
    True
    """
    style = resources.files(__package__).joinpath("gallery.css").read_text(encoding="utf-8")
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(str(record["source"]).split()[0], []).append(record)
    body = "".join(_document(code, groups[code]) for code in sorted(groups))
    head = _HEAD.format(style=style, measured=measured(records))
    return f"{head}{_contents(groups)}{body}</main>\n</body>\n</html>\n"


def measured(records: Sequence[dict[str, Any]]) -> str:
    """Say how long the figures took when they were made.

    Examples
    --------
    >>> measured([{"seconds": 200.0, "cores": 2}, {"seconds": 3.4, "cores": 2}])
    'these 2 figures took 3 min 23 s, in one thread, on a machine with 2 cores.'
    """
    timed = [record for record in records if "seconds" in record]
    if not timed:
        return "no times."
    minutes, seconds = divmod(round(sum(record["seconds"] for record in timed)), 60)
    cores = sorted({record["cores"] for record in timed if "cores" in record})
    machine = f", on a machine with {' or '.join(map(str, cores))} cores" if cores else ""
    return f"these {len(timed)} figures took {minutes} min {seconds} s, in one thread{machine}."


def _contents(groups: dict[str, list[dict[str, Any]]]) -> str:
    """Return links to all experiments."""
    lines = [
        f"<li><b>{escape(code)}</b> "
        + " · ".join(
            f'<a href="#{escape(r["name"])}">{escape(_place(r))}</a>' for r in groups[code]
        )
        + "</li>"
        for code in sorted(groups)
    ]
    return f'<nav aria-label="Figures"><ul>\n{chr(10).join(lines)}\n</ul></nav>\n'


def _place(record: dict[str, Any]) -> str:
    """Return the figure or section of the document."""
    return str(record["source"]).partition(" ")[2] or str(record["name"])


def _document(code: str, records: Sequence[dict[str, Any]]) -> str:
    title = DOCUMENTS.get(code, "")
    head = f"<h2>{escape(code)}<small> {escape(title)}</small></h2>\n"
    return head + "".join(_section(record) for record in records)


def _section(record: dict[str, Any]) -> str:
    """Return one experiment: its pictures, what they show, and how they compare."""
    name, title = escape(record["name"]), escape(record["title"])
    pictures = "".join(_picture(record, figure) for figure in record["figures"])
    caption = f"<p>{escape(record['caption'])}</p>\n" if record["caption"] else ""
    verdict = "".join(
        f"<dt>{word}</dt><dd>{escape(record[key])}</dd>\n"
        for word, key in (("Data", "data"), ("Agrees", "agrees"), ("Differs", "differs"))
        if record.get(key)
    )
    quick = "<p><b>A quick run: smaller settings.</b></p>\n" if record.get("quick") else ""
    foot = _foot(record)
    return (
        f'<section id="{name}">\n<h3><span>{escape(record["source"])}</span> {title}</h3>\n{quick}'
        f"<figure>\n{pictures}<figcaption>\n{caption}</figcaption>\n</figure>\n"
        f"<dl>\n{verdict}</dl>\n{_numbers(record['numbers'])}{foot}</section>\n"
    )


def _picture(record: dict[str, Any], figure: dict[str, Any]) -> str:
    alt = escape(f"{record['title']}. {record['caption']}", quote=True)
    size = f'width="{figure["width"]}" height="{figure["height"]}"'
    png, svg = escape(figure["png"], quote=True), escape(figure["svg"], quote=True)
    return f'<a href="{svg}"><img loading="lazy" alt="{alt}" {size} src="{png}"></a>\n'


def _numbers(numbers: dict[str, Any]) -> str:
    """Return the first few plain numbers as a table."""
    single = {k: v for k, v in numbers.items() if isinstance(v, int | float | str)}
    rows = "".join(
        f'<tr><th scope="row">{escape(key.replace("_", " "))}</th><td>{_number(value)}</td></tr>\n'
        for key, value in list(single.items())[:SHOWN]
    )
    return f"<table>\n{rows}</table>\n" if rows else ""


def _number(value: float | int | str) -> str:
    if isinstance(value, float):
        return f"{value:.6g}".replace("-", "\N{MINUS SIGN}")
    return escape(str(value))


def _foot(record: dict[str, Any]) -> str:
    """Return the command that runs the experiment, and the link to its numbers."""
    name = escape(record["name"])
    command = f"dualpca reproduce {name}"
    if record.get("seed"):
        command += f" --seed {record['seed']}"
    took = f" · {record['seconds']:.1f} s" if "seconds" in record else ""
    timed = " · times differ from run to run" if record.get("timed") else ""
    link = f'<a href="{name}.json">all numbers</a>'
    return f'<p class="foot"><code>{command}</code>{took} · {link}{timed}</p>\n'


# --- running -----------------------------------------------------------------------------------

LIBRARIES = ("numpy", "scipy", "scikit-learn", "matplotlib")
FORMATS: dict[str, dict[str, Any]] = {
    "png": {"metadata": {"Software": None}},
    "svg": {"metadata": {"Date": None, "Creator": None}},
}
"""Formats of figures, without date and software, which would differ between runs."""


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
    data: str | Path | None = None,
    progress: Callable[[Record], None] | None = None,
) -> list[Record]:
    """Run experiments and write their pictures, their numbers and the gallery page.

    Each is written as soon as it is finished, so that an interruption keeps the finished ones; the
    page shows everything in the folder, also from earlier runs.

    Parameters
    ----------
    names : sequence of str
        By default all experiments.
    folder : path
        Created if it does not exist; files of the same names are replaced.
    seed : int
        Random seed: the same seed gives the same pictures.
    quick : bool
        Run smaller versions, for tests; the numbers say so.
    data : path or 'openml', optional
        Folder with ``mnist10k.npz``, or 'openml' to download MNIST; without either, figures of
        MNIST are made of scikit-learn's 8 × 8 digits. Every record says which.
    progress : function, optional
        Called with each experiment as it ends.

    Returns
    -------
    list of Record
        A record whose data or optional package is missing has a `problem` and no files; the
        others are run all the same.

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
        with (
            reporting.task("experiments", len(experiments)) as tick,
            _interruptible(),
            threadpool_limits(1),  # small matrices: more threads only wait for each other
            datasets.using(data),
        ):
            for one in experiments:
                records.append(_attempt(one, target, seed, quick))
                tick(f"{one.name} took {records[-1].seconds:.1f} s")
                if progress is not None:
                    progress(records[-1])
    finally:
        write_gallery(target)
    return records


def write_gallery(folder: Path) -> Path:
    """Write the page of all experiments in the folder, and return its path."""
    path = folder / PAGE
    with replacing(path) as file:
        file.write(render(list(stored(folder))).encode())
    return path


def stored(folder: Path) -> Iterator[dict[str, Any]]:
    """Return the records in the folder, in the order of the experiments."""
    for one in chosen([]):
        path = folder / f"{one.name}.json"
        if path.is_file():
            yield json.loads(path.read_text(encoding="utf-8"))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end the work, also where a fit would keep the best model so far."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterruptWarning)
        try:
            yield
        except InterruptWarning as warning:
            raise KeyboardInterrupt from warning


def _attempt(one: Experiment, folder: Path, seed: int, quick: bool) -> Record:
    """Run one experiment and write its files; if data or a package is missing, record why."""
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
    record |= {"seconds": round(seconds, 3), "cores": os.cpu_count() or 1, "seed": seed}
    record |= {"quick": quick, "versions": versions()}
    with replacing(folder / f"{one.name}.json") as file:
        file.write((json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
    return Record(one.name, [*files, f"{one.name}.json"], seconds)


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
    """Return the content of the JSON file, except what differs from run to run."""
    sizes = [
        [round(100 * side) for side in figure.get_size_inches()]
        for figure in outcome.figures.values()
    ]
    return {
        "name": one.name,
        "source": one.source,
        "title": one.title,
        "caption": one.caption,
        "data": outcome.data,
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
