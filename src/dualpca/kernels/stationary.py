"""Kernels of the distance: k(x, y) = f(u) with u = rate · ‖x − y‖²."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.kernels.base import Kernel
from dualpca.kernels.heuristics import median_length, median_rate, scale_rate


class Stationary(Kernel):
    """A function of u = rate · ‖x − y‖², which one product gives for a whole block.

    Subclasses define `rate`, `_profile` (f at u, given −u ≤ 0, which it may overwrite) and
    `_slope` (df/du, likewise). `rough` says that f is not smooth at 0, where rounding errors of
    u would be felt: what is within them of 0 then counts as 0.
    """

    rough: ClassVar[bool] = False

    @property
    def rate(self) -> float:
        """The factor of ‖x − y‖² in u."""
        raise TypeError(expected("kernel", "a subclass that defines rate", type(self).__name__))

    def _profile(self, E: Array) -> Array:
        raise TypeError(expected("kernel", "a subclass that defines _profile", type(self).__name__))

    def _slope(self, E: Array) -> Array:
        raise TypeError(expected("kernel", "a subclass that defines _slope", type(self).__name__))

    def profile(self, U: Array) -> Array:
        """Return f at u ≥ 0, of any shape."""
        return self._profile(-U)

    def slopes(self, X: Array, Y: Array) -> Array:
        """Return df/du at u(x_i, y_j), (n, m)."""
        return self._slope(self._minus_u(self._seen(Y))(self._seen(X)))

    def _minus_u(self, Y: Array) -> Callable[[Array], Array]:
        """Return x ↦ −u(x, y_j), from one product of rows [a, −½‖a‖², 1] and [b, 1, −½‖b‖²].

        Rows are measured from the mean of Y, so that far-away data lose no digits, and clipped
        at 0, which rounding would pass.
        """
        xp = _array.namespace(Y)
        origin = xp.mean(Y, axis=0)
        factor = sqrt(2 * self.rate)

        def lifted(X: Array, flip: bool) -> tuple[Array, Array]:
            A = (X - origin) * factor
            half = -0.5 * xp.sum(A * A, axis=1)[:, None]
            last = [xp.ones_like(half), half] if flip else [half, xp.ones_like(half)]
            return xp.concat([A, *last], axis=1), half

        B, b = lifted(Y, flip=True)
        eps = float(xp.finfo(Y.dtype).eps)

        def of(X: Array) -> Array:
            A, a = lifted(X, flip=False)
            E = A @ B.T
            if not self.rough:
                return _array.at_most_zero(E)
            close = 8 * eps * float(xp.min(a) + xp.min(b))
            return xp.where(E > close, xp.zeros_like(E), E)

        return of

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        of = self._minus_u(Y)
        return lambda X: self._profile(of(X))

    def _diag(self, X: Array) -> Array:
        return _array.namespace(X).ones_like(X[:, 0])

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        """Return Σ_j C_ij f'(u_ij) 2 rate (z_i − y_j)."""
        S = C * self._slope(self._minus_u(Y)(Z))
        total = _array.namespace(S).sum(S, axis=1)
        return 2 * self.rate * (total[:, None] * Z - S @ Y)

    def _diag_gradient(self, Z: Array) -> Array:
        return _array.namespace(Z).zeros_like(Z)


@dataclass(frozen=True)
class RBF(Stationary):
    """k(x, y) = exp(−γ‖x − y‖²).

    Parameters
    ----------
    gamma : float or {'scale', 'median'}, optional
        γ > 0; 'scale' is 1/(d · variance), as in scikit-learn, and 'median' 1/(median of the
        squared distances). 1 where neither parameter is given.
    length_scale : float or 'median', optional
        γ = 1 / (2·length_scale²). Give one of the two, never both.

    Examples
    --------
    >>> import numpy as np
    >>> RBF(gamma=1.0)(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(4)
    array([[1.    , 0.3679]])
    """

    name: ClassVar[str] = "rbf"
    rules: ClassVar[dict[str, Any]] = {
        "gamma": {"scale": scale_rate, "median": median_rate},
        "length_scale": {"median": median_length},
    }
    gamma: float | str | None = None
    length_scale: float | str | None = None

    def _check(self) -> None:
        check_width(self, self.gamma, self.length_scale)

    @property
    def rate(self) -> float:
        """γ."""
        if self.length_scale is not None:
            return 0.5 / number(self, self.length_scale) ** 2
        return 1.0 if self.gamma is None else number(self, self.gamma)

    def _profile(self, E: Array) -> Array:
        return _array.exp(E)

    def _slope(self, E: Array) -> Array:
        return -_array.exp(E)


def check_width(kernel: Kernel, gamma: Any, length_scale: Any) -> None:
    """Refuse both widths at once, and widths that are not positive."""
    if gamma is not None and length_scale is not None:
        what = "given gamma or length_scale, not both"
        raise ValueError(expected(type(kernel).__name__, what, kernel))
    for value in (gamma, length_scale):
        if value is not None and not isinstance(value, str) and not 0 < value < np.inf:
            what = "given a positive gamma or length_scale"
            raise ValueError(expected(type(kernel).__name__, what, kernel))


def number(kernel: Kernel, value: Any) -> float:
    """Return a parameter that must be a number by now."""
    if isinstance(value, str):
        raise ValueError(
            f"{kernel!r} takes {value!r} from the rows: call resolve(X) first, or fit a model."
        )
    return float(value)
