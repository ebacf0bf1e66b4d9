"""Canonical correlation from incomplete rows: EM on the joint Gaussian of both views.

The complete data are the views themselves, not the latent, so the M step is the closed form and
the E step a conditional Gaussian: with nothing missing EM ends where it starts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualpca import _algebra, _array
from dualpca._typing import Array
from dualpca.canonical import ONE, Canonical, View, in_units, leading
from dualpca.conditioning import NO_DENSITY, Group, densities, groups, whiteners
from dualpca.em import Record, maximize
from dualpca.errors import DegenerateError
from dualpca.holes import column_starts, observed_weights, refuse_infinite
from dualpca.incomplete_em import check_unit


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
        xp = _array.namespace(self.mu)
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
        As in `dualpca.canonical.fit_canonical`; EM then climbs the likelihood less
        (n ridge/2) tr C⁻¹, in these units.
    """

    def __init__(
        self, X: Array, dx: int, q: int, weights: Array | None, ridge: float = 0.0
    ) -> None:
        refuse_infinite(X)
        xp, self.dx, self.q, self.ridge = _array.namespace(X), dx, q, ridge
        weights = observed_weights(X, weights)
        seen, self.origin, variance = column_starts(X, weights)
        self._refuse_columns(seen == 0, "was never observed")
        check_unit(float(xp.mean(variance)), X, self.origin)
        if ridge == 0:
            self._refuse_columns(variance == 0, "is constant where it was observed")
        self.unit = xp.sqrt(xp.where(variance > 0, variance, xp.ones_like(variance)))
        self.d, self.like = int(X.shape[1]), self.origin
        self.groups = groups((_array.working(X) - self.origin) / self.unit, weights)
        self.n = sum(float(xp.sum(g.w)) for g in self.groups)
        self.offset = float(seen @ xp.log(self.unit))
        self._refuse_unpaired()

    def _refuse_columns(self, bad: Array, why: str) -> None:
        found = np.flatnonzero(_array.to_numpy(bad))
        for name, columns in (("X", found[found < self.dx]), ("y", found[found >= self.dx])):
            if columns.size:
                first = int(columns[0]) - (self.dx if name == "y" else 0)
                raise DegenerateError(
                    f"column {first} of {name} {why}: nothing can be said of it. Drop the column, "
                    "give rows that vary in it, or (if it is constant) regularization > 0."
                )

    def _refuse_unpaired(self) -> None:
        xp, d = _array.namespace(self.like), self.dx
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
        S, eye = self._filled(), _array.asarray(np.eye(self.d), self.like)
        xp = _array.namespace(S)
        short = 1 - xp.linalg.diagonal(S)
        S = S + xp.where(short > 1e-12, short, 0 * short) * eye + self.ridge * eye
        return self._joint(0 * self.like, S)

    def _filled(self) -> Array:
        xp, S = _array.namespace(self.like), 0.0
        for g in self.groups:
            rows = xp.reshape(g.X, (-1, self.d))
            S = S + (rows * xp.reshape(g.w, (-1, 1))).T @ rows
        return S / self.n

    def _joint(self, mu: Array, S: Array) -> Joint:
        """Take the M step: the closed form for an expected covariance S."""
        xp, d = _array.namespace(S), self.dx
        try:
            L_x, L_y = xp.linalg.cholesky(S[:d, :d]), xp.linalg.cholesky(S[d:, d:])
        except Exception as error:
            if not _array.is_linalg_error(error):
                raise
            raise DegenerateError(NO_DENSITY) from error
        half = xp.linalg.solve(L_x, S[:d, d:])
        return self._truncated(mu, L_x, L_y, xp.linalg.solve(L_y, half.T).T)

    def _truncated(self, mu: Array, L_x: Array, L_y: Array, K: Array) -> Joint:
        left, rho, right = _algebra.svd(K)
        q, rho = self.q, rho[: self.q]
        if not bool(_array.namespace(rho).all(rho < 1 - ONE)):
            raise DegenerateError(NO_DENSITY)
        return Joint(mu, L_x, L_y, left[:, :q], right[:q, :].T, rho)

    def pack(self, joint: Joint) -> Array:
        """Return θ; diagonals of the Cholesky factors by their logarithms."""
        xp = _array.namespace(joint.mu)
        K = (joint.Q_x * joint.rho) @ joint.Q_y.T
        parts = [joint.mu, _logs(joint.L_x), _logs(joint.L_y), K]
        return xp.concat([xp.reshape(p, (-1,)) for p in parts])

    def unpack(self, theta: Array) -> Joint:
        """Return the Gaussian of θ; K is cut to rank q, so every θ is a model or none."""
        xp, d, dx = _array.namespace(theta), self.d, self.dx
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
        xp, C = _array.namespace(self.like), joint.covariance()
        total, scatter, value = 0 * self.like, 0 * C, -self.offset
        for group in self.groups:
            one = self._group(group, joint.mu, C)
            total, scatter, value = total + one[0], scatter + one[1], value + one[2]
        shift = total / self.n
        S = scatter / self.n - shift[:, None] * shift[None, :]
        S = (S + S.T) / 2 + self.ridge * _array.asarray(np.eye(self.d), C)
        if self.ridge > 0:
            value -= 0.5 * self.n * self.ridge * float(xp.linalg.trace(xp.linalg.inv(C)))
        return joint.mu + shift, S, value

    def _group(self, group: Group, mu: Array, C: Array) -> tuple[Array, Array, float]:
        """Return Σ E[r], Σ E[rrᵀ] and Σ ln p of a group's rows, r around μ."""
        xp, J = _array.namespace(C), whiteners(C, group.mask)
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
        xp, joint = _array.namespace(theta), self.unpack(theta)
        d = self.dx
        x = View(joint.mu[:d], joint.L_x, xp.linalg.inv(joint.L_x).T, joint.Q_x)
        y = View(joint.mu[d:], joint.L_y, xp.linalg.inv(joint.L_y).T, joint.Q_y)
        return in_units(leading(Canonical(x, y, joint.rho), self.q), self.origin, self.unit)


def _logs(L: Array) -> Array:
    """Return L with the logarithms of its diagonal."""
    xp = _array.namespace(L)
    eye = _array.asarray(np.eye(L.shape[0]), L)
    return L * (1 - eye) + xp.log(xp.linalg.diagonal(L)) * eye


def _unlogs(A: Array) -> Array:
    """Return the Cholesky factor of `_logs`."""
    xp = _array.namespace(A)
    eye = _array.asarray(np.eye(A.shape[0]), A)
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
        As in `dualpca.em.maximize`.

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
