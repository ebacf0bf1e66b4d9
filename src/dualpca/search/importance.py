"""How much of the scores each parameter explains."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from dualpca.search.records import Record

BINS, LEAST = 4, 8
"""Numbers are cut into quarters of the trials; with fewer trials nothing is said."""


def importances(records: Sequence[Record]) -> dict[str, float]:
    """Return the share of the variance of the scores that each parameter explains alone.

    ω² = (SS_b − (g − 1) MS_w)/(SS + MS_w) of a one-way analysis of variance over the g choices (or
    quarters of a range), 0 where chance explains as much (Hays 1963). Only the trials that have a
    parameter count for it. Scores are replaced by their ranks, so that one dreadful trial does not
    decide; trials that were pruned count with what they had reached. A search draws good regions
    more often: this says what mattered there, not over the whole space.

    Examples
    --------
    >>> from dualpca.kernels import Linear
    >>> trials = [
    ...     Record(i, "complete", i % 2 + 0.01 * (i % 3), (), {"a": i % 2, "b": i % 3}, Linear(), 1)
    ...     for i in range(24)
    ... ]
    >>> found = importances(trials)
    >>> found["a"] > 0.7, found["b"] < 0.3
    (True, True)
    """
    judged = [r for r in records if r.score is not None]
    names = list(dict.fromkeys(name for r in judged for name in r.params))
    found = {}
    for name in names:
        mine = [r for r in judged if name in r.params]
        if len(mine) >= LEAST:
            scores = np.array([r.score for r in mine], dtype=np.float64)
            found[name] = _share(_groups([r.params[name] for r in mine]), _ranks(scores))
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def _ranks(values: Any) -> Any:
    """Return ranks, equal ones shared."""
    return (values[:, None] > values).sum(axis=1) + 0.5 * (values[:, None] == values).sum(axis=1)


def _groups(values: list[Any]) -> Any:
    """Return the group of every value: itself where there are few, its quarter of a range else."""
    distinct = sorted(set(values), key=str)
    numbers = all(isinstance(v, Real) and not isinstance(v, bool) for v in distinct)
    if not numbers or len(distinct) <= BINS:
        return np.array([distinct.index(v) for v in values])
    x = np.array(values, dtype=np.float64)
    return np.searchsorted(np.quantile(x, np.arange(1, BINS) / BINS), x, side="right")


def _share(groups: Any, y: Any) -> float:
    """Return ω², at least 0."""
    total = float(np.sum((y - y.mean()) ** 2))
    parts = [y[groups == g] for g in np.unique(groups)]
    within = sum(float(np.sum((part - part.mean()) ** 2)) for part in parts)
    free = len(y) - len(parts)
    if len(parts) < 2 or free < 1 or total == 0:
        return 0.0
    noise = within / free
    return max(0.0, (total - within - (len(parts) - 1) * noise) / (total + noise))
