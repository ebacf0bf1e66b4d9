"""Any Gaussian, given what each row observed of it: no structure, so O(d³) a pattern of NaN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import DegenerateError
from dualpca.gaussian import LOG_2PI
from dualpca.holes import patterns
from dualpca.moments import block_weights

NO_DENSITY = (
    "the observed features have no density: some combination of them has variance zero, or a "
    "canonical correlation is 1. Give regularization > 0, use more rows, or drop features that "
    "others determine."
)


class Group(NamedTuple):
    """Rows that are handled together: c patterns of k rows each, zeros where nothing is known."""

    rows: np.ndarray[Any, Any]  # (c, k), numbers of the rows, on the host
    X: Array  # (c, k, d)
    mask: Array  # (c, d), 1 where observed
    w: Array  # (c, k)

    def centred(self, mu: Array) -> Array:
        """Return the rows around μ, zero where nothing was observed, (c, k, d)."""
        return (self.X - mu) * self.mask[:, None, :]


class Conditional(NamedTuple):
    """A quantity t given what each row observed, and the log-density of that."""

    mean: Array  # (n, k), E[t | x_o]
    log_density: Array  # (n,)
    variance: Array | None  # (n, k)
    covariance: Array | None  # (n, k, k)


def groups(X: Array, weights: Array | None = None) -> list[Group]:
    """Return the rows by pattern of NaN; patterns shared by equally many rows form one batch.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN where nothing was observed.
    weights : array of shape (n,), optional

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, np.nan], [2.0, 3.0], [4.0, np.nan]])
    >>> [g.rows.tolist() for g in groups(X)]
    [[[1]], [[0, 2]]]
    """
    xp = _array.namespace(X)
    w = block_weights(weights, slice(None), X)
    found = []
    for index in _batches(_array.to_numpy(xp.isnan(X)), int(X.shape[1])):
        flat = index.ravel()
        rows = _array.working(_array.take(X, flat))
        seen = xp.reshape(~xp.isnan(rows), (*index.shape, -1))
        rows = xp.reshape(xp.where(xp.isnan(rows), xp.zeros_like(rows), rows), seen.shape)
        mask = xp.astype(seen[:, 0, :], xp.float64)
        found.append(Group(index, rows, mask, xp.reshape(_array.take(w, flat), index.shape)))
    return found


def _batches(missing: np.ndarray[Any, Any], d: int) -> Iterator[np.ndarray[Any, Any]]:
    """Yield row numbers (c, k) of c patterns (or pieces of long ones) with k rows each."""
    _, pattern = patterns(missing)
    order = np.argsort(pattern, kind="stable")
    first = np.searchsorted(pattern[order], pattern[order])
    place = np.arange(order.size) - first
    starts = np.flatnonzero(place % _array.BLOCK_ROWS == 0)
    counts = np.diff(starts, append=order.size)
    for k in np.unique(counts):
        same = starts[counts == k]
        for cut in _array.slices(same.size, max(1, _array.BLOCK_BYTES // (8 * d * (d + int(k))))):
            yield order[same[cut][:, None] + np.arange(k)]


def whiteners(C: Array, mask: Array) -> tuple[Array, Array]:
    """Return J with JᵀJ = C_oo⁻¹ among zeros, (c, d, d), and ln|C_oo|, (c,), for every pattern.

    J is the inverse of the Cholesky factor: squares of Jr lose less than products with C_oo⁻¹.
    Unobserved features are given variance 1 and no company, so that all patterns have one size.
    """
    xp, eye = _array.namespace(C), _array.asarray(np.eye(C.shape[0]), C)
    A = C * mask[:, :, None] * mask[:, None, :] + (1 - mask)[:, :, None] * eye
    try:
        L = xp.linalg.cholesky(A)
    except Exception as error:
        if not _array.is_linalg_error(error):
            raise
        raise DegenerateError(NO_DENSITY) from error
    J = xp.linalg.solve(L, eye * mask[:, :, None])
    return J, 2 * xp.sum(xp.log(xp.linalg.diagonal(L)), axis=1)


def densities(white: Array, mask: Array, logdet: Array) -> Array:
    """Return ln p of rows with whitened coordinates Jr, (c, k, d), as (c, k)."""
    xp = _array.namespace(white)
    constant = LOG_2PI * xp.sum(mask, axis=1) + logdet
    return -0.5 * (constant[:, None] + xp.sum(white * white, axis=2))


def condition(
    mu: Array, C: Array, B: Array, T: Array, X: Array, spread: str | None = None
) -> Conditional:
    """Return t given what each row of X observed, for (x, t) jointly Gaussian.

    E[t | x_o] = B_oᵀ C_oo⁻¹ (x_o − μ_o) and cov[t | x_o] = T − B_oᵀ C_oo⁻¹ B_o, for t of mean 0.

    Parameters
    ----------
    mu, C : arrays of shape (d,) and (d, d)
        Mean and covariance of x.
    B, T : arrays of shape (d, k) and (k, k)
        cov(x, t) and cov(t).
    X : array of shape (n, d)
        NaN where nothing was observed.
    spread : {None, 'variance', 'covariance'}
        Which uncertainty to return.

    Notes
    -----
    O(d³) a pattern and O(d²) a row. Works in units of standard deviations, so that features of
    very different size do no harm.

    Examples
    --------
    >>> import numpy as np
    >>> C = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> t = condition(np.zeros(2), C, C, C, np.array([[2.0, np.nan]]), "variance")
    >>> t.mean, t.variance
    (array([[2., 1.]]), array([[0.  , 0.75]]))
    """
    xp = _array.namespace(C)
    unit = xp.sqrt(xp.linalg.diagonal(C))
    if not bool(xp.all(unit > 0)):
        raise DegenerateError(NO_DENSITY)
    C, B = C / unit[:, None] / unit[None, :], B / unit[:, None]
    parts, index = [], []
    for group in groups(X):
        R = group.centred(mu) / unit
        J, logdet = whiteners(C, group.mask)
        white, K = R @ xp.matrix_transpose(J), J @ B
        shift = xp.sum(group.mask * xp.log(unit), axis=1)
        density = densities(white, group.mask, logdet + 2 * shift)
        index.append(group.rows.ravel())
        parts.append([_flat(white @ K), _flat(density[:, :, None])[:, 0]])
        parts[-1] += _spread(K, T, group, spread)
    order = np.argsort(np.concatenate(index))
    joined = [_array.take(xp.concat(list(p), axis=0), order) for p in zip(*parts, strict=True)]
    last = joined[2] if spread else None
    return Conditional(
        joined[0],
        joined[1],
        last if spread == "variance" else None,
        last if spread == "covariance" else None,
    )


def _spread(K: Array, T: Array, group: Group, spread: str | None) -> list[Array]:
    """Return the uncertainty T − KᵀK of every row of a group, or nothing."""
    xp, (c, k) = _array.namespace(K), group.rows.shape
    if spread is None:
        return []
    if spread == "variance":
        one = xp.linalg.diagonal(T) - xp.sum(K * K, axis=1)
        one = xp.where(one > 0, one, xp.zeros_like(one))
    else:
        one = T - xp.matrix_transpose(K) @ K
    every = xp.broadcast_to(one[:, None, ...], (c, k, *one.shape[1:]))
    return [xp.reshape(every, (c * k, *one.shape[1:]))]


def _flat(A: Array) -> Array:
    """Return (c, k, m) as (ck, m)."""
    return _array.namespace(A).reshape(A, (A.shape[0] * A.shape[1], A.shape[2]))
