"""Probabilistic canonical correlation: two views of one latent (Bach & Jordan 2005)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from dualpca.arrays import Array, algebra, backend
from dualpca.data import column_starts, has_missing, observed_weights, refuse_infinite
from dualpca.errors import DegenerateError
from dualpca.gaussian import (
    LOG_2PI,
    NO_DENSITY,
    Conditional,
    Group,
    condition,
    densities,
    groups,
    whiteners,
)
from dualpca.models.driver import Record, maximize
from dualpca.models.incomplete import check_unit
from dualpca.operators import Primal, deterministic_signs

# --- Probabilistic canonical correlation: two views of one latent (Bach & Jordan 2005) -----------

ONE = 1e-12
"""How far below 1 a correlation must lie for the two views to have a joint density."""


class View(NamedTuple):
    """One view, N(μ, FFᵀ) of rank r: HᵀF = I, and FQ are the covariances with its variates."""

    mu: Array  # (d,)
    F: Array  # (d, r), root of the covariance
    H: Array  # (d, r), whitens: Hᵀ(x − μ) ~ N(0, I_r)
    Q: Array  # (r, q), orthonormal: the canonical axes among whitened coordinates

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
        """Return u = Uᵀ(x − μ) of every row, (n, q), each of variance 1."""
        return (backend.working(X) - self.mu) @ self.directions

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


class Canonical(NamedTuple):
    """x = W_x z + μ_x + ε_x and y = W_y z + μ_y + ε_y with z ~ N(0, I_q) and any noise in a view.

    W = ΣUP^{1/2} and Ψ = Σ − WWᵀ in both views, P = diag ρ (Bach & Jordan 2005, Theorem 2), so
    everything follows from the canonical variates u and v, whose correlations are ρ.
    """

    x: View
    y: View
    rho: Array  # (q,), largest first

    def loadings(self, view: View) -> Array:
        """Return W = FQP^{1/2}, (d, q)."""
        return view.F @ (view.Q * backend.namespace(self.rho).sqrt(self.rho))

    def noise(self, view: View) -> Array:
        """Return Ψ = Σ − WWᵀ, (d, d)."""
        root = view.root_without(self.rho)
        return root @ root.T

    def covariance(self) -> Array:
        """Return the joint covariance, (d_x + d_y, d_x + d_y); its off-diagonal has rank q."""
        xp = backend.namespace(self.rho)
        cross = self.loadings(self.x) @ self.loadings(self.y).T
        top = xp.concat([self.x.covariance, cross], axis=1)
        return xp.concat([top, xp.concat([cross.T, self.y.covariance], axis=1)], axis=0)

    def posterior(self, u: Array | None, v: Array | None) -> tuple[Array, Array]:
        """Return mean (n, q) and variance (q,) of z given canonical variates of either or both.

        √ρ u and 1 − ρ from one view; √ρ(u + v)/(1 + ρ) and (1 − ρ)/(1 + ρ) from both.
        """
        xp, one = backend.namespace(self.rho), 1 - self.rho
        root = xp.sqrt(self.rho)
        if u is None or v is None:
            return (v if u is None else u) * root, one
        return (u + v) * (root / (1 + self.rho)), one / (1 + self.rho)

    def log_density(self, X: Array | None, Y: Array | None) -> Array:
        """Return ln p of complete rows of one view or of both, (n,)."""
        a = None if X is None else self.x.whiten(X)
        b = None if Y is None else self.y.whiten(Y)
        if a is None or b is None:
            return self.y.log_density(b) if a is None else self.x.log_density(a)
        require_joint_density(self.rho)
        xp, left = backend.namespace(self.rho), (1 - self.rho) * (1 + self.rho)
        u, v = a @ self.x.Q, b @ self.y.Q
        off = u - self.rho * v
        change = float(xp.sum(xp.log(left))) + xp.sum(off * off / left - u * u, axis=1)
        return self.x.log_density(a) + self.y.log_density(b) - 0.5 * change


def require_joint_density(rho: Array) -> None:
    """Raise where a correlation is 1: then one view determines part of the other."""
    if bool(backend.namespace(rho).any(rho > 1 - ONE)):
        raise DegenerateError(
            "the views have no joint density: a canonical correlation is 1, one view determines "
            "part of the other. Give regularization > 0, or use more rows than features."
        )


def has_joint_density(model: Canonical) -> bool:
    """Tell whether both views together have a density."""
    whole = all(view.F.shape[0] == view.F.shape[1] for view in (model.x, model.y))
    return whole and not bool(backend.namespace(model.rho).any(model.rho > 1 - ONE))


class Closed(NamedTuple):
    """A closed-form fit, with every correlation there is."""

    model: Canonical
    correlations: Array  # (min of the ranks,)
    n: float  # effective number of rows


def fit_canonical(
    X: Array, Y: Array, q: int, weights: Array | None = None, ridge: float = 0.0
) -> Closed:
    """Fit by the singular values of one orthonormal basis of each view times the other's.

    One triangle holds both centred views; everything after is orthogonal transformations and
    divisions by singular values above rounding, so no covariance is inverted.

    Parameters
    ----------
    X, Y : arrays of shape (n, d_x) and (n, d_y)
        Complete rows.
    q : int
    weights : array of shape (n,), optional
    ridge : float
        Share of its own variance that is added to every feature's variance.

    Notes
    -----
    O(n(d_x + d_y)²). Björck & Golub (1973); Bach & Jordan (2005), Theorem 2.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[1.0], [2.0], [3.0], [4.0]])
    >>> fit_canonical(x, x**2, 1).model.rho.round(4)
    array([0.9844])
    """
    xp, d = backend.namespace(X), int(X.shape[1])
    both = Primal(
        xp.concat([backend.working(X), backend.working(Y)], axis=1), weights, standardize=True
    )
    R = both.triangle() / math.sqrt(both.n)
    if ridge > 0:
        eye = backend.asarray(np.eye(both.dim), R)
        R = algebra.triangular_factor(xp.concat([R, math.sqrt(ridge) * eye], axis=0))
    mean, unit = both.frame.mean, both.frame.scale
    offset = mean / unit
    basis_x, F_x, H_x = _whitened(R[:, :d], _rounding(R[:, :d], offset[:d], X), "X")
    basis_y, F_y, H_y = _whitened(R[:, d:], _rounding(R[:, d:], offset[d:], Y), "y")
    left, rho, right = algebra.svd(basis_x.T @ basis_y)
    rho = xp.where(rho > 1, xp.ones_like(rho), rho)
    x, y = View(0 * mean[:d], F_x, H_x, left), View(0 * mean[d:], F_y, H_y, right.T)
    model = leading(Canonical(x, y, rho), q)
    return Closed(in_units(model, mean, unit), rho, both.n)


def _rounding(R: Array, offset: Array, X: Array) -> float:
    """Return how large a singular value of R, in shares of the largest, rounding can make.

    Entries of X are right to its dtype's precision; `offset` is the mean in standard deviations.
    """
    xp = backend.namespace(R)
    varies = xp.sum(R * R, axis=0) > 0
    far = float(xp.max(xp.where(varies, xp.abs(offset), xp.zeros_like(offset))))
    own = float(xp.finfo(X.dtype).eps) * (1 + far)
    return own + 10 * math.sqrt(max(X.shape)) * float(np.finfo(np.float64).eps)


def _whitened(R: Array, least: float, name: str) -> tuple[Array, Array, Array]:
    """Return an orthonormal basis of R's columns with F and H: R = basis Fᵀ."""
    xp = backend.namespace(R)
    basis, s, Vt = algebra.svd(R)
    rank = int(xp.sum(xp.astype(s > least * s[0], s.dtype)))
    if rank == 0:
        raise DegenerateError(
            f"every feature of {name} is constant: there is nothing to correlate. "
            f"Give rows in which {name} varies."
        )
    basis, s, V = basis[:, :rank], s[:rank], Vt[:rank, :].T
    return basis, V * s, V / s


