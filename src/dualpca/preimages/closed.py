"""Pre-images in closed form: kernel smoother, distances (Kwok & Tsang), learned maps (Bakir)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.errors import DegenerateError, expected
from dualpca.kernels import RBF, Kernel, inverse_distances
from dualpca.preimages.base import Method, Span, Target

# --- Kernel smoother: a weighted mean of training points -----------------------------------------


@dataclass(frozen=True)
class Smoother(Method):
    """The kernel smoother with weights that neither vanish nor turn negative.

    z = Σ_i w_i x_i / Σ_i w_i.

    A safeguarded form of `PlainSmoother`, the published formula.

    w_i = (h² − ‖φ(x_i) − P‖²)₊ where h is the distance of P to its (`neighbors` + 1)-th nearest
    item: an Epanechnikov kernel in feature space whose width follows the data. Up to the constant
    it is the uncentred kernel value k̂_i = ⟨φ(x_i), P⟩, measured from a floor, so that wide kernels
    (all k̂ alike) do not draw every answer to the mean of the data.

    With `neighbors=None`, w_i = max(k̂_i, 0): kernel values themselves, negative ones left out.
    Where all weights vanish, the mean of the items nearest to P. The answer is always a convex
    combination of the points.

    Parameters
    ----------
    neighbors : int or None, default=20

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
        """Check the parameters."""
        if self.neighbors is not None and self.neighbors < 1:
            raise ValueError(expected("neighbors", "at least 1, or None", self.neighbors))

    def _find(self, target: Target, start: Array | None) -> tuple[Array, Array | None]:
        xp, span = backend.namespace(target.Y), target.span
        G = target.gaps
        if self.neighbors is None:
            W, bound = target.unshifted, xp.min(G, axis=1)[:, None]
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


@dataclass(frozen=True)
class PlainSmoother(Method):
    """The kernel smoother as published, without safeguards.

    z = Σ_i k̂_i x_i / (Σ_i k̂_i + s).

    De Plaen & Suykens 2023, Eq. 19; Schreurs & Suykens 2018. Weights may be negative, so that z
    may lie outside of the data, and nothing replaces it there: `Smoother` is the safeguarded form.
    Not even the linear kernel is treated apart.

    Parameters
    ----------
    stabilizer : float, default=0.0
        s, added to the sum of the kernel values, in their units.
    centered : bool, default=False
        Use the centred kernel values (k̂c)_i = ⟨φ(x_i) − φ̄, P − φ̄⟩ in place of ⟨φ(x_i), P⟩. Where
        the features are centred they sum to 0: z = Σ_i (k̂c)_i x_i / s, which needs an s. The same
        as False where they are not.

    Notes
    -----
    O(n(d + q)) per row. An error where the denominator vanishes; near to that z is far away.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> from dualpca.preimages import Span
    >>> span = Span(np.array([[0.0], [1.0]]), RBF(gamma=1.0), np.eye(2)[:, :1], np.zeros(2))
    >>> PlainSmoother().find(span, np.array([[1.0]])).points.round(4)  # e⁻¹/(1 + e⁻¹)
    array([[0.2689]])
    """

    name: ClassVar[str] = "plain-smoother"
    safeguarded: ClassVar[bool] = False
    stabilizer: float = 0.0
    centered: bool = False

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not math.isfinite(self.stabilizer):
            raise ValueError(expected("stabilizer", "a finite number", self.stabilizer))

    def _find(self, target: Target, start: Array | None) -> tuple[Array, Array | None]:
        xp, points = backend.namespace(target.Y), target.span.points
        K = target.centred_overlaps if self.centered else target.unshifted
        total = xp.sum(K, axis=1) + self.stabilizer
        size = xp.sum(xp.abs(K), axis=1)
        if bool(xp.any(xp.abs(total) <= VANISHED * size)):
            raise DegenerateError(
                "kernel values sum to 0, so that the mean weighted by them does not exist: centred "
                "ones always do. Give PlainSmoother a stabilizer, centered=False, or use "
                "'smoother'."
            )
        return (K @ points) / total[:, None], None


VANISHED = 1e-12
"""Share of their absolute values below which the sum of kernel values is rounding error."""


# --- Kwok & Tsang's closed form: from distances in feature space to distances among inputs -------

RANK_TOLERANCE = 1e-8
"""Singular values of the neighbours below this share of the largest count as 0."""


