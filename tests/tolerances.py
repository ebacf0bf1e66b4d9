"""The one table of tolerances: every numerical comparison in the tests reads it.

Errors of eigenvalues, covariances and projections are measured against the largest eigenvalue (or
the largest entry), because that is all a backward-stable method promises; log-densities against
their own size.
"""

import numpy as np

TABLE = {
    # what: (float64, float32)
    # the same operations in another place: another backend, another memory layout
    "exact": (1e-14, 1e-6),
    # a few hundred roundings, relative to the largest eigenvalue
    "eigenvalue": (1e-12, 5e-6),
    # V^T V against the identity
    "orthonormal": (1e-11, 2e-5),
    # |A v - lambda v| / lambda_1: the square root of what an eigenvalue promises
    "residual": (1e-7, 1e-3),
    # entries of C relative to its largest
    "covariance": (1e-10, 2e-5),
    # eigenvectors and projections: rounding divided by the relative gap
    "vector": (1e-8, 2e-3),
    # log-densities, relative to their size: rounding times ell_1 / sigma2
    "density": (1e-8, 2e-3),
    # how far rounding alone may let a likelihood fall, relative to its size
    "monotone": (1e-12, 1e-5),
    # EM at convergence against the closed form
    "em": (1e-8, 1e-3),
    # data 1e6 standard deviations from the origin: ten digits of them are left
    "offset": (1e-7, 1e-1),
}


def tolerance(what, dtype=np.float64):
    """Return the tolerance of ``what`` for results computed in ``dtype``."""
    double, single = TABLE[what]
    return single if np.dtype(dtype) == np.float32 else double


def assert_close(actual, desired, what, dtype=np.float64, *, scale=None):
    """Assert ``|actual - desired| <= tolerance * scale``, by default the largest ``|desired|``."""
    actual, desired = np.asarray(actual, dtype=float), np.asarray(desired, dtype=float)
    assert actual.shape == desired.shape, f"shape {actual.shape}, expected {desired.shape}"
    assert np.all(np.isfinite(actual)), "the outcome holds NaN or infinity"
    if scale is None:
        scale = np.max(np.abs(desired), initial=0.0)
    atol = tolerance(what, dtype) * scale + np.finfo(float).tiny
    np.testing.assert_allclose(actual, desired, rtol=0.0, atol=atol)


def assert_log_density(actual, desired, dim, dtype=np.float64):
    """Assert equality of log-densities of points in ``dim`` dimensions."""
    scale = np.max(np.abs(np.asarray(desired)), initial=0.0) + dim
    assert_close(actual, desired, "density", dtype, scale=scale)
