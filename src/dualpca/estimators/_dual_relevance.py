"""Kernel Bayesian PCA: how many components, by automatic relevance on the spectrum (MATH 5)."""

from __future__ import annotations

from dualpca.arrays import Array, backend
from dualpca.errors import DegenerateError
from dualpca.gaussian import SpikedGaussian, fit_relevance, loglikelihood
from dualpca.models.driver import Record
from dualpca.operators import Spectrum


def fit_relevant(
    spectrum: Spectrum, n: float, noise: float | None
) -> tuple[Spectrum, SpikedGaussian, Record, Array]:
    """Return the directions that are relevant, their Gaussian, its record, and every 1/α.

    Variances are u + σ², a little below ℓ: the prior on W shrinks them.
    """
    start = spectrum.head(_most(spectrum) if noise is None else spectrum.rank)
    found = fit_relevance(start, n, noise)
    if not found.kept.any():
        raise DegenerateError(
            "no direction is relevant beside the noise: the kernel shows no structure. Give "
            "n_components as a number, or a smaller noise_variance."
        )
    q = int(found.kept.sum())  # they are the leading ones: relevance falls with the variance
    gaussian = found.gaussian(spectrum.dim, spectrum.values)
    record = Record([loglikelihood(start, n, found)], max(found.n_iter, 1), True)
    relevance = backend.asarray(found.u / spectrum.dim, spectrum.values)
    return spectrum.head(q), gaussian, record, relevance


def _most(spectrum: Spectrum) -> int:
    """Return the largest number of directions that leaves one for noise, of all with variance.

    What is left beyond the last of them is rounding error, and no measure of noise.
    """
    return max(min(spectrum.rank, spectrum.dim) - 1, 1)
