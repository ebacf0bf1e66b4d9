"""What kernel models take: rows, sparse rows, items of any kind, or a kernel matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.estimators._uncertain import is_incomplete, takes_nan
from dualpca.estimators._validation import check_rows
from dualpca.kernels import Kernel
from dualpca.kernels.choose import make_kernel
from dualpca.kernels.objects import Function, Precomputed
from dualpca.moments import refuse_nonfinite

ASYMMETRY = 1e-8
"""Largest |K − Kᵀ| that counts as rounding, relative to the largest entry."""


def is_precomputed(kernel: Any) -> bool:
    """Tell whether X is to be a kernel matrix."""
    return isinstance(kernel, Precomputed) or (isinstance(kernel, str) and kernel == "precomputed")


def check_points(
    model: Any, X: Any, *, reset: bool, min_rows: int = 2, allow_nan: bool = False
) -> Array:
    """Return the points as a model's kernel can see them; never modified, checked to be finite.

    NaN is let through where `allow_nan` says so and the kernel can take its expectation.
    """
    allow_nan = allow_nan and takes_nan(model.kernel)
    if _are_items(model.kernel, X):
        return _items(X)
    X = check_rows(model, X, reset=reset, min_rows=min_rows if reset else 1, accept_sparse=True)
    X = X.tocsr() if _array.is_sparse(X) else X
    if not (allow_nan and is_incomplete(X)):
        refuse_nonfinite(X)
    return X


def _are_items(kernel: Any, X: Any) -> bool:
    """Tell whether X holds strings, graphs or the like, for a function of two of them."""
    function = isinstance(kernel, Function) or (callable(kernel) and not isinstance(kernel, Kernel))
    if not function or hasattr(X, "iloc") or _array.is_foreign(X) or _array.is_sparse(X):
        return False
    if isinstance(X, np.ndarray):
        return X.ndim == 1 and X.dtype.kind in "OUS"
    return len(X) > 0 and not isinstance(X[0], list | tuple | np.ndarray | int | float)


def _items(X: Any) -> Array:
    """Return items as a one-dimensional array of objects."""
    if len(X) < 1:
        raise ValueError(expected("X", "at least one item", X))
    found = np.empty(len(X), dtype=object)
    for i, item in enumerate(X):
        found[i] = item
    return found


def new_points(model: Any, X: Any, method: str, *, allow_nan: bool = False) -> Array:
    """Check points that a fitted model is asked about."""
    check_is_fitted(model)
    X = check_points(model, X, reset=False, allow_nan=allow_nan)
    _array.require_same_home(X, model.eigenvalues_, f"{type(model).__name__}.{method}")
    return X


def kernel_of(model: Any, X: Array) -> Kernel:
    """Return the kernel that the parameters mean, with numbers found from X in place of words."""
    kernel, params = model.kernel, dict(model.kernel_params or {})
    if isinstance(kernel, str):
        gamma = model.gamma
        if gamma is None and X.ndim == 2:
            gamma = 1.0 / int(X.shape[1])
        params = {"gamma": gamma, "degree": model.degree, "coef0": model.coef0, **params}
    found = make_kernel(kernel, **params)
    if _array.is_sparse(X) and not found.sparse and not isinstance(found, Precomputed):
        what = "one that takes sparse rows (linear, polynomial, sigmoid, rbf, matern)"
        raise ValueError(expected("kernel", what, found, "Or give X.toarray()."))
    return found if X.ndim == 1 or isinstance(found, Precomputed) else found.resolve(X)


def check_kernel_matrix(K: Array) -> Array:
    """Return a square kernel matrix that is symmetric, at least once it is centred."""
    n, xp = int(K.shape[0]), _array.namespace(K)
    if K.shape[1] != n:
        what = "a square kernel matrix, (n, n), with kernel='precomputed'"
        raise ValueError(expected("X", what, tuple(K.shape)))
    gap = K - K.T
    size = float(xp.max(xp.abs(K)))
    if float(xp.max(xp.abs(gap))) <= ASYMMETRY * size:
        return K
    means = xp.mean(gap, axis=0)
    if float(xp.max(xp.abs(gap - means[None, :] + means[:, None]))) > ASYMMETRY * size:
        i, j = np.unravel_index(int(xp.argmax(xp.abs(gap))), (n, n))
        raise ValueError(
            f"X must be a symmetric kernel matrix, got X[{i}, {j}] = {float(K[i, j]):g} and "
            f"X[{j}, {i}] = {float(K[j, i]):g}. "
            "If they should be equal, give (X + X.T) / 2."
        )
    return (K + K.T) / 2  # asymmetric by row and column constants, which centring removes
