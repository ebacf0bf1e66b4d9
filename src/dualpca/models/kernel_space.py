"""The common kernel space of mixtures and hidden chains: the empirical kernel map (theory 10.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.errors import DegenerateError, ScaleError
from dualpca.kernels import Kernel
from dualpca.operators import (
    Dual,
    Landmarks,
    Scatter,
    Spectrum,
    Subspace,
    landmark_subspace,
    map_rows,
    pivoted_cholesky,
)
from dualpca.solvers import solve

EXACT = 1000
"""Rows up to which the kernel over all of them is decomposed; beyond, landmarks stand for them."""

NEGLIGIBLE_DIRECTION = 1e-10
"""Directions with less than this share of the largest variance are none."""


@dataclass(frozen=True)
class KernelSpace:
    """ψ(x) = Λ_m^{-1/2}U_mᵀ kc(x) ∈ R^m: coordinates on the m leading directions of feature space.

    A density needs one space for all states, classes and new rows; this is it. Inner products are
    kept on the span, ψ(x)ᵀψ(y) = (φ(x) − φ̄)ᵀ(φ(y) − φ̄), and outside it is nothing.

    Parameters
    ----------
    subspace : Subspace
        The directions, as expansions over rows or landmarks.
    variances : array of shape (m,)
        λ/n, of the rows of the fit along them, largest first.
    total : float
        Variance in all of feature space.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> space = KernelSpace.fit(X, RBF(gamma=0.5), 29)
    >>> K, Z = RBF(gamma=0.5)(X, X), space(X)
    >>> H = np.eye(30) - 1 / 30
    >>> bool(np.allclose(Z @ Z.T, H @ K @ H))
    True
    """

    subspace: Subspace
    variances: Annotated[Array, "m"]
    total: float

    @classmethod
    def fit(
        cls,
        X: Array,
        kernel: Kernel,
        m: int,
        rng: np.random.Generator | None = None,
        *,
        n_landmarks: int = 500,
        weights: Array | None = None,
        solver: str = "auto",
    ) -> KernelSpace:
        """Return the m leading directions of the rows, fewer where there are no more.

        Exact for up to a thousand rows, O(n²d) and an eigenproblem; beyond, in the span of
        l = `n_landmarks` rows chosen by pivoted Cholesky, O(nl²) time and O(nl) memory.

        Parameters
        ----------
        X : array of shape (n, d)
        kernel : Kernel
            With numbers for all parameters.
        m : int
        rng : Generator, optional
        n_landmarks : int
        weights : array of shape (n,), optional
        solver : str
            For the exact eigenproblem.
        """
        rng = np.random.default_rng(0) if rng is None else rng
        if int(X.shape[0]) <= max(EXACT, n_landmarks):
            return cls._exact(X, kernel, m, weights, solver, rng)
        return cls._nystrom(X, kernel, m, weights, n_landmarks, rng)

    @classmethod
    def _exact(
        cls,
        X: Array,
        kernel: Kernel,
        m: int,
        weights: Array | None,
        solver: str,
        rng: np.random.Generator,
    ) -> KernelSpace:
        operator = Dual(X, kernel, weights)
        refuse_overflow(operator.total)
        found = solve(operator, min(m, operator.shape[0]), solver, 1e-10, rng)
        spectrum = _held(operator.oriented(found), operator.total)
        variances = spectrum.values / operator.n
        return cls(operator.subspace(spectrum), variances, operator.trace / operator.n)

    @classmethod
    def _nystrom(
        cls,
        X: Array,
        kernel: Kernel,
        m: int,
        weights: Array | None,
        n_landmarks: int,
        rng: np.random.Generator,
    ) -> KernelSpace:
        with np.errstate(over="ignore", invalid="ignore"):
            refuse_overflow(float(backend.to_numpy(kernel.diag(backend.points(X))).sum()))
        chosen = pivoted_cholesky(X, kernel, n_landmarks, 0.0, rng, weights)
        f = Landmarks.of(backend.take(X, chosen.index), kernel)
        mapped = map_rows(f, X, weights)
        operator, n, mean = Scatter(mapped.moments), mapped.moments.n, mapped.moments.mean
        spectrum = _held(solve(operator, min(m, operator.shape[0]), "dense"), mapped.total)
        total = mapped.total / n - float(mean @ mean)
        subspace = landmark_subspace(f, spectrum.vectors, mean)
        return cls(subspace, spectrum.values / n, max(total, operator.trace / n))

    @property
    def m(self) -> int:
        """Number of directions."""
        return int(self.variances.shape[0])

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self.subspace.kernel

    @property
    def explained(self) -> float:
        """Share of the variance in feature space that the directions hold."""
        return float(backend.namespace(self.variances).sum(self.variances)) / self.total

    def __call__(self, X: Array) -> Array:
        """Return ψ(x) of every row, (n, m), in float64."""
        return self.subspace.coordinates(X)


def _held(spectrum: Spectrum, total: float) -> Spectrum:
    """Return the eigenpairs that are more than rounding error."""
    values = backend.to_numpy(spectrum.values)
    eps = float(np.finfo(np.float64).eps)
    held = int((values > max(NEGLIGIBLE_DIRECTION * float(values[0]), 10 * eps * total)).sum())
    if held == 0:
        raise DegenerateError(
            "all rows are the same point of feature space: there is nothing to model. Give rows "
            "that differ, or another kernel."
        )
    return spectrum.head(held)


def refuse_overflow(total: float) -> None:
    """Refuse a kernel whose trace float64 cannot hold."""
    if not np.isfinite(total):
        raise ScaleError("kernel values overflow: X is too large. Divide it by a constant first.")
