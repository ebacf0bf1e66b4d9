"""Probabilistic canonical correlation: two views of one latent (Bach & Jordan 2005)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from dualpca import _algebra, _array
from dualpca._typing import Array
from dualpca.errors import DegenerateError
from dualpca.gaussian import LOG_2PI
from dualpca.representations import Primal
from dualpca.spectrum import deterministic_signs

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
        return (_array.working(X) - self.mu) @ self.H

    def variates(self, X: Array) -> Array:
        """Return u = Uᵀ(x − μ) of every row, (n, q), each of variance 1."""
        return (_array.working(X) - self.mu) @ self.directions

    def root_without(self, share: Array) -> Array:
        """Return F(I − Q diag(share) Qᵀ)^{1/2}, (d, r), whole even where a share is 1.

        Times its transpose it is the noise Ψ for shares ρ, and cov[x | y] for shares ρ².
        """
        xp, left = _array.namespace(share), 1 - share
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
        xp, d = _array.namespace(white), int(self.F.shape[0])
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
        return view.F @ (view.Q * _array.namespace(self.rho).sqrt(self.rho))

    def noise(self, view: View) -> Array:
        """Return Ψ = Σ − WWᵀ, (d, d)."""
        root = view.root_without(self.rho)
        return root @ root.T

    def covariance(self) -> Array:
        """Return the joint covariance, (d_x + d_y, d_x + d_y); its off-diagonal has rank q."""
        xp = _array.namespace(self.rho)
        cross = self.loadings(self.x) @ self.loadings(self.y).T
        top = xp.concat([self.x.covariance, cross], axis=1)
        return xp.concat([top, xp.concat([cross.T, self.y.covariance], axis=1)], axis=0)

    def posterior(self, u: Array | None, v: Array | None) -> tuple[Array, Array]:
        """Return mean (n, q) and variance (q,) of z given canonical variates of either or both.

        √ρ u and 1 − ρ from one view; √ρ(u + v)/(1 + ρ) and (1 − ρ)/(1 + ρ) from both.
        """
        xp, one = _array.namespace(self.rho), 1 - self.rho
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
        xp, left = _array.namespace(self.rho), (1 - self.rho) * (1 + self.rho)
        u, v = a @ self.x.Q, b @ self.y.Q
        off = u - self.rho * v
        change = float(xp.sum(xp.log(left))) + xp.sum(off * off / left - u * u, axis=1)
        return self.x.log_density(a) + self.y.log_density(b) - 0.5 * change


def require_joint_density(rho: Array) -> None:
    """Raise where a correlation is 1: then one view determines part of the other."""
    if bool(_array.namespace(rho).any(rho > 1 - ONE)):
        raise DegenerateError(
            "the views have no joint density: a canonical correlation is 1, one view determines "
            "part of the other. Give regularization > 0, or use more rows than features."
        )


def has_joint_density(model: Canonical) -> bool:
    """Tell whether both views together have a density."""
    whole = all(view.F.shape[0] == view.F.shape[1] for view in (model.x, model.y))
    return whole and not bool(_array.namespace(model.rho).any(model.rho > 1 - ONE))


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
    xp, d = _array.namespace(X), int(X.shape[1])
    both = Primal(
        xp.concat([_array.working(X), _array.working(Y)], axis=1), weights, standardize=True
    )
    R = both.triangle() / math.sqrt(both.n)
    if ridge > 0:
        eye = _array.asarray(np.eye(both.dim), R)
        R = _algebra.triangular_factor(xp.concat([R, math.sqrt(ridge) * eye], axis=0))
    mean, unit = both.frame.mean, both.frame.scale
    offset = mean / unit
    basis_x, F_x, H_x = _whitened(R[:, :d], _rounding(R[:, :d], offset[:d], X), "X")
    basis_y, F_y, H_y = _whitened(R[:, d:], _rounding(R[:, d:], offset[d:], Y), "y")
    left, rho, right = _algebra.svd(basis_x.T @ basis_y)
    rho = xp.where(rho > 1, xp.ones_like(rho), rho)
    x, y = View(0 * mean[:d], F_x, H_x, left), View(0 * mean[d:], F_y, H_y, right.T)
    model = leading(Canonical(x, y, rho), q)
    return Closed(in_units(model, mean, unit), rho, both.n)


def _rounding(R: Array, offset: Array, X: Array) -> float:
    """Return how large a singular value of R, in shares of the largest, rounding can make.

    Entries of X are right to its dtype's precision; `offset` is the mean in standard deviations.
    """
    xp = _array.namespace(R)
    varies = xp.sum(R * R, axis=0) > 0
    far = float(xp.max(xp.where(varies, xp.abs(offset), xp.zeros_like(offset))))
    own = float(xp.finfo(X.dtype).eps) * (1 + far)
    return own + 10 * math.sqrt(max(X.shape)) * float(np.finfo(np.float64).eps)


def _whitened(R: Array, least: float, name: str) -> tuple[Array, Array, Array]:
    """Return an orthonormal basis of R's columns with F and H: R = basis Fᵀ."""
    xp = _array.namespace(R)
    basis, s, Vt = _algebra.svd(R)
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
    xp = _array.namespace(model.rho)
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
    squares = np.minimum(_array.to_numpy(rho) ** 2, 1.0)
    with np.errstate(divide="ignore"):
        tails = np.cumsum(np.log1p(-squares)[::-1])[::-1]
    k = np.arange(squares.size)
    factor = n - 1 - (dx + dy + 1) / 2
    return np.asarray(stats.chi2.sf(-factor * tails, (dx - k) * (dy - k)))
