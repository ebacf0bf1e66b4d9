"""E k(x, y), E k(x, x') and E k(x, x) of uncertain rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.expected_kernels import gaussian, polynomial
from dualpca.expected_kernels.points import Uncertain
from dualpca.expected_kernels.terms import Term, split
from dualpca.kernels import Kernel


def expected_kernel(kernel: Kernel, x: Uncertain, Y: Array) -> Array:
    """Return E k(x_i, y_j), (n, m), for uncertain rows x and known rows Y.

    Parameters
    ----------
    kernel : Kernel
        Without words such as 'median': call `resolve` first.
    x : Uncertain
        n rows.
    Y : array of shape (m, d)

    Notes
    -----
    O(n d³ + n m d²) for the RBF, O(n m d²) for polynomials; memory in blocks of rows. The RBF is
    Girard, Rasmussen, Quiñonero-Candela & Murray-Smith (2003).

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> x = Uncertain(np.zeros((1, 1)), np.full((1, 1, 1), 4.0))
    >>> expected_kernel(RBF(gamma=1.0), x, np.array([[0.0]]))  # 1/√(1 + 2·4)
    array([[0.3333]])
    """
    require_columns(x, Y)
    found = split(kernel, int(Y.shape[1]))
    return _array.cast_like(_each(found, x.working, _array.working(Y)), x.mean)


def expected_between(kernel: Kernel, x: Uncertain, other: Uncertain) -> Array:
    """Return E k(x_i, x'_j), (n, m), for rows that are independent of each other.

    Notes
    -----
    O(n m d³) for the RBF over pairs that are both uncertain; pairs of which one is known cost
    what `expected_kernel` costs.
    """
    require_columns(x, other.mean)
    found = split(kernel, int(x.mean.shape[1]))
    left, right = x.working, other.working
    (a, ka), (b, kb) = _known_first(left), _known_first(right)
    sure, unsure = left.take(a[:ka]), left.take(a[ka:])
    sure_right, unsure_right = right.take(b[:kb]), right.take(b[kb:])
    xp = _array.namespace(x.mean)
    top = [_plain(kernel, sure.mean, sure_right.mean), _each(found, unsure_right, sure.mean).T]
    bottom = [_each(found, unsure, sure_right.mean), _pairs(found, unsure, unsure_right)]
    K = xp.concat([xp.concat(top, axis=1), xp.concat(bottom, axis=1)], axis=0)
    K = _array.take(_array.take(K, np.argsort(a)), np.argsort(b), axis=1)
    return _array.cast_like(K, x.mean)


def expected_diag(kernel: Kernel, x: Uncertain) -> Array:
    """Return E k(x_i, x_i), (n,)."""
    xp, w = _array.namespace(x.mean), x.working
    total = xp.zeros_like(w.mean[:, 0])
    for term in split(kernel, int(x.mean.shape[1])):
        term.check(w)
        value = xp.full_like(total, term.factor)
        for poly in term.polys:
            value = value * polynomial.diagonal(w, poly)
        total = total + value
    return _array.cast_like(total, x.mean)


def expected_gram(kernel: Kernel, x: Uncertain) -> Array:
    """Return E k(x_i, x_j), (n, n), with E k(x_i, x_i) on the diagonal.

    It is positive semi-definite where the kernel is: the Gram matrix of E φ(x_i), and beyond it
    the variance of each φ(x_i) on the diagonal.
    """
    xp = _array.namespace(x.mean)
    K = expected_between(kernel, x, x)
    eye = _array.identity(len(x), K)
    return xp.where(eye > 0, expected_diag(kernel, x)[:, None] * eye, (K + K.T) / 2)


def require_columns(x: Uncertain, Y: Array) -> None:
    """Refuse rows of another width."""
    if len(Y.shape) != 2 or Y.shape[1] != x.mean.shape[1]:
        what = f"of shape (m, {x.mean.shape[1]}), as wide as the uncertain rows"
        raise ValueError(expected("Y", what, tuple(Y.shape)))


def _blocks(x: Uncertain, Y: Array) -> Iterator[Uncertain]:
    """Cut rows into blocks, each of which meets all of Y in a few megabytes."""
    size = int(Y.shape[0]) * int(Y.shape[1]) + int(Y.shape[1]) ** 2
    step = max(1, _array.BLOCK_BYTES // (8 * max(size, 1)))
    for rows in _array.slices(len(x), step):
        yield x.block(rows)


def _stack(blocks: list[Array], x: Uncertain, Y: Array) -> Array:
    """Join blocks of rows; there may be none."""
    xp = _array.namespace(Y)
    empty = x.mean[:0, :] @ Y.T
    return xp.concat([empty, *blocks], axis=0)


def _against(found: list[Term], x: Uncertain, Y: Array) -> Array:
    """Return the sum of the expectations of terms against known rows."""
    total = _array.namespace(Y).zeros_like(x.mean @ Y.T)
    for term in found:
        term.check(x)
        value = gaussian.against(x, Y, term.rates) if term.is_gaussian else 1.0
        for poly in term.polys:
            value = value * polynomial.against(x, Y, poly)
        total = total + term.factor * value
    return total


def _plain(kernel: Kernel, X: Array, Y: Array) -> Array:
    """Return the kernel of known rows, of which there may be none."""
    return kernel(X, Y) if X.shape[0] and Y.shape[0] else X @ Y.T


def _each(found: list[Term], x: Uncertain, Y: Array) -> Array:
    """Return the same for all rows, block by block."""
    return _stack([_against(found, part, Y) for part in _blocks(x, Y)], x, Y)


def _pairs(found: list[Term], x: Uncertain, other: Uncertain) -> Array:
    """Return the sum of the expectations of terms over pairs of uncertain rows."""
    parts = _blocks(x, other.mean) if len(other) else iter(())
    blocks = [_between(found, part, other) for part in parts]
    return _stack(blocks, x, other.mean) if blocks else x.mean @ other.mean.T


def _between(found: list[Term], x: Uncertain, other: Uncertain) -> Array:
    total = _array.namespace(x.mean).zeros_like(x.mean @ other.mean.T)
    for term in found:
        term.check(x)
        term.check(other)
        value = gaussian.between(x, other, term.rates) if term.is_gaussian else 1.0
        for poly in term.polys:
            value = value * polynomial.between(x, other, poly)
        total = total + term.factor * value
    return total


def _known_first(x: Uncertain) -> tuple[np.ndarray[tuple[int], np.dtype[np.intp]], int]:
    """Return an order of the rows with the known ones first, and how many they are."""
    known = x.certain
    return np.argsort(~known, kind="stable"), int(known.sum())
