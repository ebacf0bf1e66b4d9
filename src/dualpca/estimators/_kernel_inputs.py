"""What kernel models take: rows, sparse rows, items of any kind, or a kernel matrix."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array, backend
from dualpca.data import refuse_nonfinite
from dualpca.errors import expected
from dualpca.estimators._base import check_rows
from dualpca.estimators._uncertain import is_incomplete, takes_nan
from dualpca.kernels import (
    ALIASES,
    KERNELS,
    Function,
    Kernel,
    Precomputed,
    is_gaussian_process_kernel,
    make_kernel,
)

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
    if not reset:
        _require_same_kind(model, X)
    if _are_items(model.kernel, X):
        if reset:
            vars(model).pop("n_features_in_", None)
            vars(model).pop("feature_names_in_", None)
        return _items(X, min_rows if reset else 1)
    if is_precomputed(model.kernel) and backend.is_sparse(X):
        raise ValueError(expected("X", "a dense kernel matrix", type(X), "Give X.toarray()."))
    X = check_rows(model, X, reset=reset, min_rows=min_rows if reset else 1, accept_sparse=True)
    X = X.tocsr() if backend.is_sparse(X) else X
    if not (allow_nan and is_incomplete(X)):
        refuse_nonfinite(X)
    return X


def _are_items(kernel: Any, X: Any) -> bool:
    """Tell whether X holds strings, graphs or the like, for a function of two of them."""
    if not _is_function(kernel) or backend.is_foreign(X) or backend.is_sparse(X):
        return False
    if hasattr(X, "shape"):  # an array, a table or a column of one
        return len(X.shape) == 1 and np.asarray(X).dtype.kind in "OUST"
    if not hasattr(X, "__getitem__") or isinstance(X, str | bytes | Mapping) or len(X) == 0:
        return False
    return not isinstance(X[0], list | tuple | np.ndarray | Real)


def _is_function(kernel: Any) -> bool:
    """Tell whether a kernel is a function of two items."""
    if isinstance(kernel, Kernel) or is_gaussian_process_kernel(kernel):
        return isinstance(kernel, Function)
    return callable(kernel)


def _require_same_kind(model: Any, X: Any) -> None:
    """Refuse items after a fit on rows, and rows after a fit on items."""
    if _are_items(model.kernel, X) and "n_features_in_" in vars(model):
        raise ValueError(expected("X", "rows of numbers, as in fit", type(X)))
    if not _are_items(model.kernel, X) and "n_features_in_" not in vars(model):
        raise ValueError(expected("X", "a list of items, as in fit", type(X)))


def _items(X: Any, least: int) -> Array:
    """Return items as a one-dimensional array of objects."""
    if len(X) < least:
        raise ValueError(expected("X", f"at least {least} items", X))
    found = np.empty(len(X), dtype=object)
    for i, item in enumerate(X):
        found[i] = item
    return found


def new_points(model: Any, X: Any, method: str, *, allow_nan: bool = False) -> Array:
    """Check points that a fitted model is asked about."""
    check_is_fitted(model)
    X = _as_in_fit(model, check_points(model, X, reset=False, allow_nan=allow_nan))
    backend.require_same_home(X, model.eigenvalues_, f"{type(model).__name__}.{method}")
    return X


def _as_in_fit(model: Any, X: Array) -> Array:
    """Return sparse rows where the model was fitted on sparse rows, dense ones elsewhere."""
    if backend.is_sparse(model.X_fit_) == backend.is_sparse(X) or X.ndim == 1:
        return X
    return type(model.X_fit_)(X) if backend.is_sparse(model.X_fit_) else X.toarray()


def takes_sparse(kernel: Any) -> bool:
    """Tell whether a kernel (or the one of that name) sees sparse rows."""
    if isinstance(kernel, str):
        kernel = ALIASES.get(kernel) or KERNELS.get(kernel)
    return bool(getattr(kernel, "sparse", False))


def kernel_of(model: Any, X: Array) -> Kernel:
    """Return the kernel that the parameters mean, with numbers found from X in place of words."""
    if not isinstance(model.kernel_params, Mapping | None):
        raise ValueError(expected("kernel_params", "a dictionary or None", model.kernel_params))
    kernel, params = model.kernel, dict(model.kernel_params or {})
    if isinstance(kernel, str):
        gamma = model.gamma
        if gamma is None and X.ndim == 2 and "length_scale" not in params:
            gamma = 1.0 / int(X.shape[1])
        params = {"gamma": gamma, "degree": model.degree, "coef0": model.coef0, **params}
    found = make_kernel(kernel, **params)
    if backend.is_sparse(X) and not found.sparse and not isinstance(found, Precomputed):
        what = "one that takes sparse rows (linear, polynomial, sigmoid, rbf, matern)"
        raise ValueError(expected("kernel", what, found, "Or give X.toarray()."))
    return found if X.ndim == 1 or isinstance(found, Precomputed) else found.resolve(X)


def _asymmetry(K: Array) -> tuple[float, float]:
    """Return the largest |K_ij| and the largest |K_ij − K_ji|, a block of rows at a time."""
    xp, size, worst = backend.namespace(K), 0.0, 0.0
    for rows in backend.slices(int(K.shape[0]), backend.block_rows(int(K.shape[0]), K)):
        block = K[rows, :]
        size = max(size, float(xp.max(xp.abs(block))))
        worst = max(worst, float(xp.max(xp.abs(block - K[:, rows].T))))
    return size, worst


def check_kernel_matrix(K: Array, *, center: bool) -> Array:
    """Return a square kernel matrix that is symmetric, at least once it is centred.

    Constants of its rows are taken away until it is symmetric as it stands. Those of columns
    stay, for rows of new items have them too; centring removes both.
    """
    n, xp = int(K.shape[0]), backend.namespace(K)
    if K.shape[1] != n:
        what = "a square kernel matrix, (n, n), with kernel='precomputed'"
        raise ValueError(expected("X", what, tuple(K.shape)))
    size, worst = _asymmetry(K)
    if worst <= ASYMMETRY * size:
        return K
    gap = K - K.T
    means = xp.mean(gap, axis=0)
    if (
        not center
        or float(xp.max(xp.abs(gap - means[None, :] + means[:, None]))) > ASYMMETRY * size
    ):
        i, j = np.unravel_index(int(xp.argmax(xp.abs(gap))), (n, n))
        raise ValueError(
            f"X must be a symmetric kernel matrix, got X[{i}, {j}] = {float(K[i, j]):g} and "
            f"X[{j}, {i}] = {float(K[j, i]):g}. "
            "If they should be equal, give (X + X.T) / 2."
        )
    return K + means[:, None]
