"""Two views of the same rows, checked: either may hold NaN, the second may be a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, check_is_fitted

from dualpca.arrays import Array, backend
from dualpca.data import ChunkedTable, observed_part, refuse_nonfinite
from dualpca.errors import expected
from dualpca.estimators._base import check_matrix, check_rows, parts_of, require_in_memory


def check_second(Y: Any) -> tuple[Array, bool]:
    """Return the second view as a matrix, and whether it came as a vector."""
    if Y is None:
        raise ValueError(
            "CCA requires y to be passed, but the target y is None: give the second view as y."
        )
    require_in_memory(Y, "y")
    if not backend.is_foreign(Y):
        Y = check_array(
            Y,
            dtype=[np.float64, np.float32],
            ensure_2d=False,
            ensure_all_finite=False,
            input_name="y",
        )
    vector = Y.ndim == 1
    return check_matrix(backend.namespace(Y).reshape(Y, (-1, 1)) if vector else Y, "y"), vector


def training_views(estimator: Any, X: Any, Y: Any) -> tuple[Array, Array, bool]:
    """Check both views of a fit; also return whether Y came as a vector."""
    Y, vector = check_second(Y)
    X = check_rows(estimator, X, reset=True, min_rows=2)
    _check_pair(X, Y)
    if Y.shape[1] == 0:
        raise ValueError(expected("y", "a table of at least one column", tuple(Y.shape)))
    _refuse_infinite(X, "X")
    _refuse_infinite(Y, "y")
    return X, _beside(Y, X), vector


def new_views(
    estimator: Any, X: Any, Y: Any, method: str, *, exactly_one: bool = False
) -> tuple[Array | None, Array | None]:
    """Check the views that a fitted model is asked about; either may be None, not both."""
    check_is_fitted(estimator)
    name = f"{type(estimator).__name__}.{method}"
    if X is None and Y is None:
        raise ValueError(f"{name} needs at least one view, got neither X nor y.")
    if exactly_one and X is not None and Y is not None:
        raise ValueError(
            f"{name} predicts the view that is not given, got both. Give X or y; impute fills "
            "missing entries of two given views."
        )
    if X is not None:
        X = check_rows(estimator, X, reset=False)
        backend.require_same_home(X, estimator.x_weights_, name)
        _refuse_infinite(X, "X")
    if Y is not None:
        Y = _new_second(estimator, Y, X, name)
    return X, Y


def _new_second(estimator: Any, Y: Any, X: Array | None, name: str) -> Array:
    Y = check_second(Y)[0]
    if X is None:
        backend.require_same_home(Y, estimator.y_weights_, name)
    else:
        _check_pair(X, Y)
        Y = _beside(Y, X)
    width = int(estimator.y_weights_.shape[0])
    if Y.shape[1] != width:
        raise ValueError(f"y has {Y.shape[1]} columns, but CCA was fitted with {width} in y.")
    _refuse_infinite(Y, "y")
    return Y


def _beside(Y: Array, X: Array) -> Array:
    """Bring the second view to the library and device of the first, as scikit-learn does."""
    same = backend.describe(X) == backend.describe(Y)
    return Y if same else backend.asarray(backend.to_numpy(Y), X)


def _check_pair(X: Array, Y: Array) -> None:
    if X.shape[0] != Y.shape[0]:
        raise ValueError(
            "Found input variables with inconsistent numbers of samples: "
            f"{[int(X.shape[0]), int(Y.shape[0])]}. X and y are two views of the same rows; "
            "mark a view that was not observed by NaN."
        )


def _refuse_infinite(A: Array, name: str) -> None:
    if bool(backend.namespace(A).any(backend.namespace(A).isinf(A))):
        refuse_nonfinite(observed_part(A), name)


def second_part(Y: Any) -> tuple[ChunkedTable | Array, bool]:
    """Return the second view, in parts or in memory, and whether it was a vector."""
    parts = None if Y is None else parts_of(Y)
    return check_second(Y) if parts is None else (parts, False)
