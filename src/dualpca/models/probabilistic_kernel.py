"""Probabilistic kernel PCA: feature dimensions as observations; principal coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.errors import NonFiniteError, expected
from dualpca.gaussian import LOG_2PI, SpikedGaussian
from dualpca.kernels import Precomputed
from dualpca.operators import Dual, Frame, Spectrum, Subspace, deterministic_signs

# --- From distances to kernels: principal coordinates, and what to do if they are not Euclidean --

ASYMMETRY = 1e-8
"""Largest |D − Dᵀ|, and diagonal, that counts as rounding, relative to the largest entry."""

SAME = 1e-12
"""Share of the largest distance of an item below which another is the same item."""

CORRECTIONS = ("lingoes", "cailliez")


@dataclass(frozen=True)
class Correction:
    """A constant that makes distances Euclidean.

    Parameters
    ----------
    kind : {None, 'lingoes', 'cailliez'}
        d' = √(d² + 2c) or d' = d + c for different items; None leaves them as they are.
    constant : float
        c ≥ 0; 0 where the distances are Euclidean already.

    Examples
    --------
    >>> import numpy as np
    >>> D = np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 1.0], [3.0, 1.0, 0.0]])  # 3 > 1 + 1
    >>> Correction.of(D, "cailliez").constant
    1.0
    """

    kind: str | None = None
    constant: float = 0.0

    @classmethod
    def of(cls, D: Array, kind: str | None) -> Correction:
        """Return the smallest constant of this kind that makes D Euclidean; O(n³)."""
        if kind is None:
            return cls()
        if kind not in CORRECTIONS:
            raise ValueError(expected("correction", f"None or one of {list(CORRECTIONS)}", kind))
        host = backend.to_numpy(backend.working(D))
        found = lingoes_constant(host) if kind == "lingoes" else cailliez_constant(host)
        return cls(kind, found)

    def kernel(self, D: Array) -> Array:
        """Return −½d'² with d' the corrected distances, (m, n): a kernel, once it is centred.

        Parameters
        ----------
        D : array of shape (m, n)
            Distances of m items from the n training items. An item at distance 0 is that training
            item, which keeps it; of k such training items it is each with probability 1/k.
            Zero is what is below 1e-12 of the largest.
        """
        D = backend.working(D)
        if self.constant == 0:
            return -0.5 * D * D
        xp = backend.namespace(D)
        same = xp.astype(D <= SAME * xp.max(D, axis=1)[:, None], xp.float64)
        ties = xp.sum(same, axis=1)[:, None]
        share = same / xp.where(ties > 0, ties, xp.ones_like(ties))
        return -0.5 * self._squares(D) * (1 - share)

    def training_kernel(self, D: Array) -> Array:
        """Return −½d'² between the training items, (n, n): all but the diagonal is corrected."""
        D = backend.working(D)
        if self.constant == 0:
            return -0.5 * D * D
        return -0.5 * self._squares(D) * (1 - backend.identity(int(D.shape[0]), D))

    def _squares(self, D: Array) -> Array:
        """Return d'² of different items."""
        return D * D + 2 * self.constant if self.kind == "lingoes" else (D + self.constant) ** 2


def lingoes_constant(D: np.ndarray[Any, Any]) -> float:
    """Return c = −λ_min(−½ H D² H), at least 0: with √(d² + 2c) every eigenvalue rises by c.

    Lingoes (1971), Some boundary conditions for a monotone analysis of symmetric matrices.
    """
    return _beyond_rounding(-np.linalg.eigvalsh(_centred(-0.5 * D * D))[0], D * D)


def cailliez_constant(D: np.ndarray[Any, Any]) -> float:
    """Return the smallest c ≥ 0 for which d + c is Euclidean.

    The largest real eigenvalue of [[0, 2A], [−I, −4B]] with A = −½ H D² H and B = −½ H D H
    (Cailliez 1983, The analytical solution of the additive constant problem). O((2n)³).
    """
    A, B = _centred(-0.5 * D * D), _centred(-0.5 * D)
    if _beyond_rounding(-np.linalg.eigvalsh(A)[0], D * D) == 0:
        return 0.0
    zero, one = np.zeros_like(A), np.eye(len(A))
    values = np.linalg.eigvals(np.block([[zero, 2 * A], [-one, -4 * B]]))
    real = values.real[np.abs(values.imag) <= 1e-8 * np.abs(values).max()]
    return max(float(real.max()), 0.0)