def leading(model: Canonical, q: int) -> Canonical:
    """Return the q leading correlations, signed so that x's largest weights are positive."""
    xp = backend.namespace(model.rho)
    if q > model.rho.shape[0]:
        raise ValueError(
            f"n_components must be at most {model.rho.shape[0]}, the rank of the smaller view, "
            f"got {q}. Use fewer components, or regularization > 0."
        )
    Q_x, Q_y = model.x.Q[:, :q], model.y.Q[:, :q]
    U = model.x.H @ Q_x
    along = xp.sum(U * deterministic_signs(U), axis=0)
    flip = xp.where(along < 0, -xp.ones_like(along), xp.ones_like(along))
    x, y = model.x._replace(Q=Q_x * flip), model.y._replace(Q=Q_y * flip)
    return Canonical(x, y, model.rho[:q])


def in_units(model: Canonical, origin: Array, unit: Array) -> Canonical:
    """Return the model of origin + unit·x, for a model of x; both views one after the other."""
    d = int(model.x.mu.shape[0])

    def view(part: View, m: Array, s: Array) -> View:
        return View(m + s * part.mu, part.F * s[:, None], part.H / s[:, None], part.Q)

    return Canonical(
        view(model.x, origin[:d], unit[:d]), view(model.y, origin[d:], unit[d:]), model.rho
    )


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


