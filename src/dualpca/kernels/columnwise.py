"""Kernels of a sum over columns, k(x, y) = F(Σ_c g(x_c, y_c)); no third axis is ever formed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from dualpca.arrays import Array, algebra, backend
from dualpca.errors import expected
from dualpca.kernels.base import (
    Kernel,
    check_positive,
    column_rate,
    median_chi2_rate,
    median_taxicab_rate,
    number,
    scale_rate,
)


class Columnwise(Kernel):
    """A function F(D) of D = Σ_c g(x_c, y_c), summed one column after the other.

    Subclasses define `_term` (g), `_term_slope` (∂g/∂x), `_profile` (F, given D and d) and
    `_slope` (F'). Memory is O(nm).
    """

    def _term(self, x: Array, y: Array) -> Array:
        raise TypeError(expected("kernel", "a subclass that defines _term", type(self).__name__))

    def _term_slope(self, x: Array, y: Array) -> Array:
        name = type(self).__name__
        raise TypeError(expected("kernel", "a subclass that defines _term_slope", name))

    def _profile(self, D: Array, d: int) -> Array:
        raise TypeError(expected("kernel", "a subclass that defines _profile", type(self).__name__))

    def _slope(self, D: Array, d: int) -> Array:
        raise TypeError(expected("kernel", "a subclass that defines _slope", type(self).__name__))

    def _refuse(self, X: Array) -> None:
        """Refuse rows for which the kernel is not defined."""

    def _sum(self, X: Array, Y: Array) -> Array:
        D = backend.namespace(X).zeros_like(X[:, :1] + Y[:, 0][None, :])
        for c in range(X.shape[1]):
            D += self._term(X[:, c][:, None], Y[:, c][None, :])
        return D

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        self._refuse(Y)

        def of(X: Array) -> Array:
            self._refuse(X)
            return self._profile(self._sum(X, Y), int(Y.shape[1]))

        return of

    def _diag(self, X: Array) -> Array:
        """Return F(0): g(x, x) = 0 for all kernels here."""
        self._refuse(X)
        return self._profile(backend.namespace(X).zeros_like(X[:, 0]), int(X.shape[1]))

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        """Return Σ_j C_ij F'(D_ij) ∂g(z_ic, y_jc)/∂z_ic."""
        self._refuse(Z)
        self._refuse(Y)
        xp, d = backend.namespace(Z), int(Y.shape[1])
        S = C * self._slope(self._sum(Z, Y), d)
        columns = [
            xp.sum(S * self._term_slope(Z[:, c][:, None], Y[:, c][None, :]), axis=1)
            for c in range(d)
        ]
        return xp.stack(columns, axis=1)

    def _diag_gradient(self, Z: Array) -> Array:
        return backend.namespace(Z).zeros_like(Z)


@dataclass(frozen=True)
class Laplacian(Columnwise):
    """k(x, y) = exp(−γ ‖x − y‖₁), as scikit-learn's laplacian_kernel.

    Where x_c = y_c the gradient does not exist, and 0 stands for it.

    Parameters
    ----------
    gamma : float or {'scale', 'median', 'auto'}, optional
        γ > 0; 'scale' is 1/(d · variance), 'median' 1/(median of these distances), 'auto' and
        None are 1/d, as in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> Laplacian(gamma=1.0)(np.array([[0.0, 0.0]]), np.array([[0.5, -0.5]])).round(4)
    array([[0.3679]])
    """

    name: ClassVar[str] = "laplacian"
    invariant: ClassVar[bool] = True
    rules: ClassVar[dict[str, Any]] = {
        "gamma": {"scale": scale_rate, "median": median_taxicab_rate, "auto": column_rate}
    }
    gamma: float | str | None = None

    def _check(self) -> None:
        check_positive(self, "gamma")

    def rate_of(self, d: int) -> float:
        """Return γ for rows of d columns."""
        return 1.0 / d if self.gamma is None else number(self, self.gamma)

    def _sum(self, X: Array, Y: Array) -> Array:
        return algebra.taxicab(X, Y)

    def _term_slope(self, x: Array, y: Array) -> Array:
        return backend.namespace(x).sign(x - y)

    def _profile(self, D: Array, d: int) -> Array:
        return algebra.exp(-self.rate_of(d) * D)

    def _slope(self, D: Array, d: int) -> Array:
        return -self.rate_of(d) * self._profile(D, d)


class Histograms(Columnwise):
    """Kernels of D = Σ_c (x_c − y_c)²/(x_c + y_c) for non-negative entries, with 0/0 = 0."""

    nonnegative: ClassVar[bool] = True

    def _refuse(self, X: Array) -> None:
        xp = backend.namespace(X)
        if bool(xp.any(X < 0)):
            what = f"non-negative for the {type(self).__name__} kernel"
            remedy = "Use it for counts or histograms, or take another kernel."
            raise ValueError(expected("X", what, float(xp.min(X)), remedy))

    def _term(self, x: Array, y: Array) -> Array:
        return (x - y) ** 2 / _nonzero(x + y)

    def _term_slope(self, x: Array, y: Array) -> Array:
        return (x - y) * (x + 3 * y) / _nonzero(x + y) ** 2


@dataclass(frozen=True)
class Chi2(Histograms):
    """k(x, y) = exp(−γ Σ_c (x_c − y_c)²/(x_c + y_c)), as scikit-learn's chi2_kernel.

    Parameters
    ----------
    gamma : float or 'median'
        γ > 0; 'median' is 1/(median of these distances).

    Examples
    --------
    >>> import numpy as np
    >>> Chi2()(np.array([[1.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 0.0]])).round(4)
    array([[0.3679, 1.    ]])
    """

    name: ClassVar[str] = "chi2"
    rules: ClassVar[dict[str, Any]] = {"gamma": {"median": median_chi2_rate}}
    gamma: float | str = 1.0

    def _check(self) -> None:
        if self.gamma is None:
            raise ValueError(expected("gamma of Chi2", "positive, or 'median'", self.gamma))
        check_positive(self, "gamma")

    def _profile(self, D: Array, d: int) -> Array:
        return algebra.exp(-number(self, self.gamma) * D)

    def _slope(self, D: Array, d: int) -> Array:
        return -number(self, self.gamma) * self._profile(D, d)


@dataclass(frozen=True)
class AdditiveChi2(Histograms):
    """k(x, y) = −Σ_c (x_c − y_c)²/(x_c + y_c), as scikit-learn's additive_chi2_kernel.

    Its diagonal is 0, so it is positive semi-definite only once centred (a conditionally
    positive definite kernel): use it with centred models.

    Examples
    --------
    >>> import numpy as np
    >>> AdditiveChi2()(np.array([[1.0, 0.0]]), np.array([[0.0, 0.0], [3.0, 0.0]]))
    array([[-1., -1.]])
    """

    name: ClassVar[str] = "additive_chi2"
    definite: ClassVar[bool] = False

    def _profile(self, D: Array, d: int) -> Array:
        return 0.0 - D

    def _slope(self, D: Array, d: int) -> Array:
        return -backend.namespace(D).ones_like(D)


def _nonzero(total: Array) -> Array:
    """Return the sums, with 1 in place of 0: what is divided by them is 0 there."""
    xp = backend.namespace(total)
    return xp.where(total > 0, total, xp.ones_like(total))
