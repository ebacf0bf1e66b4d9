"""Probabilistic canonical correlation: two views of one latent (Bach & Jordan 2005).

`CanonicalModel` is the fitted model. `fit_canonical` makes one of two tables of the same rows: in
closed form where rows are complete, by EM where values are missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from scipy import stats

from dualpca.arrays import Array, algebra, backend, note, outer
from dualpca.data import (
    Host,
    InMemoryTable,
    Table,
    beside,
    column_starts,
    condensed,
    has_missing,
    observed_weights,
    used_rows,
)
from dualpca.errors import CanonicalWarning, DegenerateError, expected, warn
from dualpca.gaussian import (
    LEAST_FREEDOM,
    LOG_2PI,
    NO_DENSITY,
    WORTH_COUNTING,
    Group,
    condition,
    densities,
    groups,
    is_count,
    whiteners,
    wishart_roots,
)
from dualpca.models.driver import History, if_singular, maximize
from dualpca.models.incomplete import check_unit
from dualpca.operators import WIDEST, Primal, survey

LEAST_UNSHARED = 1e-12
"""Least 1 − ρ for which the two views have a joint density."""


# --- The model -----------------------------------------------------------------------------------
#
# Complete rows go through their canonical variates, which exist even where a covariance is
# singular; rows with missing values through the dense Gaussian of what they observed.


@dataclass(frozen=True)
class View:
    """One view, N(μ, FFᵀ) of rank r: HᵀF = I, and FQ are the covariances with its variates."""

    mu: Annotated[Array, "d"]
    F: Annotated[Array, "d r"]  # root of the covariance
    H: Annotated[Array, "d r"]  # whitens: Hᵀ(x − μ) ~ N(0, I_r)
    Q: Annotated[Array, "r q"]  # orthonormal: the canonical axes among whitened coordinates

    @property
    def directions(self) -> Array:
        """U = HQ, (d, q): canonical directions, UᵀΣU = I."""
        return self.H @ self.Q

    @property
    def covariance(self) -> Array:
        """Σ = FFᵀ, (d, d)."""
        return self.F @ self.F.T

    def whiten(self, X: Array) -> Array:
        """Return Hᵀ(x − μ) of every row, (n, r)."""
        return (backend.working(X) - self.mu) @ self.H

    def variates(self, X: Array) -> Array:
        """Return u = Uᵀ(x − μ) of every row, (n, q), each of variance 1; expected ones with NaN."""
        if not has_missing(X):
            return (backend.working(X) - self.mu) @ self.directions
        self.require_density()
        eye = backend.asarray(np.eye(self.Q.shape[1]), self.Q)
        return condition(self.mu, self.covariance, self.F @ self.Q, eye, X).mean

    def root_without(self, share: Array) -> Array:
        """Return F(I − Q diag(share) Qᵀ)^{1/2}, (d, r), whole even where a share is 1.

        Times its transpose it is the noise Ψ for shares ρ, and cov[x | y] for shares ρ².
        """
        xp, left = backend.namespace(share), 1 - share
        taken = 1 - xp.sqrt(xp.where(left > 0, left, 0 * left))
        return self.F - (self.F @ (self.Q * taken)) @ self.Q.T

    def require_density(self) -> None:
        """Raise unless the rows vary in every direction."""
        d, r = self.F.shape
        if r < d:
            raise DegenerateError(
                f"a view of {d} features has no density: its rows vary in {r} directions only. "
                "Give regularization > 0, use more rows, or drop features that others determine."
            )

    def log_density(self, white: Array) -> Array:
        """Return ln N(x; μ, Σ) from whitened coordinates, (n,)."""
        self.require_density()
        xp, d = backend.namespace(white), int(self.F.shape[0])
        # F is square and |F|² = |Σ|; its own determinant loses nothing to squaring
        constant = d * LOG_2PI + 2 * float(xp.linalg.slogdet(self.F).logabsdet)
        return -0.5 * (constant + xp.sum(white * white, axis=1))


@dataclass(frozen=True)
class Canonical:
    """x = W_x z + μ_x + ε_x and y = W_y z + μ_y + ε_y with z ~ N(0, I_q) and any noise in a view.

    W = ΣUP^{1/2} and Ψ = Σ − WWᵀ in both views, P = diag ρ (Bach & Jordan 2005, Theorem 2), so
    everything follows from the canonical variates u and v, whose correlations are ρ (theory 17.1
    and 17.2). In float64.
    """

    x: Annotated[View, "q d"]
    y: Annotated[View, "q e=d"]
    rho: Annotated[Array, "q", ">= 0, <= 1"]  # largest first

    def loadings(self, view: View) -> Array:
        """Return W = FQP^{1/2}, (d, q)."""
        return view.F @ (view.Q * backend.namespace(self.rho).sqrt(self.rho))

    def noise(self, view: View) -> Array:
        """Return Ψ = Σ − WWᵀ, (d, d)."""
        root = view.root_without(self.rho)
        return root @ root.T

    @property
    def mu(self) -> Array:
        """The joint mean, (d_x + d_y,)."""
        return backend.namespace(self.rho).concat([self.x.mu, self.y.mu])

    def covariance(self) -> Array:
        """Return the joint covariance, (d_x + d_y, d_x + d_y); its off-diagonal has rank q."""
        xp, cross = backend.namespace(self.rho), self.loadings(self.x) @ self.loadings(self.y).T
        top = xp.concat([self.x.covariance, cross], axis=1)
        return xp.concat([top, xp.concat([cross.T, self.y.covariance], axis=1)], axis=0)

    def has_density(self) -> bool:
        """Return True if both views together have a density."""
        whole = all(view.F.shape[0] == view.F.shape[1] for view in (self.x, self.y))
        return whole and not bool(backend.namespace(self.rho).any(self.rho > 1 - LEAST_UNSHARED))

    def require_density(self) -> None:
        """Raise where a view is singular, or a correlation is 1: one view then fixes the other."""
        self.x.require_density()
        self.y.require_density()
        if not self.has_density():
            raise DegenerateError(
                "the views have no joint density: a canonical correlation is 1, one view "
                "determines part of the other. Give regularization > 0, or use more rows than "
                "features."
            )

    def latent(self, X: Array | None, Y: Array | None) -> tuple[Array, Array]:
        """Return mean (n, q) and covariance (n, q, q) of z given one view or both.

        √ρ u and 1 − ρ from one view; √ρ(u + v)/(1 + ρ) and (1 − ρ)/(1 + ρ) from both (theory 17.3).
        """
        xp, q = backend.namespace(self.rho), int(self.rho.shape[0])
        eye = backend.asarray(np.eye(q), self.rho)
        if _any_missing(X, Y):
            mu, C, W, rows = self._joint(X, Y)
            found = condition(mu, C, W, eye, rows, "covariance")
            return found.mean, found.covariance
        variates = [view.variates(A) for view, A in ((self.x, X), (self.y, Y)) if A is not None]
        one = 1 + self.rho if len(variates) == 2 else xp.ones_like(self.rho)
        mean = sum(variates[1:], variates[0]) * (xp.sqrt(self.rho) / one)
        variance = (1 - self.rho) / one
        return mean, xp.broadcast_to(variance[:, None] * eye, (mean.shape[0], q, q))

    def predicted(
        self,
        X: Array | None,
        Y: Array | None,
        spread: str | None = None,
        rows: float | None = None,
    ) -> tuple[Array, Array | None]:
        """Return the view that is not given, (n, d), from the one that is.

        E[y | x] = μ_y + W_y P^{1/2}u and cov[y | x] = Σ_yy − W_y P W_yᵀ: the uncertainty of a new
        measurement, noise included.

        Parameters
        ----------
        X, Y : array of shape (n, d) or None
            One of them.
        spread : {None, 'variance', 'covariance'}
            What to return beside it: None, (n, d) or (n, d, d).
        rows : float, optional
            Number of pairs that were fitted, to count that the regression is an estimate.
        """
        target = self.y if Y is None else self.x
        W = self.loadings(target)
        if _any_missing(X, Y):
            mu, C, V, given = self._joint(X, Y)
            found = condition(mu, C, V @ W.T, target.covariance, given, spread)
            beside = found.variance if found.covariance is None else found.covariance
            if beside is not None and rows is not None:
                q = int(self.rho.shape[0])
                beside = beside * (self._scarce(target, rows) * (1 + (1 + q) / rows))
            return found.mean + target.mu, beside
        mean = self.latent(X, Y)[0] @ W.T + target.mu
        if spread is None:
            return mean, None
        root, xp = target.root_without(self.rho * self.rho), backend.namespace(mean)
        one = xp.sum(root * root, axis=1) if spread == "variance" else root @ root.T
        if rows is None:  # all complete rows share it
            return mean, xp.broadcast_to(one, (mean.shape[0], *one.shape))
        white, Q = (self.y.whiten(Y), self.y.Q) if X is None else (self.x.whiten(X), self.x.Q)
        return mean, self._estimated(white, Q, target, rows, one)

    def _scarce(self, target: View, rows: float) -> float:
        """Return what makes the noise of the target unbiased, and its law Student's t.

        Each entry of the target has k = q(d_x + d_y − q)/d coefficients, on average.
        """
        source = self.x if target is self.y else self.y
        q, d_x, d_y = (int(A.shape[1]) for A in (target.Q, source.F, target.F))
        dof = max(rows - 1 - q * (d_x + d_y - q) / d_y, LEAST_FREEDOM)
        return max(rows, dof) / (dof - 2)

    def _estimated(self, white: Array, Q: Array, target: View, rows: float, one: Array) -> Array:
        """Return variances or covariances, `one` of a known regression, of an estimate (17.4).

        `white` are the whitened coordinates of what is given, and Q its canonical axes.
        """
        xp = backend.namespace(one)
        u = white @ Q
        along = xp.sum(u * u, axis=1)
        beyond = xp.sum(white * white, axis=1) - along
        L = target.F @ (target.Q * xp.sqrt(1 - self.rho * self.rho))
        axes = xp.sum(L * L, axis=1) if len(one.shape) == 1 else L @ L.T
        shape = (int(u.shape[0]), *(1,) * len(one.shape))
        known, turned = (xp.reshape(a, shape) for a in (rows + 1 + along, beyond))
        return self._scarce(target, rows) / rows * (known * one + turned * axes)

    def log_density(self, X: Array | None, Y: Array | None) -> Array:
        """Return ln p of what each row observed of the views that are given, (n,)."""
        if _any_missing(X, Y):
            mu, C, _, rows = self._joint(X, Y)
            nothing = C[:, :0]
            return condition(mu, C, nothing, nothing[:0, :], rows).log_density
        a = None if X is None else self.x.whiten(X)
        b = None if Y is None else self.y.whiten(Y)
        if a is None or b is None:
            return self.y.log_density(b) if a is None else self.x.log_density(a)
        self.require_density()
        xp, left = backend.namespace(self.rho), (1 - self.rho) * (1 + self.rho)
        u, v = a @ self.x.Q, b @ self.y.Q
        off = u - self.rho * v
        change = float(xp.sum(xp.log(left))) + xp.sum(off * off / left - u * u, axis=1)
        return self.x.log_density(a) + self.y.log_density(b) - 0.5 * change

    def filled(self, X: Array, Y: Array) -> tuple[Array, Array]:
        """Return both views side by side with expectations for NaN, and standard deviations."""
        xp = backend.namespace(X)
        mu, C, _, rows = self._joint(X, Y)
        found = condition(mu, C, C, C, rows, "variance")
        unknown = xp.isnan(rows)
        std = xp.where(unknown, xp.sqrt(found.variance), xp.zeros_like(rows))
        return xp.where(unknown, found.mean + mu, rows), std

    def sample(self, n_samples: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw new rows of both views, z ~ N(0, I) and noise of its own for each."""
        z = backend.normal(rng, (n_samples, int(self.rho.shape[0])), self.rho)
        rows = []
        for view in (self.x, self.y):
            noise = backend.normal(rng, (n_samples, int(view.F.shape[1])), self.rho)
            own = noise @ view.root_without(self.rho).T
            rows.append(view.mu + z @ self.loadings(view).T + own)
        return rows[0], rows[1]

    def _joint(self, X: Array | None, Y: Array | None) -> tuple[Array, Array, Array, Array]:
        """Return μ, C and cov(x, z) of what is given, and its rows; raise where C is singular."""
        if X is None or Y is None:
            view, rows = (self.x, X) if Y is None else (self.y, Y)
            view.require_density()
            return view.mu, view.covariance, self.loadings(view), rows
        self.require_density()
        xp = backend.namespace(X)
        W = xp.concat([self.loadings(self.x), self.loadings(self.y)], axis=0)
        rows = xp.concat([backend.working(X), backend.working(Y)], axis=1)
        return self.mu, self.covariance(), W, rows

    def sampled(self, moved: Host, S: Host) -> Canonical:
        """Return the fit to a sample: its mean and covariance among whitened coordinates.

        Its axes have the signs of these.
        """
        q, r = int(self.rho.shape[0]), int(self.x.F.shape[1])
        roots = [np.linalg.cholesky(part) for part in (S[:r, :r], S[r:, r:])]
        inverses = [np.linalg.inv(L) for L in roots]
        left, rho, right = np.linalg.svd(inverses[0] @ S[:r, r:] @ inverses[1].T)
        own = backend.to_numpy(self.x.Q)
        sign = np.where(np.sum((inverses[0].T @ left[:, :q]) * own, axis=0) < 0, -1.0, 1.0)
        views = []
        places, axes = (moved[:r], moved[r:]), (left[:, :q] * sign, right[:q, :].T * sign)
        for view, at, L, H, Q in zip((self.x, self.y), places, roots, inverses, axes, strict=True):
            given = (backend.asarray(A, view.F) for A in (at, L, H.T, Q))
            at, L, H, Q = given
            views.append(View(view.mu + view.F @ at, view.F @ L, view.H @ H, Q))
        correlations = backend.asarray(np.minimum(rho[:q], 1.0), self.rho)
        return Canonical(views[0], views[1], correlations)

    def leading(self, q: int) -> Canonical:
        """Return the q leading correlations, signed so that x's largest weights are positive."""
        xp, most = backend.namespace(self.rho), int(self.rho.shape[0])
        if q > most:
            raise ValueError(
                f"n_components must be at most {most}, the rank of the smaller view, got {q}. Use "
                "fewer components, or regularization > 0."
            )
        U = self.x.H @ self.x.Q[:, :q]
        along = xp.sum(U * algebra.deterministic_signs(U), axis=0)
        flip = xp.where(along < 0, -xp.ones_like(along), xp.ones_like(along))
        x, y = (replace(view, Q=view.Q[:, :q] * flip) for view in (self.x, self.y))
        return Canonical(x, y, self.rho[:q])

    def in_units(self, origin: Array, unit: Array) -> Canonical:
        """Return the model of origin + unit·x, for a model of x; both views one after the other."""
        d, views = int(self.x.mu.shape[0]), []
        for view, part in ((self.x, slice(d)), (self.y, slice(d, None))):
            m, s = origin[part], unit[part]
            views.append(View(m + s * view.mu, view.F * s[:, None], view.H / s[:, None], view.Q))
        return Canonical(views[0], views[1], self.rho)


