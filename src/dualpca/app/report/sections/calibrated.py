"""Whether the model's intervals are as wide as they should be."""

from __future__ import annotations

import numpy as np

from dualpca.app.calibration import Calibration, calibrate, hide
from dualpca.app.report.figures import BLUE, GREY, Floats, Plot, axis, band, line, plot, points
from dualpca.app.report.page import Section
from dualpca.app.report.sections.data import percent
from dualpca.app.report.subject import LeftOut, Subject, need

SHARE = 0.1
"""Of the known entries that are hidden."""
ROWS = 1000
TOLD = 0.9
"""The level that is told in words."""
ODD = 0.3
"""Share of the levels that may leave the band, which holds for one level at a time."""
FEWEST = 30
"""Hidden entries below which nothing can be said."""


def section(subject: Subject) -> Section:
    """Hide known entries, fill them, and count how often intervals held the truth."""
    need(subject, "impute", "gives no intervals for missing entries")
    if subject.d < 2:
        raise LeftOut("with one column there is nothing to fill an entry from.")
    found, error, plain = measured(subject)
    return Section(
        "Can its intervals be trusted?",
        f"{found.n_hidden:,} entries whose values are known (about {percent(SHARE)}) were hidden, "
        "the model was fitted to the rest and asked to fill them, each with an interval. The dots "
        "show how many true values lay inside the intervals, for intervals of every width.",
        "dots on the line: then a 90 % interval holds the truth in 90 % of cases. Below the line "
        "the model is too sure of itself, above it too cautious.",
        [_figure(subject, found)],
        [_error_words(error, plain)],
    )


def measured(subject: Subject) -> tuple[Calibration, float, float]:
    """Return the coverage, and the errors of the model and of column averages, in spreads."""
    at = subject.some(ROWS, salt=6)
    X = subject.X[at]
    hidden = hide(X, SHARE, np.random.default_rng([subject.seed, 6]))
    if hidden.sum() < FEWEST:
        raise LeftOut(f"too few entries to hide: {int(hidden.sum())}.")
    holed = np.where(hidden, np.nan, X)
    again = subject.refitted(holed, n_init=1, random_state=subject.seed)

    def impute(rows: Floats) -> tuple[Floats, Floats]:
        mean, std = again.asked("impute", rows, return_std=True)
        return mean, np.maximum(std, 1e-300)

    found = calibrate(impute, X, hidden)
    mean, average = impute(holed)[0], np.broadcast_to(np.nanmean(holed, axis=0), X.shape)
    error, plain = (
        float(np.sqrt(np.mean(np.square(((X - guess) / subject.spread)[hidden]))))
        for guess in (mean, average)
    )
    return found, error, plain


def _figure(subject: Subject, found: Calibration) -> Plot:
    traces = band(found.levels, found.low, found.high, GREY)
    traces.append(line([0, 1], [0, 1], GREY))
    dots = points(found.levels, found.coverage, BLUE, marker={"size": 9, "opacity": 1})
    dots["mode"] = "lines+markers"
    dots["hovertemplate"] = "%{x:.0%} intervals held %{y:.1%}<extra></extra>"
    traces.append(dots | {"showlegend": False})
    i = int(np.argmin(np.abs(found.levels - TOLD)))
    held = float(found.coverage[i])
    finding = (
        f"Intervals of {percent(TOLD)} held {percent(held)} of the hidden values; all in all the "
        f"model is {verdict(found)}. The grey band is what chance explains."
    )
    if len(subject.some(ROWS, salt=6)) < subject.n:
        finding += f" {ROWS:,} of the {subject.n:,} rows were used."
    x = axis("interval that was promised", range=[0, 1.02], tickformat=".0%")
    y = axis("true values inside", range=[0, 1.02], tickformat=".0%")
    label = "Line of the share of hidden values inside intervals, against the share promised."
    return plot(traces, x, y, label, finding, 420)


def verdict(found: Calibration) -> str:
    """Say whether intervals are too narrow or too wide, by how many levels leave the band."""
    above, below = np.mean(found.coverage > found.high), np.mean(found.coverage < found.low)
    if max(above, below) < ODD:
        return "as sure as it should be"
    if min(above, below) >= ODD / 2:
        return "too cautious for most entries and too sure of a few, which are far off"
    return "too cautious: its intervals are wide" if above > below else "too sure of itself"


def _error_words(error: float, plain: float) -> str:
    gain = 1 - error / plain if plain else 0.0
    if gain <= 0:
        return (
            f"The filled values themselves are off by {error:.2f} standard deviations of their "
            "columns, no better than filling with column averages."
        )
    return (
        f"The filled values themselves are off by {error:.2f} standard deviations of their "
        f"columns; filling with column averages would be off by {plain:.2f}, so the model is "
        f"{percent(gain)} closer."
    )
