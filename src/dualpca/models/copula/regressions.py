"""A column as a smooth function of the others: Gaussian processes of complete rows (theory 15.2).

What one Gaussian behind monotone margins cannot follow, such as sums of columns as they are,
clusters and curves, a Gaussian process can: its kernel is linear in numbers as they are, linear in
coordinates, and radial in coordinates with a rate of its own for every column. Where a training row
has been completed, what was put there is not the truth: that counts as noise of the row, as much as
its target says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from scipy import linalg, optimize

from dualpca.arrays import Array
from dualpca.data import Host

TUNED_ROWS, TUNING_STEPS = 250, 30
"""Rows by which rates and noise are found, of more, and steps of quasi-Newton."""

SPREAD_OF_LOGS = 1.5
"""Standard deviation of the logarithm of a rate before anything is known."""

LOWEST_LOG, HIGHEST_LOG = -8.0, 4.0
"""How far the logarithm of a rate may go from where it begins."""

EXPECTED_EXTRA = 0.3
"""Standard deviation of the noise of a row for a completed column before anything is known."""

LEAST_LEFT = 1e-3
"""Smallest standard deviation of noise, in that of the target."""


class Features(NamedTuple):
    """What a regression sees of complete rows: numbers as they are, and coordinates."""

    raw: Host  # (n, r), in standard deviations
    coordinates: Host  # (n, c): of columns with an order, then indicators of levels
    raw_of: Host  # (r,), the column of the table that each is of
    coordinates_of: Host  # (c,)

    def take(self, rows: Host) -> Features:
        """Return some of the rows."""
        return self._replace(raw=self.raw[rows], coordinates=self.coordinates[rows])

    def without(self, column: int) -> Features:
        """Return all but what is of one column."""
        a, b = self.raw_of != column, self.coordinates_of != column
        return Features(
            self.raw[:, a], self.coordinates[:, b], self.raw_of[a], self.coordinates_of[b]
        )


@dataclass(frozen=True)
class Rates:
    """A kernel, a² x·x' + b² u·u' + c² exp(−½ Σ_g ρ_g² ‖u_g − u'_g‖²), and the noise σ² + Σ_g τ_g².

    x are numbers as they are, u_g the coordinates of column g; τ_g counts where a training row has
    a value of g that a model has put there.

    Parameters
    ----------
    raw, linear, radial, noise : float
        a, b, c and σ.
    by_column : array of shape (d,)
        ρ of every column of the table; 0 for columns that the regression does not see.
    extra : array of shape (d,)
        τ of every column; 0 for these, too.
    """

    raw: Annotated[float, ">= 0"]
    linear: Annotated[float, ">= 0"]
    radial: Annotated[float, ">= 0"]
    noise: Annotated[float, "> 0"]
    by_column: Annotated[Array, "d", ">= 0"]
    extra: Annotated[Array, "d", ">= 0"]

    def variances(self, noises: Host, filled: Host) -> Host:
        """Return the variance of the noise of training rows, (n,).

        Parameters
        ----------
        noises : array of shape (n,)
            Variance of each row's noise, relative to that of a row of weight 1.
        filled : array of bool, shape (n, d)
            Which entries a model has put there.
        """
        return np.asarray(noises * (self.noise**2 + filled @ np.asarray(self.extra) ** 2))

    def kernel(self, A: Features, B: Features) -> Host:
        """Return the kernel of two sets of rows, (n, m)."""
        rate = np.asarray(self.by_column)[A.coordinates_of]
        K = np.exp(-0.5 * squared_distances(A.coordinates * rate, B.coordinates * rate))
        K *= self.radial**2
        K += self.linear**2 * (A.coordinates @ B.coordinates.T)
        K += self.raw**2 * (A.raw @ B.raw.T)
        return np.asarray(K)

    def diagonal(self, A: Features) -> Host:
        """Return the kernel of every row with itself, (n,)."""
        linear = self.linear**2 * (A.coordinates**2).sum(axis=1)
        return np.asarray(linear + self.raw**2 * (A.raw**2).sum(axis=1) + self.radial**2)


def squared_distances(A: Host, B: Host) -> Host:
    """Return squared distances between rows, (n, m)."""
    found = (A * A).sum(axis=1)[:, None] + (B * B).sum(axis=1) - 2.0 * (A @ B.T)
    return np.asarray(np.maximum(found, 0.0))


def found_rates(features: Features, Y: Host, noises: Host, filled: Host) -> Rates:
    """Return the rates of largest posterior density.

    Parameters
    ----------
    features : Features
        Of n rows.
    Y : array of shape (n, k)
        Targets, which share the kernel, of mean about 0 and size about 1.
    noises : array of shape (n,)
        Variance of each row's noise, relative to that of a row of weight 1.
    filled : array of bool, shape (n, d)
        Which entries of the table a model has put there.

    Notes
    -----
    O(n³ + n²d) per step; the logarithms of rates have normal laws before anything is known.
    """
    (n, k), columns = Y.shape, np.unique(features.coordinates_of)
    some = columns[filled[:, columns].any(axis=0)]
    gaps = filled[:, some].astype(np.float64)
    raw, linear = (A @ A.T for A in (features.raw, features.coordinates))
    groups = [features.coordinates[:, features.coordinates_of == j] for j in columns]
    apart = np.array([squared_distances(A, A).ravel() for A in groups]).reshape(columns.size, n * n)
    sizes = [max(A.shape[1], 1) for A in (features.raw, features.coordinates)]
    first = np.sqrt([0.25 / sizes[0], 0.25 / sizes[1], 0.25, 0.36])
    rates = np.full(columns.size, 0.5 / math.sqrt(max(columns.size, 1)))
    start = np.log(np.concatenate([first, rates, np.full(some.size, EXPECTED_EXTRA)]))

    def loss(theta: Host) -> tuple[float, Host]:
        a2, b2, c2, noise2, *others = np.exp(2.0 * theta)
        rho2, tau2 = np.split(np.array(others), [columns.size])
        R = c2 * np.exp(-0.5 * (rho2 @ apart)).reshape(n, n)
        K = a2 * raw + b2 * linear + R
        K[np.diag_indices(n)] += (noise2 + LEAST_LEFT**2 + gaps @ tau2) * noises
        L = linalg.cholesky(K, lower=True, overwrite_a=True, check_finite=False)
        inverse = linalg.lapack.dpotri(L, lower=1)[0]
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        alpha = inverse @ Y
        M = k * inverse - alpha @ alpha.T
        by_radial = M * R
        slope = [a2 * (M * raw).sum(), b2 * (M * linear).sum(), by_radial.sum()]
        by_noise = np.diagonal(M) * noises
        slope += [noise2 * by_noise.sum(), *(-0.5 * rho2 * (apart @ by_radial.ravel()))]
        slope += [*(tau2 * (by_noise @ gaps))]
        off = (theta - start) / SPREAD_OF_LOGS
        value = 0.5 * (Y * alpha).sum() + k * np.log(np.diagonal(L)).sum() + 0.5 * off @ off
        return float(value), np.array(slope) + off / SPREAD_OF_LOGS

    found = optimize.minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(at + LOWEST_LOG, at + HIGHEST_LOG) for at in start],
        options={"maxiter": TUNING_STEPS},
    )
    a, b, c, noise, *others = np.exp(found.x)
    by_column, extra = np.zeros((2, filled.shape[1]))
    by_column[columns], extra[columns] = others[: columns.size], EXPECTED_EXTRA
    extra[some] = others[columns.size :]
    return Rates(float(a), float(b), float(c), math.hypot(noise, LEAST_LEFT), by_column, extra)


def regressed(
    rates: Rates, features: Features, Y: Host, variances: Host, at: Features
) -> tuple[Host, Host]:
    """Return means (m, k) and the variance (m,), noise included, of targets at other rows.

    `variances` are those of the noise of training rows, (n,). O(n³ + n²m).
    """
    K = rates.kernel(features, features)
    K[np.diag_indices_from(K)] += variances
    L = linalg.cholesky(K, lower=True, overwrite_a=True, check_finite=False)
    half = linalg.solve_triangular(L, rates.kernel(features, at), lower=True, check_finite=False)
    mean = half.T @ linalg.solve_triangular(L, Y, lower=True, check_finite=False)
    variance = np.maximum(rates.diagonal(at) - (half * half).sum(axis=0), 0.0)
    return mean, variance + rates.noise**2
