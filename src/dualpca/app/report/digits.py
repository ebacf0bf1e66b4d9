"""What the demonstration's report says about the digits beyond what every report says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from dualpca.app import demo
from dualpca.app.report.page import Page, Section, Table
from dualpca.app.report.writing import build, subject_of

NATS_PER_BIT = float(np.log(2))


def page(comparison: demo.Comparison, table: pl.DataFrame, step: Callable[[str], None]) -> Page:
    """Return the whole report on the reported model; `step` hears of every section."""
    model = comparison.fit.model
    subject = subject_of(
        model, table, color=demo.LABEL, image=demo.SHAPE, seed=comparison.seed, units=UNITS
    )
    made = {
        "command": f"dualpca demo --seed {comparison.seed}",
        "data": f"scikit-learn's digits: {len(comparison.training.y)} images to fit, the other "
        f"{len(comparison.held_out.y)} in the report",
        "preparation": "uniform noise of ±½ grey level, so that densities are finite",
    }
    title = "Handwritten digits, seen by probabilistic PCA"
    found = build(subject, step, title, made, [which(comparison)])
    return Page(title, lead(comparison, table), found.sections, found.left_out)


UNITS = f"in grey levels from 0 (paper) to {demo.LEVELS} (ink)"


def lead(comparison: demo.Comparison, table: pl.DataFrame) -> list[str]:
    """Say what was found."""
    fit, model = comparison.fit, comparison.fit.model
    n, d = comparison.held_out.X.shape
    rows = table.select(demo.NAMES)
    off = np.asarray(model.reconstruct(rows)) - rows.to_numpy()
    return [
        f"{model.n_components_} numbers per image keep {100 * fit.explained:.0f} % of the variance "
        f"of {d} pixels. On {n} images that the model never saw, its reconstructions are off by "
        f"{np.sqrt(np.mean(off**2)):.1f} grey levels of {demo.LEVELS} in a typical pixel.",
        f"It can code such an image in {_bits(fit, d):.2f} bits per pixel or less; if all "
        f"{demo.LEVELS + 1} grey levels were equally likely, {np.log2(demo.LEVELS + 1):.2f} would "
        "be needed.",
    ]


def which(comparison: demo.Comparison) -> Section:
    """Compare the models."""
    rows = [fit.cells() for fit in comparison.fits]
    table = Table(demo.HEADER, rows, demo.CAPTION + ".", highlight=comparison.chosen)
    return Section(
        "Which model",
        f"Models fitted to one half of the images and judged by the other: plain PCA, then PPCA "
        f"with the number of components that {len(demo.RULES)} rules choose, then once more by EM.",
        "the column “held out”: the higher, the better a model describes images it never saw.",
        [table],
        [comparison.reason(), _agreement(comparison)],
    )


def _agreement(comparison: demo.Comparison) -> str:
    """Say how the rules and the two ways of fitting compare."""
    em, closed, best = comparison.fits[-1], comparison.fit, comparison.densest.model
    return (
        "Most rules ask how much of the variance is structure, and keep nearly all of it: at "
        f"q = {best.n_components_} the noise is {float(best.noise_variance_):.3f}, close to the "
        "1/12 = 0.083 of the noise that was added to the pixels. Gavish and Donoho's rule asks "
        "which directions help to reconstruct an image, and needs far fewer. EM at the same q "
        f"comes within {abs(em.training - closed.training):.0e} nats per image of the closed form, "
        f"in {em.model.n_iter_} steps."
    )


def _bits(fit: demo.Fit, d: int) -> float:
    """Return the bits per pixel that an unseen image takes."""
    return -fit.held_out / NATS_PER_BIT / d