# --- Canonical correlation from incomplete rows: EM on the joint Gaussian of both views ----------
#
# The complete data are the views themselves, not the latent, so the M step is the closed form and
# the E step a conditional Gaussian: with nothing missing EM ends where it starts.


class Joint(NamedTuple):
    """Both views as one Gaussian, each by its Cholesky factor: Σ_xy = L_x K L_yᵀ, K of rank q."""

    mu: Array  # (d_x + d_y,)
    L_x: Array  # (d_x, d_x)
    L_y: Array  # (d_y, d_y)
    Q_x: Array  # (d_x, q)
    Q_y: Array  # (d_y, q)
    rho: Array  # (q,); K = Q_x diag(ρ) Q_yᵀ

    def covariance(self) -> Array:
        """Return the joint covariance."""
        xp = backend.namespace(self.mu)
        cross = (self.L_x @ (self.Q_x * self.rho)) @ (self.L_y @ self.Q_y).T
        top = xp.concat([self.L_x @ self.L_x.T, cross], axis=1)
        return xp.concat([top, xp.concat([cross.T, self.L_y @ self.L_y.T], axis=1)], axis=0)


class CanonicalFit:
    """The EM map on vectors θ = (μ, L_x, L_y, K), features in units of standard deviations.

    Parameters
    ----------
    X : array of shape (n, d_x + d_y)
        Both views side by side, NaN where nothing was observed.
    dx, q : int
    weights : array of shape (n,) or None
    ridge : float
        As in `dualpca.models.canonical.fit_canonical`; EM then climbs the likelihood less
        (n ridge/2) tr C⁻¹, in these units.
    """

    def __init__(
        self, X: Array, dx: int, q: int, weights: Array | None, ridge: float = 0.0
    ) -> None:
        refuse_infinite(X)
        xp, self.dx, self.q, self.ridge = backend.namespace(X), dx, q, ridge
        weights = observed_weights(X, weights)
        seen, self.origin, variance = column_starts(X, weights)
        self._refuse_columns(seen == 0, "was never observed")
        check_unit(float(xp.mean(variance)), X, self.origin)
        if ridge == 0:
            self._refuse_columns(variance == 0, "is constant where it was observed")
        self.unit = xp.sqrt(xp.where(variance > 0, variance, xp.ones_like(variance)))
        self.d, self.like = int(X.shape[1]), self.origin
        self.groups = groups((backend.working(X) - self.origin) / self.unit, weights)
        self.n = sum(float(xp.sum(g.w)) for g in self.groups)
        self.offset = float(seen @ xp.log(self.unit))
        self._refuse_unpaired()

    def _refuse_columns(self, bad: Array, why: str) -> None:
        found = np.flatnonzero(backend.to_numpy(bad))
        for name, columns in (("X", found[found < self.dx]), ("y", found[found >= self.dx])):
            if columns.size:
                first = int(columns[0]) - (self.dx if name == "y" else 0)
                raise DegenerateError(
                    f"column {first} of {name} {why}: nothing can be said of it. Drop the column, "
                    "give rows that vary in it, or (if it is constant) regularization > 0."
                )

    def _refuse_unpaired(self) -> None:
        xp, d = backend.namespace(self.like), self.dx
        for g in self.groups:
            paired = xp.any(g.mask[:, :d] > 0, axis=1) & xp.any(g.mask[:, d:] > 0, axis=1)
            if bool(xp.any(paired & (xp.sum(g.w, axis=1) > 0))):
                return
        raise DegenerateError(
            "no row observes something of both views: their correlation cannot be known. "
            "Give rows in which X and y were observed together."
        )

    def begin(self) -> Joint:
        """Start from rows filled with the mean, variances restored; nothing missing: the end."""
        S, eye = self._filled(), backend.asarray(np.eye(self.d), self.like)
        xp = backend.namespace(S)
        short = 1 - xp.linalg.diagonal(S)
        S = S + xp.where(short > 1e-12, short, 0 * short) * eye + self.ridge * eye
        return self._joint(0 * self.like, S)

    def _filled(self) -> Array:
        xp, S = backend.namespace(self.like), 0.0
        for g in self.groups:
            rows = xp.reshape(g.X, (-1, self.d))
            S = S + (rows * xp.reshape(g.w, (-1, 1))).T @ rows
        return S / self.n

    def _joint(self, mu: Array, S: Array) -> Joint:
        """Take the M step: the closed form for an expected covariance S."""
        xp, d = backend.namespace(S), self.dx
        try:
            L_x, L_y = xp.linalg.cholesky(S[:d, :d]), xp.linalg.cholesky(S[d:, d:])
        except Exception as error:
            if not backend.is_linalg_error(error):
                raise
            raise DegenerateError(NO_DENSITY) from error
        half = xp.linalg.solve(L_x, S[:d, d:])
        return self._truncated(mu, L_x, L_y, xp.linalg.solve(L_y, half.T).T)

    def _truncated(self, mu: Array, L_x: Array, L_y: Array, K: Array) -> Joint:
        left, rho, right = algebra.svd(K)
        q, rho = self.q, rho[: self.q]
        if not bool(backend.namespace(rho).all(rho < 1 - ONE)):
            raise DegenerateError(NO_DENSITY)
        return Joint(mu, L_x, L_y, left[:, :q], right[:q, :].T, rho)

    def pack(self, joint: Joint) -> Array:
        """Return θ; diagonals of the Cholesky factors by their logarithms."""
        xp = backend.namespace(joint.mu)
        K = (joint.Q_x * joint.rho) @ joint.Q_y.T
        parts = [joint.mu, _logs(joint.L_x), _logs(joint.L_y), K]
        return xp.concat([xp.reshape(p, (-1,)) for p in parts])

    def unpack(self, theta: Array) -> Joint:
        """Return the Gaussian of θ; K is cut to rank q, so every θ is a model or none."""
        xp, d, dx = backend.namespace(theta), self.d, self.dx
        dy = d - dx
        ends = np.cumsum([d, dx * dx, dy * dy])
        L_x = _unlogs(xp.reshape(theta[ends[0] : ends[1]], (dx, dx)))
        L_y = _unlogs(xp.reshape(theta[ends[1] : ends[2]], (dy, dy)))
        return self._truncated(theta[:d], L_x, L_y, xp.reshape(theta[ends[2] :], (dx, dy)))

    def step(self, theta: Array) -> tuple[Array, float]:
        """Take one EM step; return it with the (penalised) log-likelihood of θ."""
        joint = self.unpack(theta)
        mu, S, value = self._expect(joint)
        return self.pack(self._joint(mu, S)), value

    def _expect(self, joint: Joint) -> tuple[Array, Array, float]:
        """Take the E step: the mean and covariance expected of complete rows, and ln L."""
        xp, C = backend.namespace(self.like), joint.covariance()
        total, scatter, value = 0 * self.like, 0 * C, -self.offset
        for group in self.groups:
            one = self._group(group, joint.mu, C)
            total, scatter, value = total + one[0], scatter + one[1], value + one[2]
        shift = total / self.n
        S = scatter / self.n - shift[:, None] * shift[None, :]
        S = (S + S.T) / 2 + self.ridge * backend.asarray(np.eye(self.d), C)
        if self.ridge > 0:
            value -= 0.5 * self.n * self.ridge * float(xp.linalg.trace(xp.linalg.inv(C)))
        return joint.mu + shift, S, value

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
        xp, joint = backend.namespace(theta), self.unpack(theta)
        d = self.dx
        x = View(joint.mu[:d], joint.L_x, xp.linalg.inv(joint.L_x).T, joint.Q_x)
        y = View(joint.mu[d:], joint.L_y, xp.linalg.inv(joint.L_y).T, joint.Q_y)
        return in_units(leading(Canonical(x, y, joint.rho), self.q), self.origin, self.unit)