# --- What other parameters the rows leave possible -----------------------------------------------

DRAWS = 48
"""Samples of as many rows, drawn from the fitted model and fitted."""

ROWS_PER_COLUMN = 20
"""Rows per column of both views, beyond which the errors of axes and correlations hardly show."""


@dataclass(frozen=True)
class CanonicalDraws:
    """A fit, and the fits to samples of as many rows that it would draw (theory 17.4).

    Of samples nothing but their covariance matters, which is a Wishart matrix: no row is drawn.
    What the answers of the samples' fits are off by around that of the fit, and by how much they
    are too sure of themselves, is what the fit owes to chance.
    """

    fit: Canonical
    samples: tuple[Canonical, ...]

    @classmethod
    def of(cls, fit: Canonical, rows: float) -> CanonicalDraws | None:
        """Return them for a fit to so many rows; None where samples would have no density."""
        Q_x, Q_y, rho = (backend.to_numpy(A) for A in (fit.x.Q, fit.y.Q, fit.rho))
        r, s = len(Q_x), len(Q_y)
        if rows - 1 <= r + s or rho[0] > 1 - LEAST_UNSHARED:
            return None
        K = (Q_x * rho) @ Q_y.T
        L = np.linalg.cholesky(np.block([[np.eye(r), K], [K.T, np.eye(s)]]))
        rng = np.random.default_rng(0)
        moved = rng.standard_normal((DRAWS, r + s)) @ L.T / math.sqrt(rows)
        A = L @ wishart_roots(rng, DRAWS, r + s, rows - 1) / math.sqrt(rows)
        S = A @ A.swapaxes(1, 2)
        return cls(fit, tuple(map(fit.sampled, moved, S)))

    def latent(self, X: Array | None, Y: Array | None) -> tuple[Array, Array]:
        """Return mean and covariance of z given one view or both, as `Canonical.latent` does."""
        mean, C = self.fit.latent(X, Y)
        found = [one.latent(X, Y) for one in self.samples]
        xp, K = backend.namespace(mean), len(found)
        own, off = C, sum(outer(m - mean) for m, _ in found) / K
        sure = [xp.linalg.diagonal(A) for A in (own, sum(part for _, part in found) / K)]
        by = xp.sqrt(surer(*sure))
        return mean, own * by[:, :, None] * by[:, None, :] + off

    def filled(self, X: Array, Y: Array) -> tuple[Array, Array]:
        """Return both views side by side, and standard deviations, as `Canonical.filled` does."""
        full, std = self.fit.filled(X, Y)
        found = [one.filled(X, Y) for one in self.samples]
        K, own = len(found), std * std
        off = sum((m - full) ** 2 for m, _ in found) / K
        by = surer(own, sum(part * part for _, part in found) / K)
        return full, backend.namespace(full).sqrt(own * by + off)


