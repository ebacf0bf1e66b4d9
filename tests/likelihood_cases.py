"""Fits by EM and the rounding of a likelihood, for tests."""

import numpy as np

from tests.tolerances import tolerance

NEAR = (0.0, 1.0)  # means, in standard deviations: rounding counts in units of the data, not of Xc


def rounding_of_likelihood(ell, n, q):
    """Return what rounding does to the difference of two n/2 (tr S - tr M^-1 W^T S W) / sigma2.

    The solve with M costs cond(M) = ell_1 / ell_q units of the last place of tr S; checked with
    fifty digits: at the maximum the exact differences are 1e-19 where these are 3e-8.
    """
    sigma2 = np.mean(ell[q:])
    return 4 * np.finfo(float).eps * n / 2 * (np.sum(ell) / sigma2) * (ell[0] / ell[q - 1])


def assert_never_falls(values, size, rounding=0.0):
    """Assert that a trace of likelihoods climbs, up to the error of evaluating one of them."""
    values = np.asarray(values, dtype=float)
    assert np.all(np.isfinite(values))
    fall = -np.diff(values)
    slack = max(tolerance("monotone") * (np.max(np.abs(values)) + size), rounding)
    assert np.all(fall <= slack), (
        f"the likelihood fell by {fall.max():.2e} at step {fall.argmax() + 1}"
    )