def _logs(L: Array) -> Array:
    """Return L with the logarithms of its diagonal."""
    xp = backend.namespace(L)
    eye = backend.asarray(np.eye(L.shape[0]), L)
    return L * (1 - eye) + xp.log(xp.linalg.diagonal(L)) * eye


def _unlogs(A: Array) -> Array:
    """Return the Cholesky factor of `_logs`."""
    xp = backend.namespace(A)
    eye = backend.asarray(np.eye(A.shape[0]), A)
    logs = xp.linalg.diagonal(A)
    return A * (1 - eye) + xp.exp(xp.where(logs > 50.0, 0 * logs + 50.0, logs)) * eye


def fit_canonical_incomplete(
    X: Array,
    dx: int,
    q: int,
    weights: Array | None = None,
    ridge: float = 0.0,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> tuple[Canonical, Record]:
    """Fit to rows with NaN by the exact likelihood of what was observed.

    Parameters
    ----------
    X : array of shape (n, d_x + d_y)
        Both views side by side. A view wholly missing in a row is one pattern like any other.
    dx : int
        Number of features of the first view.
    q : int
    weights : array of shape (n,), optional
    ridge : float
    tol, max_iter
        As in `dualpca.models.driver.maximize`.

    Notes
    -----
    A step costs O((d_x + d_y)³) a pattern of NaN and O((d_x + d_y)²) a row.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> X[:, 2] += X[:, 0]
    >>> X[::3, 2] = np.nan
    >>> model, record = fit_canonical_incomplete(X, 2, 1)
    >>> model.rho.round(1), record.converged
    (array([0.7]), True)
    """
    fit = CanonicalFit(X, dx, q, weights, ridge)
    theta, record = maximize(fit.step, fit.pack(fit.begin()), tol=tol, max_iter=max_iter)
    record.add(fit.step(theta)[1])
    return fit.model(theta), record


# --- What one view, or both, say of the latent, of the other view and of missing entries ---------
#
# Complete rows go through their canonical variates, which exist even where a covariance is
# singular; rows with NaN through the dense Gaussian of what they observed.


class Given(NamedTuple):
    """The rows that are given, with their Gaussian and their covariance W with the latent."""

    mu: Array  # (d,)
    C: Array  # (d, d)
    W: Array  # (d, q)
    rows: Array  # (n, d)


class Uncertain(NamedTuple):
    """Expectations, with variances or covariances where they were asked for."""

    mean: Array  # (n, k)
    spread: Array | None  # (n, k) or (n, k, k)


def incomplete(X: Array | None, Y: Array | None) -> bool:
    """Tell whether some entry of what is given is missing."""
    return any(has_missing(A) for A in (X, Y) if A is not None)


def given(model: Canonical, X: Array | None, Y: Array | None) -> Given:
    """Return what is given as one table; raise where its Gaussian is singular."""
    if X is None or Y is None:
        view, rows = (model.x, X) if Y is None else (model.y, Y)
        view.require_density()
        return Given(view.mu, view.covariance, model.loadings(view), rows)
    model.x.require_density()
    model.y.require_density()
    require_joint_density(model.rho)
    xp = backend.namespace(X)
    W = xp.concat([model.loadings(model.x), model.loadings(model.y)], axis=0)
    rows = xp.concat([backend.working(X), backend.working(Y)], axis=1)
    return Given(xp.concat([model.x.mu, model.y.mu]), model.covariance(), W, rows)


def variates(view: View, X: Array) -> Array:
    """Return the canonical variates of a view's rows, expected ones where there is NaN, (n, q)."""
    if not has_missing(X):
        return view.variates(X)
    view.require_density()
    T = backend.asarray(np.eye(view.Q.shape[1]), view.Q)
    return condition(view.mu, view.covariance, view.F @ view.Q, T, X).mean


def latent(model: Canonical, X: Array | None, Y: Array | None) -> tuple[Array, Array]:
    """Return mean (n, q) and covariance (n, q, q) of the latent given one view or both."""
    xp, q = backend.namespace(model.rho), int(model.rho.shape[0])
    eye = backend.asarray(np.eye(q), model.rho)
    if incomplete(X, Y):
        mu, C, W, rows = given(model, X, Y)
        found = condition(mu, C, W, eye, rows, "covariance")
        return found.mean, found.covariance
    u = None if X is None else model.x.variates(X)
    v = None if Y is None else model.y.variates(Y)
    mean, variance = model.posterior(u, v)
    return mean, xp.broadcast_to(variance[:, None] * eye, (mean.shape[0], q, q))


def prediction(
    model: Canonical, X: Array | None, Y: Array | None, spread: str | None = None
) -> Uncertain:
    """Return the view that is not given, from the one that is.

    E[y | x] = μ_y + W_y P^{1/2}u and cov[y | x] = Σ_yy − W_y P W_yᵀ: the uncertainty of a new
    measurement, noise included.

    Parameters
    ----------
    model : Canonical
    X, Y : array of shape (n, d) or None
        One of them.
    spread : {None, 'variance', 'covariance'}
    """
    source, target = (model.x, model.y) if Y is None else (model.y, model.x)
    rows = X if Y is None else Y
    W = model.loadings(target)
    if incomplete(X, Y):
        mu, C, V, rows = given(model, X, Y)
        found = condition(mu, C, V @ W.T, target.covariance, rows, spread)
        return Uncertain(found.mean + target.mu, _spread_of(found))
    mean, _ = model.posterior(source.variates(rows), None)
    return Uncertain(mean @ W.T + target.mu, _prediction_spread(model, target, mean, spread))


def _prediction_spread(
    model: Canonical, target: View, mean: Array, spread: str | None
) -> Array | None:
    """Return the uncertainty that all complete rows share, as a view of one."""
    if spread is None:
        return None
    xp = backend.namespace(mean)
    root = target.root_without(model.rho * model.rho)
    one = xp.sum(root * root, axis=1) if spread == "variance" else root @ root.T
    return xp.broadcast_to(one, (mean.shape[0], *one.shape))


def _spread_of(found: Conditional) -> Array | None:
    return found.variance if found.covariance is None else found.covariance


def log_density(model: Canonical, X: Array | None, Y: Array | None) -> Array:
    """Return ln p of what each row observed of the views that are given, (n,)."""
    if not incomplete(X, Y):
        return model.log_density(X, Y)
    mu, C, _, rows = given(model, X, Y)
    nothing = C[:, :0]
    return condition(mu, C, nothing, nothing[:0, :], rows).log_density


def fill(model: Canonical, X: Array, Y: Array) -> tuple[Array, Array]:
    """Return both views side by side with expectations for NaN, and the standard deviations."""
    xp = backend.namespace(X)
    mu, C, _, rows = given(model, X, Y)
    found = condition(mu, C, C, C, rows, "variance")
    unknown = xp.isnan(rows)
    std = xp.where(unknown, xp.sqrt(found.variance), xp.zeros_like(rows))
    return xp.where(unknown, found.mean + mu, rows), std


def draw(model: Canonical, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw new rows of both views, z ~ N(0, I) and noise of its own for each."""
    z = backend.normal(rng, (n, int(model.rho.shape[0])), model.rho)
    rows = []
    for view in (model.x, model.y):
        noise = backend.normal(rng, (n, int(view.F.shape[1])), model.rho)
        own = noise @ view.root_without(model.rho).T
        rows.append(view.mu + z @ model.loadings(view).T + own)
    return rows[0], rows[1]
