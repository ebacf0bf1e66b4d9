"""A map from latents back to inputs, learned from the training points (Bakir et al. 2004)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dualpca import _algebra, _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.kernels import RBF, Kernel
from dualpca.preimages.base import Method, is_linear
from dualpca.preimages.span import Span, Target

JITTER = 1e-12
"""Share of its trace added to a Gram matrix of inducing points, which may be singular."""


@dataclass(frozen=True)
class Learned(Method):
    """z = μ + Σ_j k'(y, y_j) a_j with (K' + αI) A = X − 1μᵀ: kernel ridge regression on latents.

    It needs no iteration and works with any kernel, but answers with what training points look
    like, whether or not P is near one. μ is the mean of the points, which ridge regression alone
    would shrink to 0.

    `prepare` solves the ridge problem; `find` on what it returns costs O(nq + nd) a row. One n×n
    matrix is formed, lower triangle only, and factored in place. Beyond `limit` points the map is
    spanned by that many of them, evenly spaced over the rows (subset of regressors), in blocks:
    (K'_un K'_nu + αK'_uu) A = K'_un (X − 1μᵀ), O(n · limit²).

    Parameters
    ----------
    alpha : float
        Ridge, as scikit-learn's `KernelPCA(alpha=...)`, where it is 1.
    kernel : Kernel, optional
        On the latents; RBF with the median length of the latents unless given. scikit-learn takes
        the model's own kernel, whose width was meant for the inputs.
    limit : int

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> from dualpca.preimages import Span
    >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
    >>> Learned(alpha=1e-9).prepare(span).find(span, np.array([[1.0]])).points.round(6)
    array([[0.]])
    """

    name: ClassVar[str] = "learned"
    alpha: float = 0.1
    kernel: Kernel | None = None
    limit: int = 5000

    def __post_init__(self) -> None:
        """Refuse a ridge that is not positive."""
        if not 0 < self.alpha < np.inf:
            raise ValueError(expected("alpha", "positive", self.alpha))
        if self.limit < 1:
            raise ValueError(expected("limit", "at least 1", self.limit))

    def prepare(self, span: Span) -> Method:
        """Return the learned map."""
        if is_linear(span.kernel):
            return self
        Y = span.latents
        kernel = (RBF(length_scale="median") if self.kernel is None else self.kernel).resolve(Y)
        targets = span.points - span.centre
        if span.size <= self.limit:
            A = _algebra.solve_positive(_ridged_gram(kernel, Y, self.alpha), targets)
            return LearnedMap(span.centre, kernel, Y, A)
        U = Y[:: -(-span.size // self.limit), :]
        return LearnedMap(span.centre, kernel, U, _subset(kernel, Y, U, targets, self.alpha))


@dataclass(frozen=True, eq=False)
class LearnedMap(Method):
    """The regression function itself."""

    mean: Array  # (d,)
    kernel: Kernel
    centres: Array  # (u, q), latents of all points or of some
    A: Array  # (u, d)

    def _find(self, target: Target, start: Array | None) -> tuple[Array, np.ndarray | None]:
        return self.mean + self.kernel(target.Y, self.centres) @ self.A, None


def _ridged_gram(kernel: Kernel, Y: Array, alpha: float) -> Array:
    """Return K' + αI; NumPy's has only its lower triangle filled."""
    n = int(Y.shape[0])
    if _array.is_foreign(Y):
        return kernel(Y, Y) + alpha * _array.identity(n, Y)
    K = np.zeros((n, n), order="F")
    for rows in _array.slices(n, _array.block_rows(n)):
        K[rows, : rows.stop] = kernel(Y[rows, :], Y[: rows.stop, :])
    K[np.diag_indices(n)] += alpha
    return K


def _subset(kernel: Kernel, Y: Array, U: Array, targets: Array, alpha: float) -> Array:
    """Return the coefficients of the regression spanned by the centres U."""
    of, size = kernel.against(U), int(U.shape[0])
    Kuu = kernel(U, U)
    left, right = alpha * Kuu, 0.0
    for rows in _array.slices(int(Y.shape[0]), _array.block_rows(size, Y)):
        K = of(Y[rows, :])
        left, right = left + K.T @ K, right + K.T @ targets[rows, :]
    size_of = float(_array.namespace(Y).sum(_array.namespace(Y).linalg.diagonal(left)))
    return _algebra.solve_positive(left + JITTER * size_of * _array.identity(size, Y), right)
