"""Kernels of the distance: k(x, y) = f(u) with u = rate · ‖x − y‖², or a rate for every column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sqrt
from typing import Any, ClassVar

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.errors import expected
from dualpca.kernels.base import (
    Kernel,
    as_lengths,
    check_positive,
    check_width,
    column_rate,
    median_length,
    median_rate,
    number,
    scale_rate,
)

# --- Squared distances from one product of matrices, with the digits that this could lose --------

NEIGHBOURS = 1e-6
"""Share of their squared norms below which a squared distance has lost too many digits."""


def _rounded(E: Array, size: Array) -> Array:
    """Return −u with 0 for what is within rounding errors of it; `size` is −½(‖a‖² + ‖b‖²)."""
    xp = backend.namespace(E)
    close = xp.astype(8 * float(xp.finfo(E.dtype).eps) * size, E.dtype)
    return xp.where(E > close, xp.zeros_like(E), E)


def lifted(A: Array, dtype: Any, *, flip: bool) -> tuple[Array, Array]:
    """Return rows [a, −½‖a‖², 1], or [a, 1, −½‖a‖²], and −½‖a‖² in float64, (n, 1).

    A comes in float64 whatever the dtype: a factor that float32 rounds would scale all distances
    alike, and show in eigenvalues.
    """
    xp = backend.namespace(A)
    A = A if dtype == xp.float64 else xp.astype(A, dtype)
    double = backend.working(A)
    half = -0.5 * xp.sum(double * double, axis=1)[:, None]
    high = xp.astype(half, dtype)
    last = [xp.ones_like(high), high] if flip else [high, xp.ones_like(high)]
    return xp.concat([A, *last], axis=1), half


def near_zero(E: Array, A: Array, B: Array, size: Array) -> Array:
    """Return −u where rounding errors beside its own size would be felt: for pairs of neighbours.

    NumPy takes their differences anew; other libraries count what is within rounding of 0 as 0.
    """
    if backend.is_foreign(E):
        return _rounded(E, size)
    i, j = np.nonzero(E > NEIGHBOURS * size)
    for part in backend.slices(len(i), 4096):
        gap = A[i[part]] - B[j[part]]
        E[i[part], j[part]] = -0.5 * np.sum(gap * gap, axis=1)
    return algebra.at_most_zero(E)


def sparse_minus_u(Y: Array, factor: Any, *, rough: bool) -> Callable[[Array], Array]:
    """Return x ↦ −u(x, y_j) for sparse rows, which cannot be measured from a mean.

    Where the kernel is `rough` at 0, what is within rounding of 0 counts as 0.
    """
    B = Y.multiply(factor).tocsr()
    b = 0.5 * algebra.squared_norms(B)

    def of(X: Array) -> Array:
        A = X.multiply(factor).tocsr() if backend.is_sparse(X) else X * factor
        a = 0.5 * algebra.squared_norms(A)[:, None]
        E = algebra.inner(A, B) - a - b
        return _rounded(E, -a - b) if rough else algebra.at_most_zero(E)

    return of


# --- Kernels of the distance: k(x, y) = f(u) with u = rate · ‖x − y‖², or a rate for every column


class Stationary(Kernel):
    """A function of u = rate · ‖x − y‖², which one product gives for a whole block.

    Subclasses define `rate`, `_profile` (f at u, given −u ≤ 0, which it may overwrite) and
    `_slope` (df/du, likewise). `rough` says that f is not smooth at 0, where rounding errors of
    u would be felt: what is within them of 0 then counts as 0.
    """

    invariant: ClassVar[bool] = True
    sparse: ClassVar[bool] = True
    rough: ClassVar[bool] = False
    _monotone: ClassVar[bool] = True
    """Whether f falls all the way, so that a distance can be read off a kernel value."""

    @property
    def rate(self) -> float:
        """The factor of ‖x − y‖² in u."""
        raise TypeError(expected("kernel", "a subclass that defines rate", type(self).__name__))

    def rates(self, like: Array) -> float | Array:
        """Return the factor of (x_c − y_c)² in u: one for all columns, or (d,)."""
        return self.rate

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
        xp = backend.namespace(Y)
        rates = self.rates(Y)
        factor = (
            sqrt(2 * rates) if isinstance(rates, float) else xp.sqrt(2 * backend.working(rates))
        )
        if backend.is_sparse(Y):
            return sparse_minus_u(Y, factor, rough=self.rough)
        origin = xp.mean(backend.working(Y), axis=0)
        B, b = lifted((backend.working(Y) - origin) * factor, Y.dtype, flip=True)
        d = int(Y.shape[1])

        def of(X: Array) -> Array:
            A, a = lifted((backend.working(X) - origin) * factor, X.dtype, flip=False)
            E = A @ B.T
            if not self.rough:
                return algebra.at_most_zero(E)
            return near_zero(E, A[:, :d], B[:, :d], a + b.T)

        return of

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        of = self._minus_u(Y)
        return lambda X: self._profile(of(X))

    def _diag(self, X: Array) -> Array:
        return backend.ones((int(X.shape[0]),), X)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        """Return Σ_j C_ij f'(u_ij) 2 rate (z_i − y_j), both measured from the mean of Y."""
        xp = backend.namespace(Z)
        S = C * self._slope(self._minus_u(Y)(Z))
        origin = xp.mean(Y, axis=0)
        total = xp.sum(S, axis=1)[:, None]
        return 2 * self.rates(Y) * (total * (Z - origin) - S @ (Y - origin))

    def _diag_gradient(self, Z: Array) -> Array:
        return backend.namespace(Z).zeros_like(Z)


