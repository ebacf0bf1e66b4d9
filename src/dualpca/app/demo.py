"""The demonstration on scikit-learn's digits: compare models, choose one, write its report.

Pixels are whole numbers from 0 to 16, and some are constant: their density would be unbounded.
Uniform noise of half a grey level either way prevents that, and makes the density of an image a
lower bound on its probability. Models are fitted to one half of the images and judged on the other.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from dualpca import PCA, PPCA, save
from dualpca.app import report
from dualpca.app.report import Page, Section
from dualpca.app.report.writing import SECTIONS
from dualpca.app.tables import writing
from dualpca.errors import SkewWarning

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

# --- the images and the models -----------------------------------------------------------------

Floats = NDArray[np.float64]

RULES = ("evidence", "bic", "white-noise", "gavish-donoho", "cv")
REPORTED = "gavish-donoho"
"""The rule whose model the report shows: on these data it keeps the fewest components."""
LEVELS = 16
"""The darkest pixel."""
SHAPE = (8, 8)
NAMES = [f"pixel_{r}_{c}" for r in range(SHAPE[0]) for c in range(SHAPE[1])]
LABEL = "digit"
DECIMALS = 2
"""Of the pixels in the data file."""


@dataclass(frozen=True)
class Half:
    """Some of the images: as they are, with noise added, and the digits they show."""

    images: Floats
    X: Floats
    y: NDArray[np.int64]

    def frame(self) -> pl.DataFrame:
        """Return the rows with the names of the pixels, which a model file keeps."""
        return pl.DataFrame(self.X, schema=NAMES, orient="row")

    def table(self) -> pl.DataFrame:
        """Return the rows and their digits as the data file has them, rounded."""
        digits = pl.Series(LABEL, self.y)
        return self.frame().select(pl.all().round(DECIMALS)).with_columns(digits)


@dataclass(frozen=True)
class Fit:
    """A fitted model, the seconds it took, and log-densities per image in nats."""

    name: str
    model: Any
    seconds: float
    training: float
    held_out: float

    @property
    def explained(self) -> float:
        """Share of the variance in the kept directions."""
        return float(np.sum(self.model.explained_variance_ratio_))

    def cells(self) -> list[str]:
        """Return the fit as a row under `HEADER`."""
        return [
            self.name,
            str(self.model.n_components_),
            f"{100 * self.explained:.1f} %",
            f"{float(self.model.noise_variance_):.3g}",
            f"{self.held_out:.1f}",
            f"{1000 * self.seconds:.0f} ms",
        ]


HEADER = ("model", "q", "explained", "noise", "held out", "time")
CAPTION = (
    "q: components kept; explained: their share of the variance; noise: its variance; "
    "held out: mean log-density of an unseen image, in nats; time: of the fit"
)


@dataclass(frozen=True)
class Comparison:
    """Every fit, and which one the report is about."""

    training: Half
    held_out: Half
    fits: list[Fit]
    chosen: int
    seed: int

    @property
    def fit(self) -> Fit:
        """The fit that the report is about."""
        return self.fits[self.chosen]

    @property
    def densest(self) -> Fit:
        """The fit with the largest held-out density."""
        return max(self.fits, key=lambda fit: fit.held_out)

    def reason(self) -> str:
        """Return one sentence on which model the report shows and why."""
        best, gain = self.densest.model, self.densest.held_out - self.fit.held_out
        return (
            f"The report shows {self.fit.name}: {self.fit.model.n_components_} components make the "
            f"smallest summary. {best.n_components_} describe unseen images better, by "
            f"{gain:.1f} nats per image."
        )


def split(seed: int) -> tuple[Half, Half]:
    """Return the digits in two random halves, the training half first."""
    images, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    X = images + rng.uniform(-0.5, 0.5, images.shape)
    order = rng.permutation(len(X))
    first, second = (Half(images[i], X[i], y[i]) for i in np.array_split(order, 2))
    return first, second


def compare(training: Half, held_out: Half, seed: int) -> Iterator[Fit]:
    """Fit the models one after another; the last is EM at the reported rule's dimension."""
    seen, unseen = (half.frame() for half in (training, held_out))

    def fitted(name: str, model: Any) -> Fit:
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SkewWarning)  # pixels that are dark in most images
            model.fit(seen)
        seconds = time.perf_counter() - start
        scores = (float(model.score(half)) for half in (seen, unseen))
        return Fit(name, model, seconds, *scores)

    q = 1
    yield fitted("PCA, 95 % variance", PCA(n_components=0.95))
    for rule in RULES:
        fit = fitted(f"PPCA, {rule}", PPCA(n_components=rule, random_state=seed))
        q = fit.model.n_components_ if rule == REPORTED else q
        yield fit
    yield fitted("PPCA, EM, same q", PPCA(n_components=q, method="em", random_state=seed))


class Files(NamedTuple):
    """What the demonstration writes: the report, its model and its rows."""

    page: Path
    model: Path
    data: Path
    size: int = 0  # of the page, in bytes

    @classmethod
    def beside(cls, output: Path) -> Files:
        """Return the files that belong to a page."""
        return cls(output, output.with_suffix(".dpca"), output.with_suffix(".csv"))


