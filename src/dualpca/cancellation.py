"""What centring takes away: the digits of a kernel whose values hardly differ."""

from __future__ import annotations

import math

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca._warnings import warn
from dualpca.errors import SolverWarning

EPS = float(np.finfo(np.float64).eps)

SMALLEST_SHARE = 5e-11
"""Of the size of a kernel, that centring may leave: five digits for exact solvers. Landmarks lose
directions below 1e-12."""


def warn_of_cancellation(X: Array, total: float, trace: float) -> None:
    """Warn where centring leaves little but rounding errors, although rows differ.

    Kernel values carry errors of ε·Σk(x, x), and tr Kc is all that is left of them: xᵀy of rows
    far from the origin, or an RBF far wider than the data, loses digits that nothing brings back.
    Rows that are all the same have nothing to lose.

    Parameters
    ----------
    X : array of shape (n, d), or (n,) for items, of which nothing is said
    total : float
        Σk(x, x).
    trace : float
        tr Kc, what is left of it.

    Examples
    --------
    >>> import numpy as np, warnings
    >>> X = np.array([[1e8], [1e8 + 1]])
    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     warn_of_cancellation(X, total=2e16, trace=0.5)
    >>> len(found)
    1
    """
    if trace >= SMALLEST_SHARE * total or X.ndim != 2 or not _rows_differ(X):
        return
    share = trace / total
    left = max(int(-math.log10(EPS / share)), 0) if share > EPS else 0
    warn(
        f"centring leaves {max(share, 0.0):.1g} of the size of the kernel, and {left} of its 16 "
        "digits: coordinates and variances are no more accurate than that. Subtract the mean of X "
        "first, or take a kernel that tells these rows apart (a larger gamma).",
        SolverWarning,
    )


def _rows_differ(X: Array) -> bool:
    if _array.is_sparse(X):
        return bool(abs(X - X[[0] * X.shape[0]]).sum() > 0)
    return bool(_array.namespace(X).any(X != X[:1, :]))
