"""Kernels of the inner product and of the angle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb, factorial, pi, prod, sqrt
from typing import Any, ClassVar

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.data import Host
from dualpca.errors import DualPCAError, expected
from dualpca.kernels.base import (
    GAMMA_RULES,
    KNOWN_EXPECTATIONS,
    MOST_MONOMIALS,
    Distances,
    Exponent,
    Family,
    Form,
    Kernel,
    Monomials,
    OnnxGraph,
    Parameter,
    Poly,
    Profiled,
    Rate,
    Shift,
    Term,
    is_finite_number,
)

# --- Kernels of the inner product ----------------------------------------------------------------


@dataclass(frozen=True)
class Linear(Kernel):
    """The linear kernel, the inner product of two rows.

    k(x, y) = xᵀy.

    Parameters
    ----------
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> Linear()(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[11.]])
    """

    name: ClassVar[str] = "linear"
    sparse: ClassVar[bool] = True
    _linear: ClassVar[bool] = True
    _search = Family()

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        return lambda X: algebra.inner(X, Y)

    def _diag(self, X: Array) -> Array:
        return algebra.squared_norms(X)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        return C @ Y

    def _diag_gradient(self, Z: Array) -> Array:
        return 2 * Z

    def _terms(self, d: int) -> list[Term]:
        return [Term(1.0, np.zeros(d), (Poly(np.ones(d), 0.0, 1),))]

    def _features(self, X: Array) -> Array:
        return X

    def _monomials(self, d: int) -> Monomials | None:
        return frozenset((c,) for c in range(d))

    def _factor(self, X: Array) -> Array | None:
        return backend.working(X)

    def _onnx(self, graph: OnnxGraph, rows: str, points: Host) -> str | None:
        return graph.add("MatMul", rows, graph.constant(points.T))


@dataclass(frozen=True)
class Constant(Kernel):
    """The constant kernel, which adds a constant to the feature map; centring removes it.

    Parameters
    ----------
    value : float, default=1.0
        Positive.
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> (Linear() + Constant(2.0))(np.array([[1.0]]), np.array([[3.0]]))
    array([[5.]])
    """

    name: ClassVar[str] = "constant"
    _positive = ("value",)
    value: Rate = 1.0

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        m = int(Y.shape[0])
        return lambda X: self.value * backend.ones((int(X.shape[0]), m), X)

    def _diag(self, X: Array) -> Array:
        return self.value * backend.ones((int(X.shape[0]),), X)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        return backend.namespace(Z).zeros_like(Z)

    def _diag_gradient(self, Z: Array) -> Array:
        return backend.namespace(Z).zeros_like(Z)

    def _terms(self, d: int) -> list[Term]:
        return [Term(float(self.value), np.zeros(d))]

    def _monomials(self, d: int) -> Monomials | None:
        return frozenset([()])


class Affine(Profiled):
    """Base class of kernels that are a function of the scaled, shifted inner product.

    Subclasses define `gamma`, `coef0`, `_profile` (f, which may overwrite t) and `_slope` (f').

    They are f(t) with t = γ xᵀy + c.

    Parameters
    ----------
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> from dualpca.kernels import Affine, Polynomial, Sigmoid
    >>> issubclass(Polynomial, Affine), issubclass(Sigmoid, Affine)
    (True, True)
    """

    sparse: ClassVar[bool] = True
    rules: ClassVar[dict[str, Any]] = {"gamma": GAMMA_RULES}
    _positive = ("gamma",)
    gamma: Rate | str | None
    coef0: Shift

    def _check(self) -> None:
        if not is_finite_number(self.coef0):
            name = f"coef0 of {type(self).__name__}"
            raise ValueError(expected(name, "a finite number", self.coef0))

    def rate_for(self, X: Array) -> float:
        """Return γ; by default one over the number of columns of X.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        gamma : float

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import Polynomial
        >>> Polynomial().rate_for(np.zeros((3, 4)))
        0.25
        """
        return self._number(self.gamma, 1.0 / X.shape[1])

    def _argument(self, Y: Array) -> Callable[[Array], Array]:
        return lambda X: algebra.inner(self.rate_for(Y) * X, Y) + float(self.coef0)

    def _own(self, X: Array) -> Array:
        return self.rate_for(X) * algebra.squared_norms(X) + float(self.coef0)

    def _diag(self, X: Array) -> Array:
        return self._profile(self._own(X))

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        """Return Σ_j C_ij f'(t_ij) γ y_j."""
        return self.rate_for(Y) * ((C * self._slope(self._argument(Y)(Z))) @ Y)

    def _diag_gradient(self, Z: Array) -> Array:
        return 2 * self.rate_for(Z) * self._slope(self._own(Z))[:, None] * Z


MOST_DEGREE = 8
"""Of a fused GPU pass."""


@dataclass(frozen=True)
class Polynomial(Affine):
    """The polynomial kernel, as scikit-learn's polynomial_kernel.

    k(x, y) = (γ xᵀy + c)^p.

    Parameters
    ----------
    degree : int, default=3
        p ≥ 1, whole: other powers of negative numbers do not exist.
    gamma : float or {'scale', 'auto'}, default=None
        γ > 0; 'scale' is 1/(d · variance), 'auto' and None are 1/d, as in scikit-learn.
    coef0 : float, default=1.0
        c; where it is negative the kernel is not positive semi-definite.
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> Polynomial(degree=2, gamma=1.0)(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[144.]])
    """

    name: ClassVar[str] = "polynomial"
    _search = Family(
        (Parameter("degree", 2, choices=(2, 3, 4)), Parameter("coef0", 1.0, 0.01, 100.0)),
        lambda s, p: {**p, "gamma": 1 / s.norm},
    )
    degree: Exponent = 3
    gamma: Rate | str | None = None
    coef0: Shift = 1.0

    def _check(self) -> None:
        super()._check()
        p = self.degree
        if not is_finite_number(p) or p < 1 or p != int(p):
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

    def _fused_form(self, X: Array) -> Form | None:
        if self.degree > MOST_DEGREE:
            return None
        return Form("inner", sqrt(self.rate_for(X)), float(self.coef0), self.degree)

    def _terms(self, d: int) -> list[Term]:
        if self.degree > 3:
            name, what = "degree of Polynomial", "1, 2 or 3 where rows are uncertain"
            raise ValueError(expected(name, what, self.degree, KNOWN_EXPECTATIONS))
        weights = np.full(d, self.rate_for(np.empty((0, d))))
        return [Term(1.0, np.zeros(d), (Poly(weights, float(self.coef0), self.degree),))]

    def _distances(self, d: int) -> Distances | None:
        """Invert the power, if it is odd."""
        p, c, gamma = self.degree, self.coef0, self.gamma or 1 / d
        if p % 2 == 0 or isinstance(gamma, str):
            return None

        def distances(norms: Array, overlap: Array, P2: Array, x2: Array) -> Array:
            xp = backend.namespace(P2)
            own, both = ((xp.sign(K) * xp.abs(K) ** (1 / p) - c) / gamma for K in (P2, overlap))
            D2 = own + x2 - 2 * both
            return xp.where(D2 > 0, D2, 0 * D2)

        return distances

    def _features(self, X: Array) -> Array:
        """Return √(p!/(a!(p − |a|)!) γ^|a| c^(p − |a|)) x^a of all monomials of degree |a| ≤ p.

        C(d + p, p) in all, or C(d + p − 1, p) where c = 0.
        """
        d, p, c, gamma = int(X.shape[1]), self.degree, float(self.coef0), self.rate_for(X)
        if c < 0:
            return super()._features(X)
        if comb(d + p, p) > MOST_MONOMIALS:
            what = f"with at most {MOST_MONOMIALS} monomials"
            raise DualPCAError(expected("the polynomial", what, f"{comb(d + p, p)} of {d} columns"))
        one, found = backend.ones((int(X.shape[0]),), X), []
        for columns in self._products(d):
            counts = prod(factorial(columns.count(j)) for j in set(columns))
            k = len(columns)
            ways = factorial(p) / (counts * factorial(p - k))
            constant = sqrt(ways * gamma**k * c ** (p - k)) * one
            found.append(prod((X[:, j] for j in columns), start=constant))
        return backend.namespace(X).stack(found, axis=1)

    def _products(self, d: int) -> Iterator[tuple[int, ...]]:
        """Go through the monomials of (xᵀy + c)^p: of degree p, and below it where c > 0."""
        p = self.degree
        for k in range(p + 1) if self.coef0 > 0 else (p,):
            yield from combinations_with_replacement(range(d), k)

    def _monomials(self, d: int) -> Monomials | None:
        known = self.definite and comb(d + self.degree, self.degree) <= MOST_MONOMIALS
        return frozenset(self._products(d)) if known else None


@dataclass(frozen=True)
class Sigmoid(Affine):
    """The sigmoid kernel, as scikit-learn's sigmoid_kernel; not positive semi-definite.

    k(x, y) = tanh(γ xᵀy + c).

    Parameters
    ----------
    gamma : float or {'scale', 'auto'}, default=None
        γ > 0; 'scale' is 1/(d · variance), 'auto' and None are 1/d, as in scikit-learn.
    coef0 : float, default=1.0
        c.
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> Sigmoid(gamma=0.5, coef0=0.0)(np.array([[2.0]]), np.array([[1.0]])).round(4)
    array([[0.7616]])
    """

    name: ClassVar[str] = "sigmoid"
    definite: ClassVar[bool] = False
    gamma: Rate | str | None = None
    coef0: Shift = 1.0

    def _profile(self, T: Array) -> Array:
        return backend.namespace(T).tanh(T)

    def _slope(self, T: Array) -> Array:
        return 1 - backend.namespace(T).tanh(T) ** 2


# --- Kernels of the angle: k(x, y) = (‖x‖‖y‖)ᵖ F(cos θ) ------------------------------------------


class Angular(Profiled):
    """Base class of kernels that are a function of the angle between two rows.

    Subclasses define `power` (p), `_profile` (F) and `_slope` (F'). The cosine with a row of
    zeros is 0, as in scikit-learn. Cosines within rounding of ±1 count as ±1, because F may have
    a root there.

    They are (‖x‖‖y‖)ᵖ F(c), with c the cosine of the angle.

    Parameters
    ----------
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> from dualpca.kernels import Angular, ArcCosine, Cosine
    >>> issubclass(ArcCosine, Angular), issubclass(Cosine, Angular)
    (True, True)
    """

    power: ClassVar[int] = 0

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        B, b = unit_rows(Y)

        def values(X: Array) -> Array:
            A, a = unit_rows(X)
            K = self._profile(cosines(A, B))
            return K * (a**self.power)[:, None] * (b**self.power)[None, :] if self.power else K

        return values

    def _diag(self, X: Array) -> Array:
        a = unit_rows(X)[1]
        c = backend.namespace(X).astype(a > 0, a.dtype)
        return self._profile(c) * a ** (2 * self.power)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        """Return Σ_j C_ij ‖z‖^(p−1)‖y‖ᵖ {(pF − cF') ẑ + F' ŷ}, where hats mark unit rows."""
        xp, p = backend.namespace(Z), self.power
        (A, a), (B, b) = unit_rows(Z), unit_rows(Y)
        c = cosines(A, B)
        C = C * (b**p)[None, :]
        S = C * self._slope(c)
        along = xp.sum(p * C * self._profile(c) - S * c, axis=1)
        size = algebra.safe_divisor(a) ** (p - 1)
        size = size if p == 1 else xp.where(a > 0, size, xp.zeros_like(a))
        return size[:, None] * (along[:, None] * A + S @ B)

    def _diag_gradient(self, Z: Array) -> Array:
        """Return 2p ‖z‖^(2p−2) F(1) z."""
        xp, p = backend.namespace(Z), self.power
        if p == 0:
            return xp.zeros_like(Z)
        own = self._profile(backend.ones((1,), Z))
        return 2 * p * own * (xp.sum(Z * Z, axis=1) ** (p - 1))[:, None] * Z


@dataclass(frozen=True)
class Cosine(Angular):
    """The cosine of the angle between two rows, as scikit-learn's cosine_similarity.

    k(x, y) = xᵀy / (‖x‖‖y‖), and 0 where a row is zero.

    Parameters
    ----------
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> Cosine()(np.array([[3.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 0.0]]))
    array([[0.6, 0. ]])
    """

    name: ClassVar[str] = "cosine"
    _search = Family()

    def _factor(self, X: Array) -> Array | None:
        return unit_rows(backend.working(X))[0]

    def _dimension(self, d: int, *, center: bool) -> int | None:
        return d

    def _profile(self, c: Array) -> Array:
        return c

    def _slope(self, c: Array) -> Array:
        return backend.namespace(c).ones_like(c)


@dataclass(frozen=True)
class ArcCosine(Angular):
    """The arc-cosine kernel: an infinitely wide layer of units max(0, wᵀx)ᵖ.

    J₀ = π − θ, J₁ = sin θ + (π − θ) cos θ, J₂ = 3 sin θ cos θ + (π − θ)(1 + 2 cos² θ), and θ the
    angle between x and y; π/2 where a row is zero, which is the value of the integral there.

    k(x, y) = (‖x‖‖y‖)ᵖ J_p(θ)/π.

    Parameters
    ----------
    order : {0, 1, 2}, default=1
        p: steps, ramps or half parabolas.
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    References
    ----------
    Cho & Saul (2009), Kernel methods for deep learning, eqs. 3 to 6.

    Examples
    --------
    >>> import numpy as np
    >>> ArcCosine(order=0)(np.array([[1.0, 0.0]]), np.array([[0.0, 2.0], [3.0, 0.0]]))
    array([[0.5, 1. ]])
    """

    name: ClassVar[str] = "arc_cosine"
    _search = Family((Parameter("order", 1, choices=(0, 1, 2)),))
    order: int = 1

    def _check(self) -> None:
        if self.order not in (0, 1, 2) or isinstance(self.order, bool):
            raise ValueError(expected("order of ArcCosine", "0, 1 or 2", self.order))

    @property
    def power(self) -> int:  # type: ignore[override]
        """The order."""
        return int(self.order)

    def _profile(self, c: Array) -> Array:
        xp = backend.namespace(c)
        rest = pi - xp.acos(c)
        if self.order == 0:
            return rest / pi
        s = xp.sqrt((1 - c) * (1 + c))
        return (s + rest * c if self.order == 1 else 3 * s * c + rest * (1 + 2 * c * c)) / pi

    def _slope(self, c: Array) -> Array:
        """Return F'(c): 1/sin θ, π − θ and 4 sin θ + 4 (π − θ) cos θ, over π.

        Where θ is 0 or π the first has no derivative, and 0 is returned.
        """
        xp = backend.namespace(c)
        s = xp.sqrt((1 - c) * (1 + c))
        if self.order == 0:
            return xp.where(s > 0, 1 / (pi * algebra.safe_divisor(s)), s)
        rest = pi - xp.acos(c)
        return (rest if self.order == 1 else 4 * (s + rest * c)) / pi


def unit_rows(X: Array) -> tuple[Array, Array]:
    """Return the rows divided by their norms, and the norms; rows of zeros stay."""
    scale = algebra.row_magnitudes(X)
    X = X / scale[:, None]
    norms = backend.namespace(X).sqrt(algebra.squared_norms(X))
    return X / algebra.safe_divisor(norms)[:, None], scale * norms


def cosines(A: Array, B: Array) -> Array:
    """Return AᵀB of unit rows, (n, m), within [−1, 1] and exact where rounding hides the ends."""
    xp, c = backend.namespace(A), A @ B.T
    close = 1 - 8 * float(xp.finfo(c.dtype).eps)
    return xp.where(xp.abs(c) > close, xp.sign(c), c)