def run(output: Path, seed: int, console: Console, progress: Progress) -> Files:
    """Compare the models, write the report, its model and its rows, and print the comparison.

    The files are written last, and the page after the two that it names, so that an interruption
    leaves nothing behind.
    """
    files = Files.beside(output)
    for path in files[:3]:
        report.check_target(path)
    with progress:
        step = _steps(progress, 1 + len(RULES) + 1 + len(SECTIONS))
        halves, fits = split(seed), []
        for fit in compare(*halves, seed):
            step(f"fitted {fit.name}")
            fits.append(fit)
        comparison = Comparison(*halves, fits, 1 + RULES.index(REPORTED), seed)
        table = comparison.held_out.table()
        html = report.render(report_page(comparison, table, step))
        writing.write(table, files.data)
        save(comparison.fit.model, files.model, metadata={"table": {"image_shape": list(SHAPE)}})
        files = files._replace(size=report.write_text(output, html))
    console.print(printed(comparison), comparison.reason())
    return files


def _steps(progress: Progress, total: int) -> Callable[[str], None]:
    """Return a function that shows what was just done and advances the bar."""
    task = progress.add_task("fitting models", total=total)
    return lambda words: progress.update(task, advance=1, description=words)


def printed(comparison: Comparison) -> Table:
    """Return the comparison as a table for the terminal."""
    from rich import box
    from rich.table import Table

    drawn = Table(
        box=box.SIMPLE_HEAD,
        caption=CAPTION,
        caption_justify="left",
        padding=(0, 1, 0, 0),
        show_edge=False,
    )
    for i, word in enumerate(HEADER):
        drawn.add_column(word, justify="right" if i else "left", no_wrap=True)
    for i, fit in enumerate(comparison.fits):
        drawn.add_row(*fit.cells(), style="bold" if i == comparison.chosen else None)
    return drawn


# --- the report: what it says about the digits beyond what every report says -------------------

NATS_PER_BIT = float(np.log(2))


def report_page(comparison: Comparison, table: pl.DataFrame, step: Callable[[str], None]) -> Page:
    """Return the whole report on the reported model; `step` is called after every section."""
    model = comparison.fit.model
    subject = report.subject_of(
        model, table, color=LABEL, image=SHAPE, seed=comparison.seed, units=UNITS
    )
    made = {
        "command": f"dualpca demo --seed {comparison.seed}",
        "data": f"scikit-learn's digits: {len(comparison.training.y)} images to fit, the other "
        f"{len(comparison.held_out.y)} in the report",
        "preparation": "uniform noise of ±½ grey level, so that densities are finite",
    }
    title = "Handwritten digits, seen by probabilistic PCA"
    found = report.build(subject, step, title, made, [which(comparison)])
    return Page(title, report_lead(comparison, table), found.sections, found.left_out)


UNITS = f"in grey levels from 0 (paper) to {LEVELS} (ink)"


def report_lead(comparison: Comparison, table: pl.DataFrame) -> list[str]:
    """Return what was found, in two paragraphs."""
    fit, model = comparison.fit, comparison.fit.model
    n, d = comparison.held_out.X.shape
    rows = table.select(NAMES)
    off = np.asarray(model.reconstruct(rows)) - rows.to_numpy()
    return [
        f"{model.n_components_} numbers per image keep {100 * fit.explained:.0f} % of the variance "
        f"of {d} pixels. On {n} images that the model never saw, its reconstructions are off by "
        f"{np.sqrt(np.mean(off**2)):.1f} grey levels of {LEVELS} in a typical pixel.",
        f"It can code such an image in {_bits(fit, d):.2f} bits per pixel or less; if all "
        f"{LEVELS + 1} grey levels were equally likely, {np.log2(LEVELS + 1):.2f} would "
        "be needed.",
    ]


def which(comparison: Comparison) -> Section:
    """Compare the models."""
    rows = [fit.cells() for fit in comparison.fits]
    table = report.Table(HEADER, rows, CAPTION + ".", highlight=comparison.chosen)
    return Section(
        "Which model",
        f"Models fitted to one half of the images and judged by the other: plain PCA, then PPCA "
        f"with the number of components that {len(RULES)} rules choose, then once more by EM.",
        "the column “held out”: the higher, the better a model describes images it never saw.",
        [table],
        [comparison.reason(), _agreement(comparison)],
    )


def _agreement(comparison: Comparison) -> str:
    """Compare the rules, and the two ways of fitting, in words."""
    em, closed, best = comparison.fits[-1], comparison.fit, comparison.densest.model
    return (
        "Most rules ask how much of the variance is structure, and keep nearly all of it: at "
        f"q = {best.n_components_} the noise is {float(best.noise_variance_):.3f}, close to the "
        "1/12 = 0.083 of the noise that was added to the pixels. Gavish and Donoho's rule asks "
        "which directions help to reconstruct an image, and needs far fewer. EM at the same q "
        f"comes within {abs(em.training - closed.training):.0e} nats per image of the closed form, "
        f"in {em.model.n_iter_} steps."
    )


def _bits(fit: Fit, d: int) -> float:
    """Return the bits per pixel that an unseen image takes."""
    return -fit.held_out / NATS_PER_BIT / d