def _centred(A: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    means = A.mean(axis=0)
    return np.asarray(A - means[None, :] - means[:, None] + means.mean())


def _beyond_rounding(excess: float, squares: np.ndarray[Any, Any]) -> float:
    """Return a negative eigenvalue's size, 0 where it is a rounding error."""
    n = len(squares)
    rounding = 10 * n * float(np.finfo(np.float64).eps) * float(squares.max(initial=0.0))
    return float(excess) if excess > rounding else 0.0


def check_distances(D: Array) -> Array:
    """Return a matrix of distances between the training items: square, symmetric, from 0."""
    xp, n = backend.namespace(D), int(D.shape[0])
    if D.shape[1] != n:
        what = "a square matrix of distances, (n, n), with metric='precomputed'"
        raise ValueError(expected("X", what, tuple(D.shape)))
    check_new_distances(D)
    slack = ASYMMETRY * float(xp.max(D))
    i, j = _largest(xp.abs(D - D.T))
    if abs(float(D[i, j]) - float(D[j, i])) > slack:
        raise ValueError(
            f"X must be a symmetric matrix of distances, got X[{i}, {j}] = {float(D[i, j]):g} and "
            f"X[{j}, {i}] = {float(D[j, i]):g}. If they should be equal, give (X + X.T) / 2."
        )
    i = int(xp.argmax(xp.linalg.diagonal(D)))
    if float(D[i, i]) > slack:
        raise ValueError(
            f"X must have zeros on its diagonal, got X[{i}, {i}] = {float(D[i, i]):g}. "
            "Similarities are no distances: give them with kernel='precomputed'."
        )
    return D


def check_new_distances(D: Array) -> None:
    """Refuse distances that are negative or not finite."""
    xp = backend.namespace(D)
    if not bool(xp.all(xp.isfinite(D))):
        raise NonFiniteError("X must hold finite distances, got NaN or infinity. Drop those items.")
    if D.shape[0] and float(xp.min(D)) < 0:
        i, j = _largest(-D)
        raise ValueError(
            "Negative values in data passed to a model of distances: "
            + expected("X", "from 0", float(D[i, j]), "For kernels, kernel='precomputed'.")
        )


def _largest(A: Array) -> tuple[int, int]:
    """Return row and column of the largest entry."""
    return divmod(int(backend.namespace(A).argmax(A)), int(A.shape[1]))


# --- Feature dimensions as observations: g = Bw + u1 + ε over the n points (S3; MATH 9) ----------
#
# Column j of the (n, ρ) matrix of features is one observation of an n-vector, with w ~ N(0, n/ρ I)
# and ε ~ N(0, n/ρ diag ψ). Their scatter is the centred kernel, so ρ cancels: what is fitted is
# C = BBᵀ + diag ψ to Kc/n, and row i of B is the coordinate of point i.

ROUNDING = 1e-9
"""Of the numbers that a noise is the difference of: one less negative than this is 0."""


class FeatureScatter(Dual):
    """The centred kernel as the scatter of feature dimensions, whose means u are taken out."""

    @property
    def frame(self) -> Frame:
        """The origin: 0."""
        return Frame(backend.asarray(np.zeros(self.shape[0]), self.like))


class Placed(NamedTuple):
    """Where points are, and what is left of them."""

    coordinates: Array  # (m, q)
    noise: Array  # (m,)


@dataclass(frozen=True)
class Placement:
    """How a point gets its coordinate: b(x) = Pᵀkc(x).

    The M step of EM is a regression of every row of features on the latents w (S3, Eq. 16). A new
    point is one more row: b(x) = ⟨WWᵀ⟩⁻¹⟨W⟩(f(x) − f̄), with ⟨W⟩ and ⟨WWᵀ⟩ = nG as the training
    points left them. Under a flat prior for b this regression has the posterior
    N(b(x), ψ(x)/ρ · G⁻¹), where nψ(x) = ‖f(x) − f̄‖² − n b(x)ᵀG b(x), the noise that is the point's
    own, is what the M step would give it (Eq. 17). At the maximum G = I, and the noises of the
    training points have the mean σ².

    Parameters
    ----------
    weights : array of shape (n, q)
        P = βᵀG⁻¹/n with β = (I + BᵀΨ⁻¹B)⁻¹BᵀΨ⁻¹.
    moment : array of shape (q, q)
        G = ⟨WWᵀ⟩/n = (I + BᵀΨ⁻¹B)⁻¹ + βKcβᵀ/n.
    """

    weights: Array  # (n, q)
    moment: Array  # (q, q)

    @classmethod
    def of_spectrum(cls, spectrum: Spectrum, gaussian: SpikedGaussian, n: float) -> Placement:
        """Return b(x) = (Λ − σ²)^{1/2}(nΛ)⁻¹Uᵀkc(x): the maximum in closed form (MATH 9.1)."""
        weights = spectrum.vectors * (gaussian.spread / (n * gaussian.values))
        return cls(weights, backend.identity(gaussian.rank, weights))

    @classmethod
    def of_factors(cls, operator: Dual, B: Array, psi: Array) -> Placement:
        """Return the regression that one EM step from (B, ψ) makes; one product with the kernel."""
        xp, n = backend.namespace(B), operator.n
        scaled = B / psi[:, None]
        inverse = xp.linalg.inv(B.T @ scaled + backend.identity(int(B.shape[1]), B))
        beta = scaled @ inverse  # (n, q), βᵀ
        moment = inverse + beta.T @ (operator @ beta) / n
        moment = (moment + moment.T) / 2
        return cls(xp.linalg.solve(moment, beta.T).T / n, moment)

    def subspace(self, source: Dual) -> Subspace:
        """Return P as an expansion over the points, centred with the training means."""
        one = backend.asarray(np.ones(self.weights.shape[1]), self.weights)
        span = source.subspace(Spectrum(one, self.weights, source.trace, source.dim))
        if isinstance(span.kernel, Precomputed):  # its n×n points say no more than their number
            span = replace(span, points=backend.empty((source.shape[0], 0), one))
        return span

    def place(
        self, over: Subspace, X: Array, n: float, diagonal: Array | None = None, usual: float = 0.0
    ) -> Placed:
        """Return b(x) and the point's own noise ψ(x), never negative.

        Parameters
        ----------
        over : Subspace
            What `subspace` returned.
        X : array of shape (m, d)
        n : float
        diagonal : array of shape (m,), optional
            k(x, x), for kernels that cannot tell.
        usual : float
            The noise of points whose own comes out negative beyond rounding, as it can where
            distances are not Euclidean: it would claim to know their places exactly.
        """
        xp = backend.namespace(over.base)
        both = over.kernel_times(X, xp.concat([over.coefficients, over.base[:, None]], axis=1))
        b = both[:, :-1] - over.tilt
        if diagonal is None:
            diagonal = backend.working(over.kernel.diag(backend.points(X)))
        squares = diagonal - 2 * both[:, -1] + over.offset
        known = xp.sum((b @ self.moment) * b, axis=1)
        noise = squares / n - known
        size = (xp.abs(diagonal) + xp.abs(over.offset + 0 * diagonal)) / n + known
        instead = xp.where(noise < -ROUNDING * size, usual + 0 * noise, 0 * noise)
        return Placed(b, xp.where(noise < 0, instead, noise))

    def covariance(self, noise: Array, rho: float) -> Array:
        """Return ψ(x)/ρ · G⁻¹, (m, q, q)."""
        xp = backend.namespace(noise)
        return noise[:, None, None] / rho * xp.linalg.inv(self.moment)[None, :, :]


def principal(B: Array, psi: Array | None = None) -> tuple[Array, Array]:
    """Rotate coordinates to principal axes; return them and their squared lengths, largest first.

    BᵀΨ⁻¹B becomes diagonal (Ψ = I unless given) and signs are deterministic.
    """
    xp = backend.namespace(B)
    root = 1.0 if psi is None else xp.sqrt(psi)[:, None]
    U, s, _ = algebra.svd(B / root)
    turned = deterministic_signs((U * s) * root)
    return turned, s * s


def per_dimension(value: float, n: float, order: int, rho: float | None) -> float:
    """Return the log-likelihood per feature dimension, −½{ln|C| + tr(C⁻¹Kc)/n} (MATH 9).

    With a feature dimension ρ the constant −(n/2) ln(2πn/ρ) is added: then ρ times the result is
    the log-density of all features.

    Parameters
    ----------
    value : float
        −n/2 {n ln 2π + ln|C| + tr(C⁻¹Kc)/n}, as EM and `SpikedGaussian` count it.
    n : float
    order : int
        Number of points.
    rho : float, optional

    Examples
    --------
    >>> round(per_dimension(-4 * 1.8378770664093453, 4, 2, None), 12)  # C = 0·Kc = I₂: only ln 2π
    0.0
    """
    constant = 0.0 if rho is None else -0.5 * order * (LOG_2PI + math.log(n / rho))
    return value / n + 0.5 * order * LOG_2PI + constant
