"""A scatter matrix that is already there, as an operator."""

from __future__ import annotations

from dualpca import _array
from dualpca._typing import Array
from dualpca.moments import Moments
from dualpca.rows import Frame


class Scatter:
    """A scatter matrix that is already there: what streaming leaves behind.

    Parameters
    ----------
    moments : Moments
    standardize : bool
        As in `Primal`.
    """

    def __init__(self, moments: Moments, *, standardize: bool = False) -> None:
        self.moments, self.dim = moments, int(moments.mean.shape[0])
        xp = _array.namespace(moments.mean)
        variances = xp.linalg.diagonal(moments.scatter) / moments.n
        self.frame = Frame(moments.mean, unit_scale(variances) if standardize else None)
        self.n = moments.n
        self.like = moments.mean

    @property
    def shape(self) -> tuple[int, int]:
        """(d, d)."""
        return (self.dim, self.dim)

    @property
    def trace(self) -> float:
        """Sum of the diagonal."""
        return float(_array.namespace(self.like).sum(self.diag()))

    @property
    def pass_cost(self) -> float:
        """One product with the stored matrix."""
        return float(self.dim**2)

    dense_cost = 0.0

    def diag(self) -> Array:
        """Return the diagonal, (d,)."""
        squares = _array.namespace(self.like).linalg.diagonal(self.moments.scatter)
        scale = self.frame.scale
        return squares if scale is None else squares / (scale * scale)

    def __matmul__(self, V: Array) -> Array:
        """Return the product with the stored matrix."""
        scale = self.frame.scale
        if scale is None:
            return self.moments.scatter @ V
        return (self.moments.scatter @ (V / scale[:, None])) / scale[:, None]

    def dense(self) -> Array:
        """Return a copy."""
        return scaled_copy(self.moments.scatter, self.frame.scale)


def unit_scale(variances: Array) -> Array:
    """Return standard deviations, with 1 in place of 0 for features that do not vary."""
    xp = _array.namespace(variances)
    scale = xp.sqrt(xp.where(variances < 0, xp.zeros_like(variances), variances))
    return xp.where(scale > 0, scale, xp.ones_like(scale))


def scaled_copy(scatter: Array, scale: Array | None) -> Array:
    """Return a fresh copy of a scatter matrix, in units of the features' scales."""
    if scale is not None:
        return scatter / scale[:, None] / scale[None, :]
    return _array.namespace(scatter).asarray(scatter, copy=True)