class Lengths(Stationary):
    """Widths given by `length_scale`: u = gain · Σ_c ((x_c − y_c)/length_scale_c)².

    Subclasses define `gain`.
    """

    length_scale: Any
    gain: float

    def __post_init__(self) -> None:
        """Keep a length scale for every column as a tuple, so that kernels can be hashed."""
        object.__setattr__(self, "length_scale", as_lengths(self.length_scale))
        super().__post_init__()

    def _check(self) -> None:
        check_width(self, None, self.length_scale)

    @property
    def rate(self) -> float:
        """Gain over length_scale²; an error where every column has its own."""
        return self.gain / number(self, self.length_scale) ** 2

    def rates(self, like: Array) -> float | Array:
        """Return gain / length_scale²: one number, or one for every column, (d,)."""
        if not isinstance(self.length_scale, tuple):
            return self.rate
        if len(self.length_scale) != like.shape[1]:
            what = f"one number for each of the {like.shape[1]} columns"
            raise ValueError(expected("length_scale", what, self.length_scale))
        return backend.constants([self.gain / v**2 for v in self.length_scale], like)


@dataclass(frozen=True)
class RBF(Lengths):
    """k(x, y) = exp(−γ‖x − y‖²).

    Parameters
    ----------
    gamma : float or {'scale', 'median', 'auto'}, optional
        γ > 0; 'scale' is 1/(d · variance) and 'auto' 1/d, as in scikit-learn, and 'median'
        1/(median of the squared distances). 1 where neither parameter is given.
    length_scale : float, 'median' or sequence of d floats, optional
        γ = 1 / (2·length_scale²), for every column its own if there are several. Give one of the
        two, never both.

    Examples
    --------
    >>> import numpy as np
    >>> RBF(gamma=1.0)(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(4)
    array([[1.    , 0.3679]])
    """

    name: ClassVar[str] = "rbf"
    rules: ClassVar[dict[str, Any]] = {
        "gamma": {"scale": scale_rate, "median": median_rate, "auto": column_rate},
        "length_scale": {"median": median_length},
    }
    gain: ClassVar[float] = 0.5  # type: ignore[misc]
    gamma: float | str | None = None
    length_scale: Any = None

    def _check(self) -> None:
        check_width(self, self.gamma, self.length_scale)

    @property
    def rate(self) -> float:
        """γ."""
        if self.length_scale is not None:
            return super().rate
        return 1.0 if self.gamma is None else number(self, self.gamma)

    def _profile(self, E: Array) -> Array:
        return algebra.exp(E)

    def _slope(self, E: Array) -> Array:
        return -algebra.exp(E)


@dataclass(frozen=True)
class Matern(Lengths):
    """Matérn's kernels e^(−t), (1 + t)e^(−t), (1 + t + t²/3)e^(−t), t = √(2ν)‖x − y‖/length_scale.

    The larger ν the smoother; as ν → ∞ they become the RBF. At y = x the gradient of ν = 1/2
    does not exist, and 0 stands for it. Equal to scikit-learn's Matern for Gaussian processes.

    Parameters
    ----------
    nu : {0.5, 1.5, 2.5}
    length_scale : float, 'median' or sequence of d floats
        One width, or one for every column.

    References
    ----------
    Rasmussen & Williams (2006), Gaussian Processes for Machine Learning, eqs. 4.14 to 4.17.

    Examples
    --------
    >>> import numpy as np
    >>> Matern(nu=0.5)(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(4)
    array([[1.    , 0.3679]])
    """

    name: ClassVar[str] = "matern"
    rules: ClassVar[dict[str, Any]] = {"length_scale": {"median": median_length}}
    nu: float = 1.5
    length_scale: Any = 1.0

    def _check(self) -> None:
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(expected("nu of Matern", "0.5, 1.5 or 2.5", self.nu))
        super()._check()

    @property
    def gain(self) -> float:  # type: ignore[override]
        """2ν."""
        return 2 * self.nu

    @property
    def rough(self) -> bool:  # type: ignore[override]
        """Whether ν = 1/2."""
        return self.nu == 0.5

    def _profile(self, E: Array) -> Array:
        xp = backend.namespace(E)
        t = xp.sqrt(-E)
        if self.nu == 0.5:
            return xp.exp(-t)
        return (1 + t if self.nu == 1.5 else 1 + t - E / 3) * xp.exp(-t)

    def _slope(self, E: Array) -> Array:
        """Return df/du: −e^(−t)/(2t), −e^(−t)/2 and −(1 + t)e^(−t)/6."""
        xp = backend.namespace(E)
        t = xp.sqrt(-E)
        if self.nu == 0.5:
            safe = xp.where(t > 0, t, xp.ones_like(t))
            return xp.where(t > 0, -xp.exp(-t) / (2 * safe), xp.zeros_like(t))
        return -xp.exp(-t) / 2 if self.nu == 1.5 else -(1 + t) * xp.exp(-t) / 6


