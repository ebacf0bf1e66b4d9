"""How a trial is judged: numbers comparable across kernels, larger is better (theory 13)."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import orth

from dualpca.arrays import Array, backend
from dualpca.errors import DegenerateError, expected
from dualpca.gaussian import maximum_likelihood
from dualpca.kernels import Kernel
from dualpca.operators import Dual, Gram, Spectrum
from dualpca.solvers import solve


def q2(X: Array, back: Array, mean: Array) -> float:
    """Return 1 − Σ‖x − x̂‖²/Σ‖x − μ‖², the share of the variance that is reconstructed.

    1 for all, 0 for what the training mean alone gives, below 0 for worse than that.

    Parameters
    ----------
    X : array of shape (m, d)
        Held-out rows.
    back : array of shape (m, d)
        Their reconstructions.
    mean : array of shape (d,)
        Of the training rows.

    Examples
    --------
    >>> import numpy as np
    >>> q2(np.array([[1.0], [-1.0]]), np.array([[0.5], [-0.5]]), np.zeros(1))
    0.75
    """
    back = np.asarray(back, dtype=np.float64)
    left, total = float(np.sum((X - back) ** 2)), float(np.sum((X - mean) ** 2))
    if total == 0:
        raise DegenerateError("held-out rows equal the training mean: there is nothing to explain.")
    return 1 - left / total


def agreement(Y: Array, Z: Array) -> float:
    """Return how far two sets of q latents of the same rows span the same space, beyond chance.

    a = tr(P_Y P_Z)/q, the mean squared canonical correlation, with P the projectors on the
    centred columns; unrelated latents of m rows have a = c = q/(m − 1) on average, so the answer is
    (a − c)/(1 − c): 1 for the same space, 0 on average for chance. It is at least −c/(1 − c).
    Latents may be turned, stretched or flipped.

    Parameters
    ----------
    Y, Z : arrays of shape (m, q)
        q below m − 1. Columns without variance count as not agreeing.

    Examples
    --------
    >>> import numpy as np
    >>> Y = np.random.default_rng(0).normal(size=(20, 2))
    >>> round(agreement(Y, Y @ [[1.0, 2.0], [0.0, -3.0]]), 12)
    1.0
    """
    m, q = Y.shape
    if q >= m - 1:
        what = f"more than n_components + 1 = {q + 1} held-out rows"
        raise ValueError(expected("stability", what, m, "Use fewer components or fewer folds."))
    chance = q / (m - 1)
    shared = float(np.sum((_basis(Y).T @ _basis(Z)) ** 2)) / q
    return float((shared - chance) / (1 - chance))


def _basis(Z: Array) -> Array:
    """Return an orthonormal basis of the centred columns, (m, rank)."""
    Z = Z - Z.mean(axis=0)
    size = np.linalg.norm(Z, axis=0)
    return orth(Z / np.where(size > 0, size, 1.0), rcond=1e-10)


def normalised_likelihood(X: Array, kernel: Kernel, q: int) -> float:
    """Return the likelihood of probabilistic kernel PCA per feature dimension and row, tr Kc = n.

    L/n = −½{Σ_{p≤q} ln ℓ_p + (n − q) ln σ² + n}/n with ℓ = λ/tr Kc and σ² = (1 − Σℓ)/(n − q)
    (theory 9 at its maximum): multiplying a kernel by a constant changes nothing.

    Two kernels are two feature spaces, and densities in different spaces cannot be compared: use
    it to choose the parameters of one family. It grows as the spectrum concentrates, and with q.

    Parameters
    ----------
    X : array of shape (n, d)
    kernel : Kernel
    q : int
        Below n.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> a, b = (normalised_likelihood(X, c * RBF(), 2) for c in (1.0, 7.0))
    >>> bool(abs(a - b) < 1e-10)
    True
    """
    n = int(X.shape[0])
    if q >= n:
        raise ValueError(expected("n_components", f"below the number of rows, {n}", q))
    operator = Dual(Gram(X, kernel))
    total = float(operator.trace)
    if not (math.isfinite(total) and total > operator.eps * operator.total):
        raise DegenerateError("the centred kernel has no variance, or it overflows.")
    found = solve(operator, q)
    values = found.values / total
    model = maximum_likelihood(Spectrum(values, found.vectors, 1.0, n), 1.0, q)
    if not model.noise > 0 or float(backend.to_numpy(values).min()) <= 0:
        raise DegenerateError(
            f"{q} components explain everything: the likelihood has no bound. Use fewer."
        )
    return -0.5 * (float(model.log_determinant()) + n) / n
