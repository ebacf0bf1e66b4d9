"""From a spectrum to a Gaussian: how much noise (MATH 2)."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

from dualpca import _array
from dualpca.errors import expected
from dualpca.gaussian import SpikedGaussian
from dualpca.spectrum import Spectrum

ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""Share of the trace below which left-over variance is rounding error, not noise."""

NEGLIGIBLE = 1e-6
"""Share of the trace that an excess of the noise must have to be more than lost digits."""


def left_over(trace: float, explained: float) -> float:
    """Return the variance that is not explained; 0 where only rounding error is left."""
    rest = trace - explained
    return rest if rest > ROUNDING * trace else 0.0


def maximum_likelihood(spectrum: Spectrum, n: float, q: int) -> SpikedGaussian:
    """Return the model of q directions with the noise of maximum likelihood.

    σ² = (tr − Σ_{p≤q} λ_p) / (n (r − q)) (MATH 2.2; Tipping & Bishop 1999, Eq. 8): the discarded
    spectrum is never computed. Noise 0 means that the q directions explain everything.

    Examples
    --------
    >>> import numpy as np
    >>> s = Spectrum(np.array([6.0]), np.eye(3)[:, :1], trace=10.0, dim=3)
    >>> maximum_likelihood(s, n=2, q=1).noise
    1.0
    """
    check_rank(q, spectrum)
    head = spectrum.head(q)
    explained = float(_array.namespace(head.values).sum(head.values))
    rest = spectrum.dim - q
    noise = left_over(spectrum.trace, explained) / (n * rest) if rest else 0.0
    if q and noise > float(head.values[-1]) / n:
        noise = _rounded_down(noise, float(head.values[-1]) / n, spectrum, n)
    return SpikedGaussian(head.values / n, noise, spectrum.dim)


def _rounded_down(noise: float, smallest: float, spectrum: Spectrum, n: float) -> float:
    """Return ℓ_q in place of a noise that exceeds it by error; refuse what is no error.

    The error is the solver's, or rounding: a centred kernel has lost digits of its own, since
    centring subtracts squared norms. Only an excess that is a real share of the variance says
    that the space is too small for the operator.
    """
    error = spectrum.error + NEGLIGIBLE
    if noise - smallest > 1e-3 * smallest + error * spectrum.trace / n:
        raise ValueError(
            f"the noise of maximum likelihood, {noise:.6g}, exceeds the smallest variance kept, "
            f"{smallest:.6g}: dim={spectrum.dim} is below the rank of the operator. Raise dim."
        )
    return smallest


def given_noise(spectrum: Spectrum, n: float, noise: float, q: int | None = None) -> SpikedGaussian:
    """Return the model of noise σ²; q is the number of ℓ_p > σ² unless it is given (S0, Eq. 6).

    Examples
    --------
    >>> import numpy as np
    >>> s = Spectrum(np.array([6.0, 3.0, 1.0]), np.eye(3), trace=10.0, dim=3)
    >>> given_noise(s, n=1, noise=2.0).rank
    2
    """
    check_noise(noise)
    values = spectrum.values / n
    above = int(_array.to_numpy(values > noise).sum())
    largest = float(values[0]) if spectrum.rank else 0.0
    if above == 0:
        raise ValueError(
            expected("noise_variance", f"below the largest variance {largest:.6g}", noise)
        )
    if q is not None and q > above:
        raise ValueError(
            f"only {above} directions have a variance above noise_variance={noise:.6g}, but "
            f"{q} components were asked for. Lower one of the two."
        )
    return SpikedGaussian(values[: above if q is None else q], noise, spectrum.dim)


def check_noise(noise: Any) -> None:
    """Refuse a noise variance that is not a positive number."""
    real = isinstance(noise, Real) and not isinstance(noise, bool)
    if not real or not (math.isfinite(noise) and noise > 0):
        raise ValueError(expected("noise_variance", "a positive number or None", noise))


def check_rank(q: int, spectrum: Spectrum) -> None:
    """Refuse more directions than the spectrum holds or the space has."""
    if not 0 <= q <= min(spectrum.rank, spectrum.dim):
        limit = min(spectrum.rank, spectrum.dim)
        raise ValueError(expected("the number of components", f"between 0 and {limit}", q))
