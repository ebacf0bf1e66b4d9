"""What comes in: rows of any kind, weights, counts. Nothing is changed, filled or cast silently."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from dualpca.arrays import Array, backend
from dualpca.data import refuse_nonfinite
from dualpca.errors import ScaleError, expected
from dualpca.estimators._memory_only import require_in_memory

SPARSE = ("csr", "csc")

ROUGH = 1e-3
"""Relative error that a variance may have in the dtype of the rows."""


def check_rows(
    estimator: Any,
    X: Any,
    *,
    reset: bool,
    min_rows: int = 1,
    accept_sparse: bool = False,
    finite: bool = False,
) -> Array:
    """Return X as a two-dimensional float array of its own library, without a copy if it is one.

    Finiteness is tested only if asked for: it shows in results for free (`check_finite_result`).
    """
    require_in_memory(X)
    if backend.is_foreign(X):
        return _check_foreign(estimator, X, reset=reset, min_rows=min_rows)
    return validate_data(
        estimator,
        X,
        reset=reset,
        dtype=[np.float64, np.float32],
        accept_sparse=SPARSE if accept_sparse else False,
        ensure_all_finite=finite,
        ensure_min_samples=min_rows,
        copy=False,
    )


def new_rows(estimator: Any, X: Any, method: str, *, accept_sparse: bool = False) -> Array:
    """Check rows that a fitted model is asked about, of the library and device it was fitted on."""
    check_is_fitted(estimator)
    X = check_rows(estimator, X, reset=False, accept_sparse=accept_sparse)
    backend.require_same_home(X, estimator.components_, f"{type(estimator).__name__}.{method}")
    return X


def latent_rows(estimator: Any, Z: Any, method: str) -> Array:
    """Check rows in the space of a fitted model's components."""
    check_is_fitted(estimator)
    Z = check_matrix(Z, "X", min_columns=0)  # a model of no components has none
    backend.require_same_home(Z, estimator.components_, f"{type(estimator).__name__}.{method}")
    check_width(Z, int(estimator.components_.shape[0]), "X")
    return Z


def _check_foreign(estimator: Any, X: Array, *, reset: bool, min_rows: int) -> Array:
    """Check an array of torch, CuPy, … with scikit-learn's words, on its own device."""
    X = check_matrix(X, "X")
    name = type(estimator).__name__
    if X.shape[0] < min_rows or X.shape[1] < 1:
        raise ValueError(
            f"Found array with shape={tuple(X.shape)}, while a minimum of {min_rows} sample(s) "
            f"and 1 feature(s) is required by {name}."
        )
    if reset:
        estimator.n_features_in_ = int(X.shape[1])
        vars(estimator).pop("feature_names_in_", None)
    elif X.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} features, but {name} is expecting "
            f"{estimator.n_features_in_} features as input."
        )
    return X


def check_matrix(X: Any, name: str, *, min_columns: int = 1) -> Array:
    """Return X as a two-dimensional real floating array."""
    require_in_memory(X, name)
    if not backend.is_foreign(X):
        return check_array(
            X,
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            ensure_min_features=min_columns,
            input_name=name,
        )
    xp = backend.namespace(X)
    if X.ndim != 2:
        raise ValueError(expected(name, "a 2-dimensional array", tuple(X.shape)))
    if xp.isdtype(X.dtype, "complex floating"):
        raise ValueError(f"Complex data not supported: {name} has dtype {X.dtype}.")
    X = backend.detached(X)
    return X if X.dtype in (xp.float32, xp.float64) else xp.astype(X, xp.float64)


def check_width(X: Array, width: int, name: str) -> None:
    """Refuse a matrix with the wrong number of columns."""
    if X.shape[1] != width:
        raise ValueError(
            expected(name, f"a matrix of {width} columns (n_components)", tuple(X.shape))
        )


def all_finite(result: Array) -> bool:
    """Tell whether no entry is NaN or infinite."""
    xp = backend.namespace(result)
    return bool(xp.all(xp.isfinite(result)))


def check_finite_result(result: Array, X: Array) -> Array:
    """Return the result; if it is not finite, say which entry of X is to blame."""
    if not all_finite(result):
        refuse_nonfinite(X)
        raise ValueError("the result overflows: X is too large. Divide it by a constant first.")
    return result


def variances_like(values: Array, like: Array, negligible: float = 0.0) -> Array:
    """Return variances in the dtype of `like`, unless it would round them away.

    Rows at 1e-23 are numbers of float32, and their squares are none. Those up to `negligible` of
    the largest may vanish: they are rounding errors of the others.
    """
    found, xp = backend.cast_like(values, like), backend.namespace(values)
    if found.dtype == values.dtype or values.shape[0] == 0:
        return found
    limits = xp.finfo(found.dtype)
    rough = float(limits.smallest_normal) * float(limits.eps) / ROUGH
    if bool(xp.any((values > negligible * xp.max(values)) & (values < rough))):
        raise ScaleError(
            f"a variance is below the range of {found.dtype}, the dtype of X. Multiply X by a "
            "constant, or pass it as float64."
        )
    return found


def check_weights(weights: Any, X: Array) -> Array | None:
    """Return the weights as a float64 vector beside X, or None."""
    if weights is None:
        return None
    w = np.asarray(backend.to_numpy(weights))
    if w.dtype.kind not in "biuf":
        raise ValueError(expected("sample_weight", "real numbers", w.dtype))
    w, n = w.astype(np.float64), X.shape[0]
    if w.ndim == 0:
        w = np.full(n, float(w))
    if w.shape != (n,):
        raise ValueError(expected("sample_weight", f"of shape ({n},), one a row", w.shape))
    if not np.all(np.isfinite(w)) or np.any(w < 0):
        bad = w[~np.isfinite(w) | (w < 0)][0]
        raise ValueError(expected("sample_weight", "finite and not negative", float(bad)))
    if not np.any(w > 0):
        raise ValueError("sample_weight must be positive for some row, got zeros only.")
    return backend.asarray(w, X)


def used_rows(X: Array, weights: Array | None) -> int:
    """Return the number of rows that count: those of positive weight."""
    return int(X.shape[0] if weights is None else (backend.to_numpy(weights) > 0).sum())


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a name that is not on the list."""
    if value not in choices:
        raise ValueError(expected(name, f"one of {list(choices)}", value))


def check_number(name: str, value: Any, low: float, *, integer: bool = False) -> None:
    """Refuse what is not a real (or whole) number of at least `low`."""
    kind = Integral if integer else Real
    if isinstance(value, bool) or not isinstance(value, kind) or not float(value) >= low:
        what = "an integer" if integer else "a number"
        raise ValueError(expected(name, f"{what} of at least {low:g}", value))


def check_share(name: str, value: Any) -> None:
    """Refuse what is not a number strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
        raise ValueError(expected(name, "a number between 0 and 1, both excluded", value))


def check_flag(name: str, value: Any) -> None:
    """Refuse what is not True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(expected(name, "True or False", value))


def generator(random_state: Any) -> np.random.Generator:
    """Return a NumPy Generator from None, a seed, a RandomState or a Generator."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1))
    if random_state is None or isinstance(random_state, Integral):
        return np.random.default_rng(None if random_state is None else int(random_state))
    raise ValueError(
        expected("random_state", "None, an int, a Generator or a RandomState", random_state)
    )