@dataclass(frozen=True)
class RationalQuadratic(Lengths):
    """k(x, y) = (1 + ‖x − y‖²/(2α length_scale²))^(−α): RBFs of many widths, mixed.

    As α → ∞ it becomes the RBF. Equal to scikit-learn's for Gaussian processes.

    Parameters
    ----------
    alpha : float
        α > 0.
    length_scale : float, 'median' or sequence of d floats
        One width, or one for every column.

    Examples
    --------
    >>> import numpy as np
    >>> RationalQuadratic(alpha=0.5)(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(4)
    array([[1.    , 0.7071]])
    """

    name: ClassVar[str] = "rational_quadratic"
    rules: ClassVar[dict[str, Any]] = {"length_scale": {"median": median_length}}
    alpha: float = 1.0
    length_scale: Any = 1.0

    def _check(self) -> None:
        check_positive(self, "alpha")
        super()._check()

    @property
    def gain(self) -> float:  # type: ignore[override]
        """1/(2α)."""
        return 0.5 / self.alpha

    def _profile(self, E: Array) -> Array:
        return self._power(E, -float(self.alpha))

    def _slope(self, E: Array) -> Array:
        return -float(self.alpha) * self._power(E, -float(self.alpha) - 1)

    @staticmethod
    def _power(E: Array, p: float) -> Array:
        """Return (1 + u)ᵖ; for a large α, u is small and 1 + u would have lost it."""
        xp = backend.namespace(E)
        return algebra.exp(p * xp.log1p(-E))


# --- What repeats: a function of the sine of the distance ----------------------------------------


@dataclass(frozen=True)
class Periodic(Stationary):
    """k(x, y) = exp(−2 sin²(π‖x − y‖/periodicity)/length_scale²).

    Equal to scikit-learn's ExpSineSquared, which takes the Euclidean distance over all columns:
    that is positive semi-definite for one column only. Give each periodic column its own, and
    multiply: `Periodic(on=[0]) * Periodic(on=[1])`.

    Parameters
    ----------
    periodicity : float
        The period, in the units of the column.
    length_scale : float
        Width within a period, in units of its length over π.

    References
    ----------
    MacKay (1998), Introduction to Gaussian processes, eq. 47.

    Examples
    --------
    >>> import numpy as np
    >>> Periodic(periodicity=24.0)(np.array([[1.0]]), np.array([[25.0], [13.0]])).round(4)
    array([[1.    , 0.1353]])
    """

    name: ClassVar[str] = "periodic"
    _monotone: ClassVar[bool] = False
    periodicity: float = 1.0
    length_scale: float = 1.0

    def _check(self) -> None:
        check_positive(self, "periodicity", "length_scale")

    @property
    def definite(self) -> bool:  # type: ignore[override]
        """Whether `on` names one column."""
        return self.on is not None and len(self.on) == 1

    @property
    def rate(self) -> float:
        """(π/periodicity)²."""
        return (pi / self.periodicity) ** 2

    def _profile(self, E: Array) -> Array:
        xp = backend.namespace(E)
        return xp.exp(-2 * (xp.sin(xp.sqrt(-E)) / float(self.length_scale)) ** 2)

    def _slope(self, E: Array) -> Array:
        """Return df/du = −f sin(2t)/(t length_scale²), t = √u; at t = 0 the fraction is 2."""
        xp = backend.namespace(E)
        t = xp.sqrt(-E)
        safe = xp.where(t > 0, t, xp.ones_like(t))
        ratio = xp.where(t > 0, xp.sin(2 * t) / safe, 2 * xp.ones_like(t))
        return -self._profile(E) * ratio / float(self.length_scale) ** 2
