"""Limits for new rows, frozen at fit: what T² and SPE may be if a row is like the others.

Both statistics are compared with an F distribution that knows how many rows the model was fitted
to, so that limits are wider for small tables; with many rows they become χ² limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dualpca import _array
from dualpca._typing import Array
from dualpca.spectrum import Spectrum

Floats = NDArray[np.float64]

PROBES = 8
"""Random vectors that measure the residual spectrum where it cannot be had by subtraction.

Eight find Σℓ² within 8 % for spectra from flat to k^(-1/2), within 25 % for 1/k; SPE limits move by
about a fifth of that.
"""

LOST = 1e-12
"""Share of a sum below which a difference of two such sums has lost most of its digits."""


@dataclass(frozen=True)
class Reference:
    """What limits need to know of the training rows, and no other fitted attribute says.

    Parameters
    ----------
    n : float
        Effective number of rows: the sum of the weights; with missing values, the observed
        entries over the number of features.
    divisor : float
        Of the model's variances: n, or n − 1.
    dof : float, optional
        Effective number of residual directions, (Σℓ)²/Σℓ² over the discarded variances. None: as
        many as there are, which is what equal variances give.
    """

    n: float
    divisor: float
    dof: float | None = None


class Law(NamedTuple):
    """statistic / scale ~ F(dfn, dfd), row by row."""

    scale: Floats  # (n,)
    dfn: Floats  # (n,)
    dfd: Floats  # (n,)

    def limit(self, level: float) -> Floats:
        """Return the values that a share `level` of rows stays below, (n,).

        0 where there is nothing to measure, infinity where the training rows leave nothing to
        judge by (as many components as rows).
        """
        usual = self.scale * special.fdtri(*self._degrees, level)
        return np.where(self.dfn <= 0, 0.0, np.where(self.dfd <= 0, np.inf, usual))

    def pvalue(self, statistic: Floats) -> Floats:
        """Return the share of ordinary rows with a larger statistic, (n,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(statistic > 0, statistic / self.scale, 0.0)
        tail = np.where(
            np.isinf(ratio), 0.0, special.fdtrc(*self._degrees, np.minimum(ratio, 1e300))
        )
        return np.where((self.dfn > 0) & (self.dfd > 0), tail, 1.0)

    @property
    def _degrees(self) -> tuple[Floats, Floats]:
        """Degrees of freedom, with 1 where there are none: those rows are not judged by F."""
        judged = (self.dfn > 0) & (self.dfd > 0)
        return np.where(judged, self.dfn, 1.0), np.where(judged, self.dfd, 1.0)


def t2_law(reference: Reference, k: Floats) -> Law:
    """Return the law of T² in k latent dimensions for a row that was not fitted to.

    T² ~ k (n² − 1)/(n (n − k)) F_{k, n−k} for variances with divisor n − 1 (Hotelling 1931;
    Jackson 1991), and n/(n − 1) times that for divisor n. Axes count as known.
    """
    n, left = reference.n, reference.n - k
    scale = reference.divisor * k * (n + 1) / (n * np.maximum(left, 1e-300))
    return Law(scale, k, left)


def spe_law(reference: Reference, mean: Floats, dof: Floats, k: Floats) -> Law:
    """Return the law of SPE for a row that was not fitted to.

    SPE ~ mean/dof χ²_dof (Box 1954), with an F in place of χ² since the mean is estimated from
    (n − 1 − k)·dof squares. The axes fit their own rows too well and new ones too little: training
    residuals are smaller by (n − 1 − k)/divisor, new ones larger by (1 + 1/n)(1 + k/n).

    Parameters
    ----------
    reference : Reference
    mean : array of shape (n,)
        Expected SPE, as the fit says.
    dof : array of shape (n,)
        Effective number of residual directions.
    k : array of shape (n,)
        Number of directions that were fitted.
    """
    n, left = reference.n, reference.n - 1 - k
    grown = reference.divisor / np.maximum(left, 1e-300) * (1 + 1 / n) * (1 + k / n)
    return Law(mean * grown, dof, dof * left)


def residual_dof(operator: Any, spectrum: Spectrum, n: float) -> float:
    """Return (Σℓ)²/Σℓ² over the discarded variances, without computing them.

    Σλ² of all is ‖A‖²_F, which direct solvers know and block Krylov extrapolates if a product
    with A is dear; that of the discarded ones is the difference, or else (or where the difference
    is lost) a mean over random probes. An excess of θ₁²/ν that sampling adds to Σℓ² is taken off
    (Srivastava 2005), ν = n − 1 − q.

    Parameters
    ----------
    operator : Operator
        A, the scatter of the training rows.
    spectrum : Spectrum
        Its q leading eigenpairs.
    n : float
        Effective number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.representations import Primal
    >>> from dualpca.solvers import solve
    >>> X = np.random.default_rng(0).normal(size=(5000, 4)) * [9.0, 2.0, 2.0, 1.0]
    >>> A = Primal(X)
    >>> round(residual_dof(A, solve(A, 1), 5000), 1)  # (4 + 4 + 1)² / (16 + 16 + 1) = 2.45
    2.5
    """
    rest, nu = spectrum.dim - spectrum.rank, n - 1 - spectrum.rank
    if rest == 0 or not spectrum.trace > 0 or nu <= 1:
        return float(rest)
    p = spectrum.values / spectrum.trace  # shares of the variance: their squares cannot overflow
    first = 1 - float(_array.namespace(p).sum(p))
    if not first > LOST:
        return float(rest)
    second = _residual_squares(operator, spectrum, p, first)
    second = (second - first * first / nu) * nu * nu / ((nu - 1) * (nu + 2))
    return float(np.clip(first * first / max(second, 1e-300), 1.0, rest))


def _residual_squares(operator: Any, spectrum: Spectrum, p: Array, first: float) -> float:
    """Return Σp² over the discarded shares."""
    everything = spectrum.concentration
    kept = float(_array.namespace(p).sum(p * p))
    if everything is not None and everything - kept > LOST * everything:
        return everything - kept
    return _probed_squares(operator, spectrum, first)


def _probed_squares(operator: Any, spectrum: Spectrum, first: float) -> float:
    """Return tr R² of A/tr A off the eigenvectors: Hutchinson's estimate, scaled by the known tr R.

    E gᵀR²g = tr R² and E gᵀRg = tr R for g ~ N(0, I); their errors go together, and for a flat
    spectrum cancel. One product of A with `PROBES` vectors.
    """
    V = spectrum.vectors
    xp = _array.namespace(V)
    G = _array.normal(np.random.default_rng(0), (int(V.shape[0]), PROBES), V)
    G = G - V @ (V.T @ G)
    R = (operator @ G) / spectrum.trace
    R = R - V @ (V.T @ R)
    return first * float(xp.sum(R * R)) / float(xp.sum(G * R))