@dataclass(frozen=True)
class Distance(Method):
    """Place z by its input distances to the neighbours of P (Kwok & Tsang 2004).

    ‖φ(x_j) − P‖² of the `neighbors` nearest items is turned into ‖z − x_j‖² by inverting the
    kernel; then z solves Nẑ = ½H(d₀² − d²), N the centred neighbours, d₀² their squared norms, by
    the singular value decomposition of N. No iteration, no start.

    Cost O(nq + k²d) per row.

    Parameters
    ----------
    neighbors : int, default=10

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> from dualpca.preimages import Span
    >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
    >>> Distance().find(span, np.array([[1.0]])).points.round(6)
    array([[0.]])
    """

    name: ClassVar[str] = "distance"
    needs: ClassVar[str] = (
        "an invertible function of the distance, or a polynomial of odd degree of the inner product"
    )
    neighbors: int = 10

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.neighbors < 1:
            raise ValueError(expected("neighbors", "at least 1", self.neighbors))

    def suits(self, kernel: Kernel) -> bool:
        """Return True if the kernel can be inverted.

        Parameters
        ----------
        kernel : Kernel

        Returns
        -------
        suits : bool

        Examples
        --------
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Distance
        >>> Distance().suits(RBF())
        True
        """
        return inverse_distances(kernel, 1) is not None

    def _find(self, target: Target, start: Array | None) -> tuple[Array, Array | None]:
        xp, span = backend.namespace(target.Y), target.span
        G, k = target.gaps, min(self.neighbors, span.size)
        near = xp.argsort(G, axis=1)[:, :k]
        d, flat = int(span.points.shape[1]), xp.reshape(near, (-1,))
        N = xp.reshape(backend.take(span.points, flat), (*near.shape, d))
        norms = xp.reshape(backend.take(span.norms, flat), near.shape)
        P2 = target.sqnorm[:, None] + 0 * norms
        gaps = xp.sort(G, axis=1)[:, :k]
        invert = inverse_distances(span.kernel, d)
        assert invert is not None  # find() has asked suits()
        D2 = invert(norms, 0.5 * (norms + P2 - gaps), P2, xp.sum(N * N, axis=2))
        return trilaterate(N, D2), None


def trilaterate(N: Array, D2: Array) -> Array:
    """Return the points z whose squared distances to neighbours N (b, k, d) are D2 (b, k).

    In the affine span of the neighbours, by least squares; (b, d).
    """
    xp = backend.namespace(N)
    middle = xp.mean(N, axis=1)
    C = N - middle[:, None, :]
    # the columns of a pseudo-inverse of centred points sum to 0, which centres the right side
    half = 0.5 * (xp.sum(C * C, axis=2) - D2)
    return middle + (xp.linalg.pinv(C, rtol=RANK_TOLERANCE) @ half[:, :, None])[:, :, 0]


# --- A map from latents back to inputs, learned from the training points (Bakir et al. 2004) -----

GRAM_JITTER = 1e-12
"""Share of its trace added to a Gram matrix of inducing points, which may be singular."""


@dataclass(frozen=True)
class Learned(Method):
    """Kernel ridge regression from latents to inputs (Bakır et al. 2004).

    z = μ + Σ_j k'(y, y_j) a_j with (K' + αI) A = X − 1μᵀ.

    It needs no iteration and works with any kernel, but answers with what training points look
    like, whether or not P is near one. μ is the mean of the points, which ridge regression alone
    would shrink to 0.

    `prepare` solves the ridge problem; `find` on what it returns costs O(nq + nd) per row. One n×n
    matrix is formed, lower triangle only, and factored in place. Beyond `limit` points the map is
    spanned by that many of them, evenly spaced over the rows (subset of regressors), in blocks:
    (K'_un K'_nu + αK'_uu) A = K'_un (X − 1μᵀ), O(n · limit²).

    Parameters
    ----------
    alpha : float, default=0.1
        Ridge, as scikit-learn's `KernelPCA(alpha=...)`, where it is 1.
    kernel : Kernel, default=None
        On the latents; default: RBF with the median length of the latents. scikit-learn uses
        the model's own kernel, whose width was meant for the inputs.
    limit : int, default=5000

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
        """Check the parameters."""
        if not 0 < self.alpha < np.inf:
            raise ValueError(expected("alpha", "positive", self.alpha))
        if self.limit < 1:
            raise ValueError(expected("limit", "at least 1", self.limit))

    def prepare(self, span: Span) -> Method:
        """Return the learned map.

        Parameters
        ----------
        span : Span

        Returns
        -------
        method : Method

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> from dualpca.preimages import Learned
        >>> type(Learned().prepare(span)).__name__
        'LearnedMap'
        """
        if span.kernel._linear:
            return self
        Y = span.latents
        kernel = (RBF(length_scale="median") if self.kernel is None else self.kernel).resolve(Y)
        targets = span.points - span.centre
        if span.size <= self.limit:
            A = algebra.solve_positive(_ridged_gram(kernel, Y, self.alpha), targets)
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

    def _find(self, target: Target, start: Array | None) -> tuple[Array, Array | None]:
        return self.mean + self.kernel(target.Y, self.centres) @ self.A, None


def _ridged_gram(kernel: Kernel, Y: Array, alpha: float) -> Array:
    """Return K' + αI; NumPy's has only its lower triangle filled."""
    n = int(Y.shape[0])
    if backend.is_foreign(Y):
        return kernel(Y, Y) + alpha * backend.identity(n, Y)
    K = np.zeros((n, n), order="F")
    for rows in backend.slices(n, backend.block_rows(n)):
        K[rows, : rows.stop] = kernel(Y[rows, :], Y[: rows.stop, :])
    K[np.diag_indices(n)] += alpha
    return K


def _subset(kernel: Kernel, Y: Array, U: Array, targets: Array, alpha: float) -> Array:
    """Return the coefficients of the regression spanned by the centres U."""
    xp, of, size = backend.namespace(Y), kernel.against(U), int(U.shape[0])
    left, right = alpha * of(U), 0.0
    for rows in backend.slices(int(Y.shape[0]), backend.block_rows(size, Y)):
        K = of(Y[rows, :])
        left, right = left + K.T @ K, right + K.T @ targets[rows, :]
    jitter = GRAM_JITTER * float(xp.linalg.trace(left))
    return algebra.solve_positive(left + jitter * backend.identity(size, Y), right)
