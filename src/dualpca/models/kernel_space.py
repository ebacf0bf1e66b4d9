"""The common kernel space of mixtures and hidden chains: the empirical kernel map (theory 10.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from dualpca.arrays import EPS, Array, backend
from dualpca.data import InMemoryTable
from dualpca.errors import DegenerateError
from dualpca.kernels import Kernel
from dualpca.operators import Subspace, negatives_of, warn_of_negatives
from dualpca.solvers import KernelOptions, dual_operator, mapped_operator, solve

EXACT = 1000
"""Rows up to which the kernel over all of them is decomposed; beyond, landmarks are used."""

NEGLIGIBLE_DIRECTION = 1e-10
"""Directions with less than this share of the largest variance are left out."""


@dataclass(frozen=True)
class KernelSpace:
    """ψ(x) = Λ_m^{-1/2}U_mᵀ kc(x) ∈ R^m: coordinates on the m leading directions of feature space.

    A density needs one space for all states, classes and new rows. Inner products are preserved on
    the span, ψ(x)ᵀψ(y) = (φ(x) − φ̄)ᵀ(φ(y) − φ̄); what is off it is dropped.

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

    subspace: Annotated[Subspace, "m=q d"]
    variances: Annotated[Array, "m", ">= 0"]
    total: Annotated[float, ">= 0"]

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
        exact: int = EXACT,
    ) -> KernelSpace:
        """Return the m leading directions of the rows, fewer where there are no more.

        Exact for up to `exact` rows, O(n²d) and an eigenproblem; beyond, in the span of
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
        exact : int
        """
        rng = np.random.default_rng(0) if rng is None else rng
        if int(X.shape[0]) <= max(exact, n_landmarks):
            how = KernelOptions(memory_limit=0)
            operator: Any = dual_operator(X, kernel, weights, how)
            if not operator.definite:
                warn_of_negatives(negatives_of(operator, rng))
            found = solve(operator, min(m, operator.shape[0]), solver, 1e-10, rng)
            found, total, trace = operator.oriented(found), operator.total, operator.trace
        else:
            how = KernelOptions("cholesky", seed=rng, n_landmarks=n_landmarks)
            operator = mapped_operator(InMemoryTable(X, weights), X, kernel, how.features, how)  # type: ignore[arg-type]
            found = solve(operator, min(m, operator.shape[0]), "dense")
            total, trace = operator.mapped.total, operator.kernel_trace
        values = backend.to_numpy(found.values)
        floor = max(NEGLIGIBLE_DIRECTION * float(values[0]), 10 * EPS * total)
        if not values[0] > floor:
            raise DegenerateError(
                "all rows are the same point of feature space: there is nothing to model. Give "
                "rows that differ, or another kernel."
            )
        spectrum = found.head(int((values > floor).sum()))
        return cls(operator.expansion(spectrum), spectrum.values / operator.n, trace / operator.n)

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
        """Share of the variance in feature space along the directions."""
        return float(backend.namespace(self.variances).sum(self.variances)) / self.total

    def __call__(self, X: Array) -> Array:
        """Return ψ(x) of every row, (n, m), in float64."""
        return self.subspace.coordinates(X)