def surer(own: Array, sampled: Array) -> Array:
    """Return by how much variances of samples fall short of those of the model they are from."""
    xp, one = backend.namespace(own), 1 + 0 * own
    by = xp.where(sampled > 0, own / xp.where(sampled > 0, sampled, one), one)
    return xp.where(by > 1, by, one)


def _of_view(name: str, value: Callable[[Canonical, View], Array]) -> property:
    """Return a property of one view of a `CanonicalModel`, in the dtype of its rows."""

    def get(model: CanonicalModel) -> Array:
        canonical = model.canonical
        return _cast(value(canonical, getattr(canonical, name)), model.dtypes["xy".index(name)])

    return property(get)


@dataclass(frozen=True)
class CanonicalModel:
    """What a fit of two views found; its arrays in the dtypes of their rows."""

    canonical: Annotated[Canonical, "q d e"]
    dtypes: tuple[str, str] = ("float64", "float64")
    n_rows: Annotated[int, ">= 0"] = 0
    p_values: Annotated[Array, "q", ">= 0, <= 1, or nan"] | None = None
    # of the rows that were fitted, without any penalty
    loglikelihood: Annotated[float, "or nan, or inf"] = math.nan
    history: History | None = None
    vector: bool = False  # y came as a vector
    # units of the weights, if not those of the rows
    x_scale: Annotated[Array, "d", "> 0"] | None = None
    y_scale: Annotated[Array, "e", "> 0"] | None = None
    pairs: Annotated[float, ">= 0"] = 0.0  # weights of rows with both views; 0: not known

    def n_parameters(self) -> int:
        """Return the number of free parameters: two means, two covariances, and Σ_xy of rank q."""
        q, dx, dy = (int(A.shape[0]) for A in (self.canonical.rho, self.x_mean, self.y_mean))
        own = sum(d + d * (d + 1) // 2 for d in (dx, dy))
        return own + q * (dx + dy - q)

    x_mean = _of_view("x", lambda _, view: view.mu)
    y_mean = _of_view("y", lambda _, view: view.mu)
    _x_directions = _of_view("x", lambda _, view: view.directions)
    _y_directions = _of_view("y", lambda _, view: view.directions)
    x_loadings = _of_view("x", Canonical.loadings)
    y_loadings = _of_view("y", Canonical.loadings)
    x_noise_covariance = _of_view("x", Canonical.noise)
    y_noise_covariance = _of_view("y", Canonical.noise)
    correlations = _of_view("x", lambda canonical, _: canonical.rho)

    @property
    def x_weights(self) -> Array:
        """U, (d_x, q), of columns in their own units or, with `x_scale`, in those."""
        return _in_scales(self._x_directions, self.x_scale)

    @property
    def y_weights(self) -> Array:
        """U, (d_y, q), likewise."""
        return _in_scales(self._y_directions, self.y_scale)

    @property
    def n_components(self) -> int:
        """Q."""
        return int(self.canonical.rho.shape[0])

    def worth_counting(self, always: bool = False) -> float | None:
        """Return the number of pairs if a regression fitted to so few of them is no known one."""
        n = max(self.pairs or float(self.n_rows), 1.0)
        return n if always or 1 + self.n_components > WORTH_COUNTING * n else None

    def draws(self, always: bool = False) -> CanonicalDraws | None:
        """Return fits to samples of as many rows, if so few were fitted that it shows."""
        n = max(self.pairs or float(self.n_rows), 1.0)
        d = sum(int(view.F.shape[0]) for view in (self.canonical.x, self.canonical.y))
        return CanonicalDraws.of(self.canonical, n) if always or n < ROWS_PER_COLUMN * d else None

    def covariance(self) -> Array:
        """Return the joint covariance, (d_x + d_y, d_x + d_y)."""
        return _cast(self.canonical.covariance(), self.dtypes[0])

    def sample(self, n_samples: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw new rows of both views."""
        X, Y = self.canonical.sample(n_samples, rng)
        return _cast(X, self.dtypes[0]), _cast(Y, self.dtypes[1])


def _in_scales(directions: Array, scale: Array | None) -> Array:
    return directions if scale is None else directions * scale[:, None]


def _cast(values: Array, dtype: str) -> Array:
    xp = backend.namespace(values)
    return backend.cast_like(values, xp.empty(0, dtype=getattr(xp, dtype)))


def _any_missing(X: Array | None, Y: Array | None) -> bool:
    return any(has_missing(A) for A in (X, Y) if A is not None)


# --- Fitting: closed form, or EM -----------------------------------------------------------------


MOST_BY_DEFAULT = 2
"""Pairs of variates where no number is given, if both views have as many directions."""


@dataclass(frozen=True)
class CanonicalRequest:
    """What `fit_canonical` needs to know, checked but for the number of features."""

    dimensions = "features"  # what a view has, in messages
    n_components: int | None = None  # None: at most `MOST_BY_DEFAULT`
    ridge: float = 0.0  # share of its own variance that is added to every feature's variance
    common: bool = False  # or the same number in each view: a share of that view's whole variance
    tol: float = 1e-6
    max_iter: int = 1000

    def check(self, most: int) -> None:
        """Refuse a number of components that views of so many features cannot have."""
        q = self.n_components
        if q is not None and not (is_count(q) and 1 <= q <= most):
            what = f"an integer from 1 to {most}, the number of {self.dimensions} of the smaller "
            raise ValueError(expected("n_components", what + "view, or None", q))

    def added(self, unit: Array, dx: int) -> Array:
        """Return what is added to the variance of every feature, in its own unit, (d_x + d_y,)."""
        xp = backend.namespace(unit)
        if not self.common:
            return self.ridge * xp.ones_like(unit)
        squares = unit * unit
        whole = (xp.sum(part) * xp.ones_like(part) for part in (squares[:dx], squares[dx:]))
        return self.ridge * xp.concat(list(whole)) / squares

    def among(self, most: int) -> int:
        """Return q, for views of so many common directions."""
        q = self.n_components
        return min(MOST_BY_DEFAULT, most) if q is None else int(q)


def fit_canonical(x: Table, y: Table, request: CanonicalRequest) -> CanonicalModel:
    """Fit two views of the same rows by maximum likelihood, NaN or not.

    Parameters
    ----------
    x, y : Table
        Both in memory, or the first chunked; weights are those of `x`. Chunks are complete: they
        are read once, for their moments.
    request : CanonicalRequest

    Examples
    --------
    >>> a = np.array([[1.0], [2.0], [3.0], [4.0]])
    >>> model = fit_canonical(InMemoryTable(a), InMemoryTable(a**2), CanonicalRequest(1))
    >>> model.correlations.round(4)
    array([0.9844])
    """
    request.check(min(x.d, y.d))
    both = beside(x, y)
    if isinstance(both, InMemoryTable):
        rows, weights = both.rows, both.weights
        n_rows = used_rows(rows, weights)
    else:
        rows, weights, n_rows = _condensed(both)
    # names such as 'float32', of dtypes of any array library
    dtypes = str(x.dtype).rpartition(".")[2], str(y.dtype).rpartition(".")[2]
    fit = by_em if has_missing(rows) else in_closed_form
    pairs = _pairs(rows, weights, x.d)
    model = replace(fit(rows, weights, dtypes, x.d, request), n_rows=n_rows, pairs=pairs)
    history = model.history
    if history is None and request.ridge == 0:
        _warn_of_few_rows(model)
    if history is None or request.ridge > 0:  # with a ridge EM climbs another value
        value = _loglikelihood(model.canonical, rows, weights)
    else:
        value = history.loglikelihood
    model = replace(model, loglikelihood=value, history=history or History((value,), 1, True))
    for name in ("mean", "weights", "loadings", "noise_covariance"):
        getattr(model, f"x_{name}"), getattr(model, f"y_{name}")  # raise what float32 cannot hold
    return model


def _pairs(rows: Array, weights: Array | None, dx: int) -> float:
    """Return the weights of rows that observe something of both views, added up."""
    xp, known = backend.namespace(rows), ~backend.namespace(rows).isnan(rows)
    paired = xp.any(known[:, :dx], axis=1) & xp.any(known[:, dx:], axis=1)
    paired = backend.working(xp.astype(paired, rows.dtype))
    return float(xp.sum(paired if weights is None else paired * backend.working(weights)))


def _loglikelihood(model: Canonical, rows: Array, weights: Array | None) -> float:
    """Return Σ ln p of both views side by side; ∞ where they have no density."""
    if not model.has_density():
        return math.inf
    d = int(model.x.mu.shape[0])
    density = model.log_density(rows[:, :d], rows[:, d:])
    return float(backend.namespace(rows).sum(density * (1 if weights is None else weights)))


def _condensed(both: Table) -> tuple[Array, Array, int]:
    """Return few rows and their weights with the moments of a chunked table, and its size."""
    if both.d > WIDEST:
        what = f"at most {WIDEST} features in both views for chunked data"
        raise ValueError(expected("X and y", what, both.d))
    note(f"{both.route} on the CPU: moments, ({both.d}, {both.d}) added up")
    found = survey(both, wide=False, nan=True)
    if found.moments is None:
        remedy = "Fill it with PPCA or Imputer first, or give rows in memory."
        raise ValueError(expected("X and y", "complete for chunked data", "NaN", remedy))
    if found.used < 2:
        raise ValueError("Found array with 1 sample(s) while a minimum of 2 is required by CCA.")
    return *condensed(found.moments), found.used


def _warn_of_few_rows(model: CanonicalModel) -> None:
    """Warn where correlations are 1 for any rows so few, or a view has no density."""
    x, y, n = model.canonical.x, model.canonical.y, model.n_rows
    (dx, rx), (dy, ry) = x.F.shape, y.F.shape
    if rx + ry >= n:
        reason = f"X and Y vary in {rx} and {ry} directions and there are {n} rows, so some "
        reason += "canonical correlations are 1 whatever the data"
    elif rx < dx or ry < dy:
        reason = f"X varies in {rx} of {dx} directions and Y in {ry} of {dy}: some features are "
        reason += "constant or follow from others, and the model has no density"
    else:
        return
    remedy = "Give regularization > 0, use more rows, or drop features."
    warn(f"{reason}. {remedy}", CanonicalWarning, degenerate=True)


def in_closed_form(
    rows: Array, weights: Array | None, dtypes: tuple[str, str], dx: int, request: CanonicalRequest
) -> CanonicalModel:
    """Fit by the singular values of one orthonormal basis of each view times the other's.

    One triangle holds both centred views; everything after is orthogonal transformations and
    divisions by singular values above rounding, so no covariance is inverted. O(n(d_x + d_y)²).
    Björck & Golub (1973); Bach & Jordan (2005), Theorem 2.

    Parameters
    ----------
    rows : array of shape (n, d_x + d_y)
        Both views side by side, complete.
    weights : array of shape (n,) or None
    dtypes : pair of str
        Of the rows of each view, for their rounding errors.
    dx : int
    request : CanonicalRequest
    """
    xp, both = backend.namespace(rows), Primal(rows, weights, standardize=True)
    R = both.triangle() / math.sqrt(both.n)
    mean, unit = both.frame.mean, both.frame.scale
    if request.ridge > 0:
        ridges = backend.asarray(np.eye(both.dim), R) * xp.sqrt(request.added(unit, dx))
        R = algebra.triangular_factor(xp.concat([R, ridges], axis=0))
    offset, n = mean / unit, int(rows.shape[0])
    bases, views = [], []
    for name, part, dtype in zip("Xy", (slice(dx), slice(dx, None)), dtypes, strict=True):
        least = _rounding(R[:, part], offset[part], dtype, n)
        basis, s, Vt = algebra.svd(R[:, part])
        rank = int(xp.sum(xp.astype(s > least * s[0], s.dtype)))
        if rank == 0:
            raise DegenerateError(
                f"every feature of {name} is constant: there is nothing to correlate. "
                f"Give rows in which {name} varies."
            )
        s, V = s[:rank], Vt[:rank, :].T
        bases.append(basis[:, :rank])
        views.append((0 * mean[part], V * s, V / s))
    left, rho, right = algebra.svd(bases[0].T @ bases[1])
    rho = xp.where(rho > 1, xp.ones_like(rho), rho)
    every = Canonical(View(*views[0], left), View(*views[1], right.T), rho)
    ranks = int(bases[0].shape[1]), int(bases[1].shape[1])
    q = request.among(min(ranks))
    p_values = None
    if request.ridge == 0 and both.n > (sum(ranks) + 3) / 2:
        p_values = backend.asarray(bartlett(rho, both.n, ranks)[:q], rho)
    return CanonicalModel(every.leading(q).in_units(mean, unit), dtypes, p_values=p_values)


def _rounding(R: Array, offset: Array, dtype: str, n: int) -> float:
    """Return how large a singular value of R, in shares of the largest, rounding can make.

    The n rows are right to the precision of `dtype`; `offset` is their mean in standard deviations.
    """
    xp = backend.namespace(R)
    varies = xp.sum(R * R, axis=0) > 0
    far = float(xp.max(xp.where(varies, xp.abs(offset), xp.zeros_like(offset))))
    own = float(np.finfo(dtype).eps) * (1 + far)
    return own + 10 * math.sqrt(max(n, int(R.shape[1]))) * float(np.finfo(np.float64).eps)


def bartlett(rho: Array, n: float, ranks: tuple[int, int]) -> np.ndarray[tuple[int], np.dtype]:
    """Return p-values of "this correlation and all smaller ones are 0" (Bartlett 1938).

    −(n − 1 − (d_x + d_y + 1)/2) Σ_{i≥k} ln(1 − ρ_i²) is about χ² with (d_x − k)(d_y − k) degrees
    of freedom. Needs every correlation, and more rows than (d_x + d_y + 3)/2.

    Examples
    --------
    >>> import numpy as np
    >>> bartlett(np.array([0.8, 0.1]), 100, (2, 3)).round(3)
    array([0.   , 0.617])
    """
    dx, dy = ranks
    squares = np.minimum(backend.to_numpy(rho) ** 2, 1.0)
    with np.errstate(divide="ignore"):
        tails = np.cumsum(np.log1p(-squares)[::-1])[::-1]
    k = np.arange(squares.size)
    factor = n - 1 - (dx + dy + 1) / 2
    return np.asarray(stats.chi2.sf(-factor * tails, (dx - k) * (dy - k)))


# --- Missing values: EM on the joint Gaussian of both views --------------------------------------
#
# The complete data are the views themselves, not the latent, so the M step is the closed form and
# the E step a conditional Gaussian: with nothing missing EM ends where it starts.


class CanonicalFit:
    """The EM map on vectors θ = (μ, L_x, L_y, K), features in units of standard deviations.

    L are Cholesky factors of the views' covariances, and Σ_xy = L_x K L_yᵀ with K of rank q.

    Parameters
    ----------
    X : array of shape (n, d_x + d_y)
        Both views side by side, NaN where nothing was observed.
    dx, q : int
    weights : array of shape (n,) or None
    request : CanonicalRequest
        With a ridge P, diagonal in these units, EM climbs the likelihood less (n/2) tr PC⁻¹.
    """

    def __init__(
        self, X: Array, dx: int, q: int, weights: Array | None, request: CanonicalRequest
    ) -> None:
        xp, self.dx, self.q, ridge = backend.namespace(X), dx, q, request.ridge
        weights = observed_weights(X, weights)
        seen, self.origin, variance = column_starts(X, weights)
        self._refuse_columns(seen == 0, "was never observed")
        check_unit(float(xp.mean(variance)), X, self.origin)
        if ridge == 0:
            self._refuse_columns(variance == 0, "is constant where it was observed")
        self.unit = xp.sqrt(xp.where(variance > 0, variance, xp.ones_like(variance)))
        self.d, self.like = int(X.shape[1]), self.origin
        self.eye = backend.asarray(np.eye(self.d), self.like)
        self.ridge = request.added(self.unit, dx) * self.eye if ridge > 0 else None
        self.groups = groups((backend.working(X) - self.origin) / self.unit, weights)
        self.n = sum(float(xp.sum(g.w)) for g in self.groups)
        self.offset = float(seen @ xp.log(self.unit))
        if not _pairs(X, weights, dx) > 0:
            raise DegenerateError(
                "no row observes something of both views: their correlation cannot be known. "
                "Give rows in which X and y were observed together."
            )

    def _refuse_columns(self, bad: Array, why: str) -> None:
        found = np.flatnonzero(backend.to_numpy(bad))
        if found.size:
            first = int(found[0])
            name, first = ("X", first) if first < self.dx else ("y", first - self.dx)
            raise DegenerateError(
                f"column {first} of {name} {why}: nothing can be said of it. Drop the column, "
                "give rows that vary in it, or (if it is constant) regularization > 0."
            )

    def begin(self) -> Canonical:
        """Start from rows filled with the mean, variances restored; nothing missing: the end."""
        xp, S = backend.namespace(self.like), 0.0
        for g in self.groups:
            rows = xp.reshape(g.X, (-1, self.d))
            S = S + (rows * xp.reshape(g.w, (-1, 1))).T @ rows
        S = S / self.n
        short = 1 - xp.linalg.diagonal(S)
        S = S + xp.where(short > 1e-12, short, 0 * short) * self.eye
        return self._maximized(0 * self.like, self._ridged(S))

    def _ridged(self, S: Array) -> Array:
        return S if self.ridge is None else S + self.ridge

    def _maximized(self, mu: Array, S: Array) -> Canonical:
        """Take the M step: the closed form for an expected covariance S."""
        xp, d = backend.namespace(S), self.dx
        with if_singular(NO_DENSITY):
            L_x, L_y = xp.linalg.cholesky(S[:d, :d]), xp.linalg.cholesky(S[d:, d:])
        half = xp.linalg.solve(L_x, S[:d, d:])
        return self._truncated(mu, L_x, L_y, xp.linalg.solve(L_y, half.T).T)

    def _truncated(self, mu: Array, L_x: Array, L_y: Array, K: Array) -> Canonical:
        """Return the model with the q largest correlations of K."""
        xp, (left, rho, right), q = backend.namespace(K), algebra.svd(K), self.q
        if not bool(xp.all(rho[:q] < 1 - LEAST_UNSHARED)):
            raise DegenerateError(NO_DENSITY)
        with if_singular(NO_DENSITY):
            H_x, H_y = xp.linalg.inv(L_x).T, xp.linalg.inv(L_y).T
        x = View(mu[: self.dx], L_x, H_x, left[:, :q])
        y = View(mu[self.dx :], L_y, H_y, right[:q, :].T)
        return Canonical(x, y, rho[:q])

    def pack(self, model: Canonical) -> Array:
        """Return θ; diagonals of the Cholesky factors by their logarithms."""
        xp, x, y = backend.namespace(model.rho), model.x, model.y
        logs = [_with_diagonal(view.F, xp.log(xp.linalg.diagonal(view.F))) for view in (x, y)]
        parts = [x.mu, y.mu, *logs, (x.Q * model.rho) @ y.Q.T]
        return xp.concat([xp.reshape(p, (-1,)) for p in parts])

    def unpack(self, theta: Array) -> Canonical:
        """Return the model of θ; K is cut to rank q, so every θ is a model or none."""
        xp, dx, dy = backend.namespace(theta), self.dx, self.d - self.dx
        parts, end = [], self.d
        for shape in ((dx, dx), (dy, dy), (dx, dy)):
            begin, end = end, end + shape[0] * shape[1]
            parts.append(xp.reshape(theta[begin:end], shape))
        for i in (0, 1):
            logs = xp.linalg.diagonal(parts[i])
            logs = xp.where(logs > 50.0, 0 * logs + 50.0, logs)
            parts[i] = _with_diagonal(parts[i], xp.exp(logs))
        return self._truncated(theta[: self.d], *parts)

    def step(self, theta: Array) -> tuple[Array, float]:
        """Take one EM step; return it with the (penalised) log-likelihood of θ."""
        mu, S, value = self._expect(self.unpack(theta))
        return self.pack(self._maximized(mu, S)), value

    def _expect(self, model: Canonical) -> tuple[Array, Array, float]:
        """Take the E step: the mean and covariance expected of complete rows, and ln L."""
        xp, mu, C = backend.namespace(self.like), model.mu, model.covariance()
        total, scatter, value = 0 * self.like, 0 * C, -self.offset
        for group in self.groups:
            one = self._group(group, mu, C)
            total, scatter, value = total + one[0], scatter + one[1], value + one[2]
        shift = total / self.n
        S = scatter / self.n - shift[:, None] * shift[None, :]
        if self.ridge is not None:
            value -= 0.5 * self.n * float(xp.linalg.trace(self.ridge @ xp.linalg.inv(C)))
        return mu + shift, self._ridged((S + S.T) / 2), value

    def _group(self, group: Group, mu: Array, C: Array) -> tuple[Array, Array, float]:
        """Return Σ E[r], Σ E[rrᵀ] and Σ ln p of a group's rows, r around μ."""
        xp, J = backend.namespace(C), whiteners(C, group.mask)
        R, K = group.centred(mu), J[0] @ C
        white = R @ xp.matrix_transpose(J[0])
        value = xp.sum(group.w * densities(white, group.mask, J[1]))
        E = xp.where(group.mask[:, None, :] > 0, R, white @ K)
        E, w = xp.reshape(E, (-1, self.d)), xp.reshape(group.w, (-1, 1))
        # cov[x | x_o] is exactly 0 wherever something was observed
        hidden = (1 - group.mask) * xp.sqrt(xp.sum(group.w, axis=1))[:, None]
        left = (C - xp.matrix_transpose(K) @ K) * hidden[:, :, None] * hidden[:, None, :]
        return xp.sum(w * E, axis=0), (w * E).T @ E + xp.sum(left, axis=0), float(value)

    def model(self, theta: Array) -> Canonical:
        """Return the model of θ in the units of X."""
        return self.unpack(theta).leading(self.q).in_units(self.origin, self.unit)


def _with_diagonal(A: Array, diagonal: Array) -> Array:
    """Return a square matrix with another diagonal."""
    eye = backend.asarray(np.eye(A.shape[0]), A)
    return A * (1 - eye) + diagonal * eye


def by_em(
    rows: Array, weights: Array | None, dtypes: tuple[str, str], dx: int, request: CanonicalRequest
) -> CanonicalModel:
    """Fit rows with missing values by the exact likelihood of what was observed.

    A view wholly missing in a row is one pattern like any other. A step costs O((d_x + d_y)³) per
    pattern of NaN and O((d_x + d_y)²) per row. Parameters are those of `in_closed_form`.
    """
    q = request.among(min(dx, int(rows.shape[1]) - dx))
    fit = CanonicalFit(rows, dx, q, weights, request)
    start = fit.pack(fit.begin())
    theta, record = maximize(fit.step, start, tol=request.tol, max_iter=request.max_iter)
    record.add(fit.step(theta)[1])
    return CanonicalModel(fit.model(theta), dtypes, history=History.of(record))
