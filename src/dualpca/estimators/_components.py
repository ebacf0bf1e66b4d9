"""How many components: a count, a share of the variance, or the name of a rule."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data import ChunkedTable, has_missing
from dualpca.errors import SelectionWarning, expected, warn
from dualpca.gaussian import ROUNDING, Selection, cross_validate, selection
from dualpca.models.incomplete_selection import choose_entries, choose_in_parts, choose_rows
from dualpca.operators import Gathered, PartScatter, Primal, Scatter, Spectrum
from dualpca.solvers import solve

CROSS_VALIDATED = ("cv", "cv-rows", "cv-entries")
NAMES = ("mle", *sorted(selection.RULES), *CROSS_VALIDATED)


def leading(
    request: Any, operator: Primal | Scatter, count: int, *, solver: str, tol: float, seed: Any
) -> Spectrum:
    """Return the eigenpairs asked for: as many as the request says, or as its rule finds.

    Parameters
    ----------
    request : int, float, str or None
        None is all of them, min(n, d).
    operator : Primal or Scatter
    count : int
        Number of rows.
    solver, tol, seed
        As in `dualpca.solvers.solve`.
    """
    most = min(count, operator.dim)
    rank = max(int(request), 1) if is_count(request) else most
    spectrum = solve(operator, rank, solver, tol, seed)
    return spectrum.head(_count(request, operator, spectrum, most))


def _count(request: Any, operator: Primal | Scatter, spectrum: Spectrum, most: int) -> int:
    if request is None:
        return spectrum.rank
    if is_count(request):
        return int(request)
    if is_share(request):
        return share_count(float(request), spectrum)
    if request in CROSS_VALIDATED:
        found = cross_validated(request, *rows_of(operator), most)
        return at_least_one(request, found.chosen)
    positive = int((backend.to_numpy(spectrum.values) > ROUNDING * spectrum.trace).sum())
    if request == "mle" and positive < spectrum.dim:
        return max(positive, 1)  # no noise at all: the evidence of the exact rank is infinite
    name = "evidence" if request == "mle" else request
    arguments = (spectrum.values, spectrum.trace, spectrum.dim, operator.n)
    return at_least_one(name, selection.choose(name, *arguments))


def check_request(request: Any, count: int, d: int, solver: str) -> None:
    """Refuse a request that no data could satisfy, or that `count` rows of d features cannot."""
    if not (request is None or is_count(request) or is_share(request) or request in NAMES):
        what = f"None, an int, a share between 0 and 1, or one of {list(NAMES)}"
        raise ValueError(expected("n_components", what, request))
    if is_count(request) and not 0 <= request <= min(count, d):
        raise ValueError(
            f"n_components={request} must be between 0 and min(n_samples, n_features)="
            f"{min(count, d)} with svd_solver={solver!r}"
        )
    if request == "mle" and count < d:
        raise ValueError(
            "n_components='mle' is only supported if n_samples >= n_features, got "
            f"{count} and {d}. Use 'evidence', 'parallel' or 'cv'."
        )


def is_count(request: Any) -> bool:
    """Tell whether the request is a whole number."""
    return isinstance(request, Integral) and not isinstance(request, bool | np.bool_)


def is_share(request: Any) -> bool:
    """Tell whether the request is a share of the variance."""
    return isinstance(request, Real) and not is_count(request) and 0 < float(request) < 1


def share_count(share: float, spectrum: Spectrum) -> int:
    """Return the smallest q whose share of the variance is greater than the one asked for."""
    if spectrum.trace == 0:
        return min(1, spectrum.rank)
    ratios = np.cumsum(backend.to_numpy(spectrum.values)) / spectrum.trace
    return min(int(np.searchsorted(ratios, share, side="right")) + 1, spectrum.rank)


def rows_of(operator: Primal | Scatter) -> tuple[Array | ChunkedTable, Array | None]:
    """Return the rows behind an operator, for the rule that needs them."""
    if isinstance(operator, Gathered | PartScatter):
        return operator.parts, None
    if not isinstance(operator, Primal) or backend.is_sparse(operator.X):
        raise ValueError(
            "n_components='cv' needs dense rows, and partial_fit keeps none. "
            "Use a rule that reads the spectrum: 'evidence', 'bic', 'parallel'."
        )
    return operator.X, operator.weights


def cross_validated(
    name: str, X: Array | ChunkedTable, weights: Array | None, most: int
) -> Selection:
    """Return the choice by held-out rows or by hidden entries; rows in parts are complete.

    'cv' is the former where rows are complete, and the latter where they are not.
    """
    if isinstance(X, ChunkedTable):
        return choose_in_parts(name, X, most, holes=False)
    holes = has_missing(X)
    if name == "cv-entries" or (name == "cv" and holes):
        return choose_entries(X, weights, min(most, int(X.shape[0]) - 1, int(X.shape[1]) - 1))
    return choose_rows(X, weights, most) if holes else cross_validate(X, weights, most)


def at_least_one(name: str, q: int) -> int:
    """Return q, or 1 with a warning where a rule finds nothing above the noise."""
    if q < 1:
        warn(
            f"the rule {name!r} finds no component above the noise; one is kept.",
            SelectionWarning,
        )
    return max(q, 1)
