"""Kernel canonical correlation: CCA of two views through the components of their kernels.

`KernelCanonicalModel` is the fitted model, `fit_kernel_canonical` fits it. Each view is replaced
by its coordinates on the directions of feature space (`KernelSpace`), and everything after is that
of `canonical`, with a ridge of one size for all directions of a view (theory 17).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from dualpca.arrays import Array, backend, note
from dualpca.data import FOLDS, Host, InMemoryTable, has_missing
from dualpca.errors import DegenerateError, expected
from dualpca.models.canonical import (
    Canonical,
    CanonicalRequest,
    fit_canonical,
    in_closed_form,
)
from dualpca.models.driver import History
from dualpca.models.kernel import KernelChoice
from dualpca.models.kernel_space import KernelSpace

RIDGES = (1.0, 0.1, 1e-2, 1e-3, 1e-4)
"""Shares of a view's variance that cross-validation tries, largest first."""

FEWEST_PAIRS = 4 * FOLDS
"""Rows with both views from which a ridge is cross-validated; `FALLBACK` for fewer."""

FALLBACK = 0.1

LEADING = 100
"""Directions of each view among which a ridge is cross-validated: 25 fits have to be quick."""


@dataclass(frozen=True, kw_only=True)
class KernelCanonicalRequest(CanonicalRequest):
    """What `fit_kernel_canonical` needs to know, checked."""

    dimensions = "directions of the feature space"
    common: bool = True
    ridge: float | None = None  # type: ignore[assignment]  # None: by cross-validation
    kernel: KernelChoice
    y_kernel: KernelChoice
    n_directions: int = 200
    seed: int | np.random.Generator = 0


@dataclass(frozen=True)
class NoMoreThan(CanonicalRequest):
    """The same, with fewer components where views have no more directions in common."""

    def among(self, most: int) -> int:
        """Return q, for views of so many common directions."""
        return min(super().among(most), most)


@dataclass(frozen=True)
class KernelCanonicalModel:
    """Two views as coordinates in feature space, and their canonical model."""

    x: Annotated[KernelSpace, "m d"]
    y: Annotated[KernelSpace, "p=m e=d"]
    canonical: Annotated[Canonical, "q m=d p=e"]
    ridge: Annotated[float, ">= 0"]
    # correlations of rows that were left out
    held_out: Annotated[Array, "q", "or nan"] | None
    n_rows: Annotated[int, ">= 0"]
    loglikelihood: Annotated[float, "or nan, or inf"]
    history: History

    @property
    def correlations(self) -> Array:
        """ρ, (q,), largest first."""
        return self.canonical.rho

    @property
    def n_components(self) -> int:
        """Q."""
        return int(self.canonical.rho.shape[0])

    def coordinates(self, X: Array | None, Y: Array | None) -> tuple[Array | None, Array | None]:
        """Return what the canonical model is one of: ψ of each view that is given."""
        return (
            None if X is None else coordinates_in(self.x, X),
            None if Y is None else coordinates_in(self.y, Y),
        )


def observed_rows(X: Array, name: str) -> Array:
    """Return True for rows that were observed; refuse rows of which a part was, (n,)."""
    xp = backend.namespace(X)
    gaps = xp.isnan(X)
    none, some = xp.all(gaps, axis=1), xp.any(gaps, axis=1)
    if bool(xp.any(none != some)):
        remedy = "Fill them first, for example by PPCA().fit(X).impute(X)."
        what = "rows that are complete, or NaN throughout where a view was not observed"
        rows = np.flatnonzero(_host(none != some))
        raise ValueError(expected(name, what, f"NaN among the values of row {rows[0]}", remedy))
    return ~none


def coordinates_in(space: KernelSpace, X: Array, name: str = "X") -> Array:
    """Return ψ(x) of every row, (n, m), NaN for rows that were not observed."""
    if not has_missing(X):
        return space(X)
    xp, seen = backend.namespace(X), observed_rows(X, name)
    psi = space(xp.where(seen[:, None], X, xp.zeros_like(X)))
    return xp.where(seen[:, None], psi, xp.full_like(psi, float("nan")))


