"""Twin kernel PCA: a kernel over the points, explained by a kernel over latent coordinates.

K ~ W_n(ρ, Σ/ρ) with Σ = a k(Z, Z) + σ²I, maximised over Z, a and σ² (S3, section 5.2). This is the
objective of the Gaussian process latent variable model (Lawrence 2004): its ρ outputs are the
feature dimensions and K = YYᵀ, so nothing but the kernel is needed of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from dualpca.arrays import Array, backend
from dualpca.kernels import Kernel
from dualpca.models.driver import Record
from dualpca.operators import Spectrum

FAINT = 1e-2
"""Standard deviation of coordinates that have no direction to start from."""

LEAST_NOISE, MOST_GAIN = 1e-6, 1e4
"""Bounds of σ² and a, as shares of the average variance: a flexible Σ could lose all noise."""


@dataclass(frozen=True)
class Twin:
    """Σ = a k(Z, Z) + σ²I over latent coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> Twin(np.zeros((2, 1)), RBF(), 1.0, 0.5).covariance()
    array([[1.5, 1. ], [1. , 1.5]])
    """

    Z: Array  # (n, q)
    kernel: Kernel
    gain: float
    noise: float

    def covariance(self) -> Array:
        """Return Σ, (n, n)."""
        eye = backend.identity(int(self.Z.shape[0]), self.Z)
        return self.gain * self.kernel(self.Z, self.Z) + self.noise * eye

    def loglikelihood(self, S: Array) -> float:
        """Return −½{ln|Σ| + tr(Σ⁻¹S)}, per feature dimension and without its constant."""
        return self.derivatives(S)[0]

    def derivatives(self, S: Array) -> tuple[float, Array, float, float]:
        """Return the log-likelihood and its derivatives by Z (n, q), ln a and ln σ²; O(n³).

        ∂/∂Σ = −½(Σ⁻¹ − Σ⁻¹SΣ⁻¹), led to the coordinates by the kernel's own gradient.

        Parameters
        ----------
        S : array of shape (n, n)
            Scatter of a feature dimension: YYᵀ/ρ, or K itself where K ~ W_n(ρ, Σ/ρ).
        """
        xp, Sigma = backend.namespace(S), self.covariance()
        P = xp.linalg.inv(Sigma)
        P = (P + P.T) / 2
        PS = P @ S
        logdet = float(xp.linalg.slogdet(Sigma).logabsdet)
        value = -0.5 * (logdet + float(xp.linalg.trace(PS)))
        G = -0.5 * (P - PS @ P)
        trace = float(xp.linalg.trace(G))
        by_Z = self.kernel.pull(self.Z, self.Z, 2 * self.gain * G)
        by_gain = float(xp.sum(G * Sigma)) - self.noise * trace
        return value, by_Z, by_gain, self.noise * trace


def start_coordinates(spectrum: Spectrum, rng: np.random.Generator) -> Array:
    """Return the leading eigenvectors, the first with variance 1; noise in place of empty ones.

    A column of zeros would stay one: by symmetry its gradient is 0.
    """
    xp, n = backend.namespace(spectrum.values), int(spectrum.vectors.shape[0])
    share = spectrum.values / spectrum.values[0]
    noise = FAINT * backend.normal(rng, tuple(spectrum.vectors.shape), spectrum.vectors)
    return xp.where(share > FAINT**2, spectrum.vectors * xp.sqrt(n * share), noise)


def fit_twin(
    S: Array, kernel: Kernel, Z: Array, tol: float = 1e-5, max_iter: int = 1000
) -> tuple[Twin, Record]:
    """Maximise the likelihood over coordinates, gain and noise by L-BFGS.

    Parameters
    ----------
    S : array of shape (n, n)
    kernel : Kernel
        Of the latent coordinates, with its parameters fixed: Z takes its scale.
    Z : array of shape (n, q)
        Start; signal and noise begin with half of the average variance each.
    tol : float
        Largest component of the gradient of the log-likelihood, by Z, ln a and ln σ², at which to
        stop, in units of n.
    max_iter : int

    Notes
    -----
    O(n³) a step. The likelihood has many maxima: this is the one that the start leads to. It never
    falls. σ² stays above 1e-6 of the average variance, where a flexible Σ would lose it all.
    """
    cost, record, n = Cost(S, kernel, tuple(Z.shape)), Record(), int(S.shape[0])
    average = float(backend.namespace(S).linalg.trace(S)) / n
    first = backend.to_numpy(Z).reshape(-1)
    theta = np.concatenate([first, [math.log(average / 2)] * 2])
    limits = (math.log(LEAST_NOISE * average), math.log(MOST_GAIN * average))
    bounds = [(None, None)] * first.size + [limits] * 2
    record.add(-n * cost(theta)[0])
    found = optimize.minimize(
        cost,
        theta,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        callback=lambda intermediate_result: record.add(-n * float(intermediate_result.fun)),
        options={"maxiter": max_iter, "maxfun": 2 * max_iter, "gtol": tol, "ftol": 0.0},
    )
    record.n_iter = int(found.nit)
    record.converged = bool(np.max(np.abs(_projected(found, bounds))) <= tol)
    return cost.model(found.x), record


class Cost:
    """−1/n times the log-likelihood as a function of (Z, ln a, ln σ²), one vector on the host."""

    def __init__(self, S: Array, kernel: Kernel, shape: tuple[int, int]) -> None:
        self.S, self.kernel, self.shape = S, kernel, shape

    def model(self, theta: np.ndarray[Any, Any]) -> Twin:
        """Return the model of these parameters."""
        Z = backend.asarray(theta[:-2].reshape(self.shape), self.S)
        return Twin(Z, self.kernel, math.exp(theta[-2]), math.exp(theta[-1]))

    def __call__(self, theta: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        """Return value and gradient."""
        value, by_Z, by_gain, by_noise = self.model(theta).derivatives(self.S)
        slope = np.concatenate([backend.to_numpy(by_Z).reshape(-1), [by_gain, by_noise]])
        return -value / self.shape[0], -slope / self.shape[0]


def _projected(found: Any, bounds: list[Any]) -> np.ndarray[Any, Any]:
    """Return the gradient without what points out of the bounds."""
    low = np.array([-np.inf if b[0] is None else b[0] for b in bounds])
    high = np.array([np.inf if b[1] is None else b[1] for b in bounds])
    return np.asarray(found.x - np.clip(found.x - found.jac, low, high))


class TwinPlacement:
    """Where a new point goes: the z that makes its features most likely given the training points'.

    Given z its feature dimensions are N(αᵀg, v), with α = Σ⁻¹σ(z), σ(z) = a k(Z, z) and
    v = a k(z, z) + σ² − σ(z)ᵀα, so z minimises ½ ln v + ½ r/v with r = s − 2αᵀk + αᵀSα: kernel
    values k of the new point and its squared norm s are all that is needed.

    Parameters
    ----------
    model : Twin
    S : array of shape (n, n)
    """

    def __init__(self, model: Twin, S: Array) -> None:
        self.model, self.S = model, S
        self.P = backend.namespace(S).linalg.inv(model.covariance())

    def cost(self, z: Array, k: Array, s: float) -> tuple[float, Array]:
        """Return ½ ln v + ½ r/v and its gradient, (q,), for one point; O(n²)."""
        Z, kernel, a = self.model.Z, self.model.kernel, self.model.gain
        z = z[None, :]
        sigma = a * kernel(z, Z)[0, :]
        alpha = self.P @ sigma
        fitted = self.S @ alpha
        v = a * float(kernel.diag(z)[0]) + self.model.noise - float(sigma @ alpha)
        v = max(v, self.model.noise)
        r = max(s - 2 * float(alpha @ k) + float(alpha @ fitted), 0.0)
        by_v = a * kernel.diag_gradient(z)[0, :] - 2 * a * kernel.pull(z, Z, alpha[None, :])[0, :]
        by_r = 2 * a * kernel.pull(z, Z, (self.P @ (fitted - k))[None, :])[0, :]
        slope = 0.5 * (1 - r / v) * (by_v / v) + 0.5 * (by_r / v)
        return 0.5 * (math.log(v) + r / v), slope

    def place(self, k: Array, s: float) -> Array:
        """Return the coordinate of a point, (q,), by L-BFGS from that of its nearest neighbour."""
        xp = backend.namespace(k)
        nearest = int(xp.argmin(xp.linalg.diagonal(self.S) - 2 * k))

        def both(z: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
            value, slope = self.cost(backend.asarray(z, k), k, s)
            return value, backend.to_numpy(slope)

        start = backend.to_numpy(self.model.Z[nearest, :])
        found = optimize.minimize(both, start, jac=True, method="L-BFGS-B")
        return backend.asarray(found.x, k)
