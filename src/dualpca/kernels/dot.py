"""Kernels of the inner product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from dualpca import _algebra, _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.kernels.base import Kernel
from dualpca.kernels.heuristics import column_rate, scale_rate
from dualpca.kernels.parameters import check_positive, is_number, number

GAMMA = {"scale": scale_rate, "auto": column_rate}


@dataclass(frozen=True)
class Linear(Kernel):
    """k(x, y) = xᵀy.

    Examples
    --------
    >>> import numpy as np
    >>> Linear()(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[11.]])
    """

    name: ClassVar[str] = "linear"
    sparse: ClassVar[bool] = True

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        return lambda X: _algebra.inner(X, Y)

    def _diag(self, X: Array) -> Array:
        return _algebra.squared_norms(X)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        return C @ Y

    def _diag_gradient(self, Z: Array) -> Array:
        return 2 * Z


@dataclass(frozen=True)
class Constant(Kernel):
    """k(x, y) = value, which adds a constant to the feature map; centring removes it again.

    Parameters
    ----------
    value : float
        Positive.

    Examples
    --------
    >>> import numpy as np
    >>> (Linear() + Constant(2.0))(np.array([[1.0]]), np.array([[3.0]]))
    array([[5.]])
    """

    name: ClassVar[str] = "constant"
    value: float = 1.0

    def _check(self) -> None:
        check_positive(self, "value")

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        m = int(Y.shape[0])
        return lambda X: self.value * _array.ones((int(X.shape[0]), m), X)

    def _diag(self, X: Array) -> Array:
        return self.value * _array.ones((int(X.shape[0]),), X)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        return _array.namespace(Z).zeros_like(Z)

    def _diag_gradient(self, Z: Array) -> Array:
        return _array.namespace(Z).zeros_like(Z)


class Affine(Kernel):
    """A function f(t) of t = γ xᵀy + c.

    Subclasses define `gamma`, `coef0`, `_profile` (f, which may overwrite t) and `_slope` (f').
    """

    sparse: ClassVar[bool] = True
    gamma: float | str | None
    coef0: float

    def _check(self) -> None:
        check_positive(self, "gamma")
        if not is_number(self.coef0):
            name = f"coef0 of {type(self).__name__}"
            raise ValueError(expected(name, "a finite number", self.coef0))

    def rate_for(self, X: Array) -> float:
        """Return γ; one over the number of columns of X where none is given."""
        return 1.0 / X.shape[1] if self.gamma is None else number(self, self.gamma)

    def _profile(self, T: Array) -> Array:
        raise TypeError(expected("kernel", "a subclass that defines _profile", type(self).__name__))

    def _slope(self, T: Array) -> Array:
        raise TypeError(expected("kernel", "a subclass that defines _slope", type(self).__name__))

    def _affine(self, X: Array, Y: Array) -> Array:
        return _algebra.inner(self.rate_for(Y) * X, Y) + float(self.coef0)

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        return lambda X: self._profile(self._affine(X, Y))

    def _own(self, X: Array) -> Array:
        return self.rate_for(X) * _algebra.squared_norms(X) + float(self.coef0)

    def _diag(self, X: Array) -> Array:
        return self._profile(self._own(X))

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        """Return Σ_j C_ij f'(t_ij) γ y_j."""
        return self.rate_for(Y) * ((C * self._slope(self._affine(Z, Y))) @ Y)

    def _diag_gradient(self, Z: Array) -> Array:
        return 2 * self.rate_for(Z) * self._slope(self._own(Z))[:, None] * Z


@dataclass(frozen=True)
class Polynomial(Affine):
    """k(x, y) = (γ xᵀy + c)^p, as scikit-learn's polynomial_kernel.

    Parameters
    ----------
    degree : int
        p ≥ 1, whole: other powers of negative numbers do not exist.
    gamma : float or {'scale', 'auto'}, optional
        γ > 0; 'scale' is 1/(d · variance), 'auto' and None are 1/d, as in scikit-learn.
    coef0 : float
        c; where it is negative the kernel is not positive semi-definite.

    Examples
    --------
    >>> import numpy as np
    >>> Polynomial(degree=2, gamma=1.0)(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[144.]])
    """

    name: ClassVar[str] = "polynomial"
    rules: ClassVar[dict[str, Any]] = {"gamma": GAMMA}
    degree: int = 3
    gamma: float | str | None = None
    coef0: float = 1.0

    def _check(self) -> None:
        super()._check()
        p = self.degree
        if not is_number(p) or p < 1 or p != int(p):
            raise ValueError(expected("degree of Polynomial", "a whole number from 1", p))
        object.__setattr__(self, "degree", int(p))

    @property
    def definite(self) -> bool:  # type: ignore[override]
        """Whether c ≥ 0."""
        return self.coef0 >= 0

    def _profile(self, T: Array) -> Array:
        return T**self.degree

    def _slope(self, T: Array) -> Array:
        return self.degree * T ** (self.degree - 1)


@dataclass(frozen=True)
class Sigmoid(Affine):
    """k(x, y) = tanh(γ xᵀy + c), as scikit-learn's sigmoid_kernel; not positive semi-definite.

    Parameters
    ----------
    gamma : float or {'scale', 'auto'}, optional
        γ > 0; 'scale' is 1/(d · variance), 'auto' and None are 1/d, as in scikit-learn.
    coef0 : float
        c.

    Examples
    --------
    >>> import numpy as np
    >>> Sigmoid(gamma=0.5, coef0=0.0)(np.array([[2.0]]), np.array([[1.0]])).round(4)
    array([[0.7616]])
    """

    name: ClassVar[str] = "sigmoid"
    definite: ClassVar[bool] = False
    rules: ClassVar[dict[str, Any]] = {"gamma": GAMMA}
    gamma: float | str | None = None
    coef0: float = 1.0

    def _profile(self, T: Array) -> Array:
        return _array.namespace(T).tanh(T)

    def _slope(self, T: Array) -> Array:
        return 1 - _array.namespace(T).tanh(T) ** 2
