"""Feature dimensions as observations: g = Bw + u1 + ε over the n points (S3; MATH 9).

Column j of the (n, ρ) matrix of features is one observation of an n-vector, with w ~ N(0, n/ρ I)
and ε ~ N(0, n/ρ diag ψ). Their scatter is the centred kernel, so ρ cancels: what is fitted is
C = BBᵀ + diag ψ to Kc/n, and row i of B is the coordinate of point i.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dualpca import _algebra, _array
from dualpca._typing import Array
from dualpca.gaussian import LOG_2PI, SpikedGaussian
from dualpca.kernels import Precomputed
from dualpca.representations import Dual
from dualpca.rows import Frame
from dualpca.spectrum import Spectrum, deterministic_signs
from dualpca.subspace import Subspace

ROUNDING = 1e-9
"""Of the numbers that a noise is the difference of: one less negative than this is 0."""


class FeatureScatter(Dual):
    """The centred kernel as the scatter of feature dimensions, whose means u are taken out."""

    @property
    def frame(self) -> Frame:
        """The origin: 0."""
        return Frame(_array.asarray(np.zeros(self.shape[0]), self.like))


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
        return cls(weights, _array.identity(gaussian.rank, weights))

    @classmethod
    def of_factors(cls, operator: Dual, B: Array, psi: Array) -> Placement:
        """Return the regression that one EM step from (B, ψ) makes; one product with the kernel."""
        xp, n = _array.namespace(B), operator.n
        scaled = B / psi[:, None]
        inverse = xp.linalg.inv(B.T @ scaled + _array.identity(int(B.shape[1]), B))
        beta = scaled @ inverse  # (n, q), βᵀ
        moment = inverse + beta.T @ (operator @ beta) / n
        moment = (moment + moment.T) / 2
        return cls(xp.linalg.solve(moment, beta.T).T / n, moment)

    def subspace(self, source: Dual) -> Subspace:
        """Return P as an expansion over the points, centred with the training means."""
        one = _array.asarray(np.ones(self.weights.shape[1]), self.weights)
        span = source.subspace(Spectrum(one, self.weights, source.trace, source.dim))
        if isinstance(span.kernel, Precomputed):  # its n×n points say no more than their number
            span = replace(span, points=_array.empty((source.shape[0], 0), one))
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
        xp = _array.namespace(over.base)
        both = over.kernel_times(X, xp.concat([over.coefficients, over.base[:, None]], axis=1))
        b = both[:, :-1] - over.tilt
        if diagonal is None:
            diagonal = _array.working(over.kernel.diag(_array.points(X)))
        squares = diagonal - 2 * both[:, -1] + over.offset
        known = xp.sum((b @ self.moment) * b, axis=1)
        noise = squares / n - known
        size = (xp.abs(diagonal) + xp.abs(over.offset + 0 * diagonal)) / n + known
        instead = xp.where(noise < -ROUNDING * size, usual + 0 * noise, 0 * noise)
        return Placed(b, xp.where(noise < 0, instead, noise))

    def covariance(self, noise: Array, rho: float) -> Array:
        """Return ψ(x)/ρ · G⁻¹, (m, q, q)."""
        xp = _array.namespace(noise)
        return noise[:, None, None] / rho * xp.linalg.inv(self.moment)[None, :, :]


def principal(B: Array, psi: Array | None = None) -> tuple[Array, Array]:
    """Rotate coordinates to principal axes; return them and their squared lengths, largest first.

    BᵀΨ⁻¹B becomes diagonal (Ψ = I unless given) and signs are deterministic.
    """
    xp = _array.namespace(B)
    root = 1.0 if psi is None else xp.sqrt(psi)[:, None]
    U, s, _ = _algebra.svd(B / root)
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