def fit_kernel_canonical(
    x: InMemoryTable, y: InMemoryTable, request: KernelCanonicalRequest
) -> KernelCanonicalModel:
    """Fit two views of the same rows, of which either may be missing in a row.

    Parameters
    ----------
    x, y : InMemoryTable
        Weights are those of `x`.
    request : KernelCanonicalRequest

    Examples
    --------
    >>> a = np.linspace(-1, 1, 60)[:, None]
    >>> how = KernelChoice("rbf", 2.0)
    >>> request = KernelCanonicalRequest(n_components=1, ridge=1e-3, kernel=how, y_kernel=how)
    >>> model = fit_kernel_canonical(InMemoryTable(a), InMemoryTable(a**2), request)
    >>> model.correlations.round(2)
    array([1.])
    """
    weights = x.weights
    if isinstance(request.seed, np.random.Generator):  # folds are the same for every ridge
        request = replace(request, seed=int(request.seed.integers(2**63 - 1)))
    choices = {"X": (x.rows, request.kernel), "y": (y.rows, request.y_kernel)}
    spaces, views = [], []
    for name, (rows, choice) in choices.items():
        space = _space(rows, weights, choice, request, name)
        spaces.append(space)
        views.append(coordinates_in(space, rows, name))
    most = min(space.m for space in spaces)
    request.check(most)
    q, ridge = request.among(most), request.ridge
    paired = np.flatnonzero(np.isfinite(_host(views[0])[:, 0] + _host(views[1])[:, 0]))
    if weights is not None:
        paired = paired[_host(weights)[paired] > 0]
    if paired.size < 2:
        raise DegenerateError(
            "fewer than two rows observe both views: their correlation cannot be known. Give rows "
            "in which X and y were observed together."
        )
    both = [backend.take(view, paired) for view in views]
    w = None if weights is None else backend.take(weights, paired)
    if ridge is None:
        ridge = FALLBACK if paired.size < FEWEST_PAIRS else _cross_validated(both, w, q, request)
    held_out = None
    if paired.size >= FEWEST_PAIRS:
        held_out = backend.asarray(_held_out(both, w, q, ridge, request), views[0])
    how = CanonicalRequest(q, ridge, True, request.tol, request.max_iter)
    found = fit_canonical(InMemoryTable(views[0], weights), InMemoryTable(views[1]), how)
    history = found.history or History((found.loglikelihood,), 1, True)
    about = (found.canonical, ridge, held_out, found.n_rows, found.loglikelihood, history)
    return KernelCanonicalModel(spaces[0], spaces[1], *about)


def _host(values: Array) -> Host:
    return np.asarray(backend.to_numpy(values), dtype=np.float64)


def _space(
    rows: Array,
    weights: Array | None,
    choice: KernelChoice,
    request: KernelCanonicalRequest,
    name: str,
) -> KernelSpace:
    """Return the directions of the rows of a view that were observed."""
    if has_missing(rows) or weights is not None:
        seen = backend.to_numpy(observed_rows(rows, name))
        seen = seen if weights is None else seen & (_host(weights) > 0)
        rows = backend.take(rows, np.flatnonzero(seen))
        weights = None if weights is None else backend.take(weights, np.flatnonzero(seen))
    if rows.shape[0] < 2:
        raise DegenerateError(
            f"fewer than two rows of {name} were observed: nothing can be said of that view."
        )
    points, rng = backend.working(rows), np.random.default_rng(request.seed)
    m = request.n_directions
    space = KernelSpace.fit(points, choice.resolved(points, weights), m, rng, weights=weights)
    note(f"{name}: {space.m} directions hold {space.explained:.1%} of the variance")
    return space


def _cross_validated(
    views: list[Array], weights: Array | None, q: int, request: KernelCanonicalRequest
) -> float:
    """Return the largest ridge whose correlations hold up as well as the best, but for chance.

    That is within 1/√n, the standard error of a correlation of 0, of the best sum over components;
    the largest of all where that best is within two standard errors of 0.
    """
    found = [_held_out(views, weights, q, ridge, request) for ridge in RIDGES]
    sums = [float(np.nansum(one)) for one in found]
    n, q = int(views[0].shape[0]), max(int(np.sum(~np.isnan(one))) for one in found)
    within = max(sums) - 1 / np.sqrt(n) if max(sums) > 2 * np.sqrt(q / n) else -np.inf
    ridge = next(r for r, value in zip(RIDGES, sums, strict=True) if value >= within)
    said = ", ".join(f"{r:g}: {value:.2f}" for r, value in zip(RIDGES, sums, strict=True))
    note(f"regularization {ridge:g} by cross-validation ({said})")
    return ridge


def _held_out(
    views: list[Array], weights: Array | None, q: int, ridge: float, request: KernelCanonicalRequest
) -> Host:
    """Return correlations of the variates of rows that a fit to the others has not seen, (q,).

    NaN for those that no fit to the others has: such a fit has fewer rows and directions.
    """
    few = [view[:, : min(LEADING, int(view.shape[1]))] for view in views]
    n, dx = int(few[0].shape[0]), int(few[0].shape[1])
    rows, how = backend.namespace(few[0]).concat(few, axis=1), NoMoreThan(q, ridge, True)
    folds = np.random.default_rng(request.seed).permutation(n) % FOLDS
    every, products = np.ones(n) if weights is None else _host(weights), np.zeros((3, q))
    for k in range(FOLDS):
        used, left = np.flatnonzero(folds != k), np.flatnonzero(folds == k)
        w = None if weights is None else backend.take(weights, used)
        dtypes = "float64", "float64"
        try:
            model = in_closed_form(backend.take(rows, used), w, dtypes, dx, how).canonical
        except DegenerateError:  # a view is constant but for the rows left out
            continue
        test, own = backend.take(rows, left), slice(int(model.rho.shape[0]))
        u, v = _host(model.x.variates(test[:, :dx])), _host(model.y.variates(test[:, dx:]))
        products[:, own] += [every[left] @ (a * b) for a, b in ((u, v), (u, u), (v, v))]
    size = np.sqrt(products[1] * products[2])
    return np.asarray(products[0] / np.where(size > 0, size, np.nan))
