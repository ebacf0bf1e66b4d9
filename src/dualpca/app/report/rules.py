"""What every rule for the number of directions would keep of these rows, in the time there is."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

import dualpca
from dualpca.app.report.figures import Floats
from dualpca.app.report.page import Table
from dualpca.app.report.subject import Subject, quietly
from dualpca.errors import SelectionWarning

RULES = {
    "evidence": "which number makes the data most probable (Minka)",
    "bic": "which number is worth its parameters (BIC)",
    "parallel": "which directions stand above pure noise (parallel analysis)",
    "gavish-donoho": "which directions help to rebuild the rows (Gavish and Donoho)",
    "cv-rows": "which number describes unseen rows best",
    "cv-entries": "which number fills hidden entries best",
}
INCOMPLETE = ("bic", "cv-rows", "cv-entries")
SLOW = ("cv-entries",)
"""Rules that fit every number of components by steps; with holes all rules do."""
SHARE = 0.95
CHECKED, FEWEST = 2000, 80
"""Rows that slow rules look at: at most, and at least."""
BUDGET = 8e6
"""Rows times columns³ that a slow rule may take: a few seconds."""
TOO_LONG = "too long a search for so many columns; dualpca select makes it"


class Choice(NamedTuple):
    """What one rule keeps, or why it cannot say."""

    rule: str
    asks: str
    q: int | None
    why: str = ""


def choices(subject: Subject) -> list[Choice]:
    """Return what every rule keeps on these rows."""
    names = list(RULES) if subject.complete else list(INCOMPLETE)
    X = np.asarray(subject.X)
    if getattr(subject.model, "standardize", False):
        X = (X - subject.centre) / subject.spread
    found = []
    for name in names:
        few = looked_at(subject, name)
        rows = X[subject.some(few, salt=1)]
        asks = RULES[name]
        found.append(
            _choice(name, asks, rows, subject.seed) if few else Choice(name, asks, None, TOO_LONG)
        )
    if subject.complete:
        found.append(_choice(SHARE, f"how many keep {100 * SHARE:.0f} % of the variance", X, 0))
    return found


def looked_at(subject: Subject, name: str) -> int:
    """Return how many rows a rule looks at: 0 where a few would already take too long."""
    if subject.complete and name not in SLOW:
        return min(subject.n, CHECKED) if name in INCOMPLETE[1:] else subject.n
    most = min(subject.n, CHECKED, int(BUDGET / subject.d**3))
    return most if most >= min(subject.n, FEWEST) else 0


def _choice(name: str | float, asks: str, X: Floats, seed: int) -> Choice:
    label = name if isinstance(name, str) else f"{100 * name:.0f} % of variance"
    usable = X[:, ~np.isnan(X).all(axis=0)]
    with quietly(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", SelectionWarning)
        try:
            model = dualpca.PPCA(name, random_state=seed).fit(usable)
        except ValueError as error:
            return Choice(label, asks, None, str(error))
    return Choice(label, asks, int(model.n_components_), "finds none and keeps one" if told else "")


def rows_words(subject: Subject) -> str:
    """Say which rules looked at some of the rows only."""
    names = list(RULES) if subject.complete else list(INCOMPLETE)
    few = {name: looked_at(subject, name) for name in names}
    some = [f"{name} at {count:,}" for name, count in few.items() if 0 < count < subject.n]
    if not some:
        return ""
    return f"Of the {subject.n:,} rows slow rules looked at some, at random: {', '.join(some)}."


def table(subject: Subject, found: list[Choice]) -> Table:
    """Return what rules would keep beside what the model keeps."""
    rows = [
        [
            one.rule,
            str(one.q) if one.q is not None else "–",
            one.asks + (f" ({one.why})" if one.why else ""),
        ]
        for one in found
    ]
    rows.append(["this model", str(subject.q), "what the report is about"])
    header = ("rule", "keeps", "the question it answers")
    caption = "How many directions each rule would keep"
    return Table(header, rows, caption, highlight=len(rows) - 1, words=True)
