"""Kernel smoother: a weighted mean of training points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.preimages.base import Method
from dualpca.preimages.span import Target


@dataclass(frozen=True)
class Smoother(Method):
    """z = Σ_i w_i x_i / Σ_i w_i (S0 Eq. 19), with weights that neither vanish nor turn negative.

    w_i = (h² − ‖φ(x_i) − P‖²)₊ where h is the distance of P to its (`neighbors` + 1)-th nearest
    item: an Epanechnikov kernel in feature space whose width follows the data. Up to the constant
    it is the uncentred kernel value k̂_i = ⟨φ(x_i), P⟩, measured from a floor, so that wide kernels
    (all k̂ alike) do not draw every answer to the mean of the data.

    With `neighbors=None`, w_i = max(k̂_i, 0), the formula as published. Where all weights vanish,
    the mean of the items nearest to P. The answer always lies among the points.

    Parameters
    ----------
    neighbors : int or None

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> from dualpca.preimages import Span
    >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
    >>> Smoother(neighbors=1).find(span, np.array([[1.0]])).points
    array([[0.]])
    """

    name: ClassVar[str] = "smoother"
    neighbors: int | None = 20

    def __post_init__(self) -> None:
        """Refuse a number of neighbours below 1."""
        if self.neighbors is not None and self.neighbors < 1:
            raise ValueError(expected("neighbors", "at least 1, or None", self.neighbors))

    def _find(self, target: Target, start: Array | None) -> tuple[Array, np.ndarray | None]:
        xp, span = _array.namespace(target.Y), target.span
        G = span.gaps(target.Y)
        if self.neighbors is None:
            W, bound = span.overlaps(target.Y), xp.min(G, axis=1)[:, None]
        else:
            last = min(self.neighbors, span.size - 1)
            bound = xp.sort(G, axis=1)[:, last : last + 1]
            W = bound - G
        W = xp.where(W > 0, W, 0 * W)
        largest = xp.max(W, axis=1)[:, None]
        W = xp.where(largest > 0, W, xp.astype(G <= bound, xp.float64))
        # divided by the largest first: a sum of denormal weights would lose its digits
        W = W / xp.max(W, axis=1)[:, None]
        return (W @ span.points) / xp.sum(W, axis=1)[:, None], None
