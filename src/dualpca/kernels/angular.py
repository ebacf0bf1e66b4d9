"""Kernels of the angle: k(x, y) = (‖x‖‖y‖)ᵖ F(cos θ)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi
from typing import ClassVar

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.kernels.base import Kernel


class Angular(Kernel):
    """A function F of the cosine c of the angle, times (‖x‖‖y‖)ᵖ.

    Subclasses define `power` (p), `_profile` (F) and `_slope` (F'). The cosine with a row of
    zeros is 0, as in scikit-learn. Cosines within rounding of ±1 count as ±1, because F may have
    a root there.
    """

    power: ClassVar[int] = 0

    def _profile(self, c: Array) -> Array:
        raise TypeError(expected("kernel", "a subclass that defines _profile", type(self).__name__))

    def _slope(self, c: Array) -> Array:
        raise TypeError(expected("kernel", "a subclass that defines _slope", type(self).__name__))

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        B, b = unit_rows(Y)

        def of(X: Array) -> Array:
            A, a = unit_rows(X)
            K = self._profile(cosines(A, B))
            return K * (a**self.power)[:, None] * (b**self.power)[None, :] if self.power else K

        return of

    def _diag(self, X: Array) -> Array:
        xp = _array.namespace(X)
        _, a = unit_rows(X)
        c = xp.where(a > 0, xp.ones_like(a), xp.zeros_like(a))
        return self._profile(c) * a ** (2 * self.power)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        """Return Σ_j C_ij ‖z‖^(p−1)‖y‖ᵖ {(pF − cF') ẑ + F' ŷ}, where hats mark unit rows."""
        xp, p = _array.namespace(Z), self.power
        (A, a), (B, b) = unit_rows(Z), unit_rows(Y)
        c = cosines(A, B)
        C = C * (b**p)[None, :]
        S = C * self._slope(c)
        along = xp.sum(p * C * self._profile(c) - S * c, axis=1)
        safe = xp.where(a > 0, a, xp.ones_like(a))
        size = safe ** (p - 1) if p == 1 else xp.where(a > 0, safe ** (p - 1), xp.zeros_like(a))
        return size[:, None] * (along[:, None] * A + S @ B)

    def _diag_gradient(self, Z: Array) -> Array:
        """Return 2p ‖z‖^(2p−2) F(1) z."""
        xp, p = _array.namespace(Z), self.power
        if p == 0:
            return xp.zeros_like(Z)
        own = self._profile(_array.ones((1,), Z))
        return 2 * p * own * (xp.sum(Z * Z, axis=1) ** (p - 1))[:, None] * Z


@dataclass(frozen=True)
class Cosine(Angular):
    """k(x, y) = xᵀy / (‖x‖‖y‖), 0 where a row is zero, as scikit-learn's cosine_similarity.

    Examples
    --------
    >>> import numpy as np
    >>> Cosine()(np.array([[3.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 0.0]]))
    array([[0.6, 0. ]])
    """

    name: ClassVar[str] = "cosine"

    def _profile(self, c: Array) -> Array:
        return c

    def _slope(self, c: Array) -> Array:
        return _array.namespace(c).ones_like(c)


@dataclass(frozen=True)
class ArcCosine(Angular):
    """k(x, y) = (‖x‖‖y‖)ᵖ J_p(θ)/π: an infinitely wide layer of units max(0, wᵀx)ᵖ.

    J₀ = π − θ, J₁ = sin θ + (π − θ) cos θ, J₂ = 3 sin θ cos θ + (π − θ)(1 + 2 cos² θ), and θ the
    angle between x and y; π/2 where a row is zero, which is the value of the integral there.

    Parameters
    ----------
    order : {0, 1, 2}
        p: steps, ramps or half parabolas.

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
    order: int = 1

    def _check(self) -> None:
        if self.order not in (0, 1, 2) or isinstance(self.order, bool):
            raise ValueError(expected("order of ArcCosine", "0, 1 or 2", self.order))

    @property
    def power(self) -> int:  # type: ignore[override]
        """The order."""
        return int(self.order)

    def _profile(self, c: Array) -> Array:
        xp = _array.namespace(c)
        rest = pi - xp.acos(c)
        if self.order == 0:
            return rest / pi
        s = xp.sqrt((1 - c) * (1 + c))
        J = s + rest * c if self.order == 1 else 3 * s * c + rest * (1 + 2 * c * c)
        return J / pi

    def _slope(self, c: Array) -> Array:
        """Return F'(c): 1/sin θ, π − θ and 4 sin θ + 4 (π − θ) cos θ, over π.

        Where θ is 0 or π the first has no derivative, and 0 stands for it.
        """
        xp = _array.namespace(c)
        s = xp.sqrt((1 - c) * (1 + c))
        if self.order == 0:
            return xp.where(s > 0, 1 / (pi * xp.where(s > 0, s, xp.ones_like(s))), s)
        rest = pi - xp.acos(c)
        return (rest if self.order == 1 else 4 * (s + rest * c)) / pi


def unit_rows(X: Array) -> tuple[Array, Array]:
    """Return the rows divided by their norms, and the norms; rows of zeros stay."""
    xp = _array.namespace(X)
    largest = xp.max(xp.abs(X), axis=1)
    usual = (largest > 0) & xp.isfinite(largest)
    # squares of large or small entries are no numbers; a power of two scales without rounding
    scale = 2.0 ** xp.floor(xp.log2(xp.where(usual, largest, xp.ones_like(largest))))
    X = X / scale[:, None]
    norms = xp.sqrt(xp.sum(X * X, axis=1))
    return X / xp.where(norms > 0, norms, xp.ones_like(norms))[:, None], scale * norms


def cosines(A: Array, B: Array) -> Array:
    """Return AᵀB of unit rows, (n, m), within [−1, 1] and exact where rounding hides the ends."""
    xp = _array.namespace(A)
    c = A @ B.T
    close = 1 - 8 * float(xp.finfo(c.dtype).eps)
    one = xp.ones_like(c)
    return xp.where(c > close, one, xp.where(c < -close, -one, c))
