"""The dual: a centred kernel over the points."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import DualPCAError
from dualpca.kernels import Kernel, Linear
from dualpca.rows import Projection
from dualpca.spectrum import Spectrum


class Dual:
    """The centred (weighted) kernel over the points, (n, n), evaluated in blocks (MATH 7).

    Parameters
    ----------
    X : array of shape (n, d)
    kernel : Kernel
    weights : array of shape (n,), optional
    center : bool
        Centre in feature space, with the training means.
    dim : int, optional
        r, the dimension of the isotropic noise; n unless given (MATH 1).

    Notes
    -----
    A = D^{1/2} H K Hᵀ D^{1/2} with H = I − 1wᵀ/Σw. Its products recompute K block by block, so
    memory stays O(n) beside `dense()`.
    """

    def __init__(
        self,
        X: Array,
        kernel: Kernel,
        weights: Array | None = None,
        *,
        center: bool = True,
        dim: int | None = None,
    ) -> None:
        self.X, self.kernel, self.centered = _array.working(X), kernel, center
        m = int(X.shape[0])
        self.dim = m if dim is None else dim
        self.like = _array.asarray(np.ones(m), X)
        self.weights = self.like if weights is None else weights
        self.n = float(_array.namespace(X).sum(self.weights))

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n)."""
        m = int(self.X.shape[0])
        return (m, m)

    def _kernel_times(self, X: Array, V: Array) -> Array:
        """Return k(X, training points) V, a block of rows of the kernel at a time."""
        xp = _array.namespace(X)
        cut = _array.slices(X.shape[0], _array.block_rows(self.shape[0]))
        return xp.concat([self.kernel(X[rows, :], self.X) @ V for rows in cut], axis=0)

    @cached_property
    def _means(self) -> Array:
        """Weighted mean of every row of K, (n,)."""
        return self._kernel_times(self.X, self.weights[:, None])[:, 0] / self.n

    @cached_property
    def _grand_mean(self) -> float:
        return float(self.weights @ self._means) / self.n

    @cached_property
    def _root(self) -> Array:
        return _array.namespace(self.X).sqrt(self.weights)

    def squared_norms(self, X: Array) -> Array:
        """Return ‖φ(x) − φ̄‖² of every row, (n,)."""
        diagonal = self.kernel.diag(X)
        if not self.centered:
            return diagonal
        means = self._kernel_times(X, self.weights[:, None])[:, 0] / self.n
        return diagonal - 2 * means + self._grand_mean

    def diag(self) -> Array:
        """Return the diagonal, (n,)."""
        return self.weights * self.squared_norms(self.X)

    @cached_property
    def trace(self) -> float:
        """Sum of all eigenvalues."""
        return float(_array.namespace(self.X).sum(self.diag()))

    @property
    def pass_cost(self) -> float:
        """One evaluation of the kernel."""
        return float(self.shape[0] ** 2 * (1 + self.X.shape[1] / 8))

    @property
    def dense_cost(self) -> float:
        """One evaluation of the kernel."""
        return float(self.shape[0] ** 2 * self.X.shape[1])

    def _center(self, V: Array) -> Array:
        """Return Hᵀ D^{1/2} V: what the training expansion of centred vectors is."""
        V = self._root[:, None] * V
        if not self.centered:
            return V
        total = _array.namespace(V).sum(V, axis=0)
        return V - self.weights[:, None] * (total / self.n)[None, :]

    def __matmul__(self, V: Array) -> Array:
        """Return A V."""
        Y = self._kernel_times(self.X, self._center(V))
        if self.centered:
            Y = Y - (self.weights @ Y / self.n)[None, :]
        return self._root[:, None] * Y

    def dense(self) -> Array:
        """Return A, (n, n); the kernel is evaluated once and centred in place."""
        m = self.shape[0]
        A = _array.asarray(np.empty((m, m)), self.X)
        for rows in _array.slices(m, _array.block_rows(m)):
            A[rows, :] = self.kernel(self.X[rows, :], self.X)
        if self.centered:
            A -= self._means[None, :]
            A -= self._means[:, None]
            A += self._grand_mean
        A *= self._root[None, :]
        A *= self._root[:, None]
        return A

    def project(self, spectrum: Spectrum, X: Array) -> Projection:
        """Return y = kc(x)ᵀ D^{1/2} E Λ^{-1/2} and ‖φ(x) − φ̄‖² − Σy² (never negative)."""
        xp = _array.namespace(X)
        X = _array.working(X)
        E, root = spectrum.vectors, xp.sqrt(spectrum.values)
        coefficients = self._center(E) / xp.where(root > 0, root, xp.full_like(root, np.inf))
        Y = self._kernel_times(X, coefficients)
        if self.centered:
            Y = Y - (self._means @ coefficients)[None, :]
        residual = self.squared_norms(X) - xp.sum(Y * Y, axis=1)
        return Projection(Y, xp.where(residual < 0, xp.zeros_like(residual), residual))

    def lift(self, spectrum: Spectrum, Y: Array) -> Array:
        """Return the rows of coordinates Y: exact for the linear kernel, whose map is known."""
        if not isinstance(self.kernel, Linear):
            raise DualPCAError(
                f"the feature map of {self.kernel!r} has no exact inverse; expected the Linear "
                "kernel. Use a pre-image method."
            )
        root = _array.namespace(Y).sqrt(spectrum.values)
        axes = (self._center(spectrum.vectors).T @ self.X) / root[:, None]
        mean = self.weights @ self.X / self.n if self.centered else 0.0
        return Y @ axes + mean
