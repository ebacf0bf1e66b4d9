"""Kernels of a distance: Euclidean (RBF, Matérn, …), or a sum over columns (Laplacian, χ²)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log2, pi, sqrt
from typing import Any, ClassVar

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.errors import expected
from dualpca.kernels.base import (
    WIDTH,
    Distances,
    Family,
    Form,
    Host,
    Kernel,
    Parameter,
    Term,
    as_lengths,
    check_positive,
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

    NumPy computes their differences anew; other libraries count what is within rounding of 0 as 0.
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

LOG2_E = log2(2.718281828459045)

FLOOR = 1e-12
"""Smallest kernel value that is turned into a distance, where f(0) = 1."""


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
    _profile: Callable[[Array], Array]
    _slope: Callable[[Array], Array]

    @property
    def rate(self) -> float:
        """The factor of ‖x − y‖² in u."""
        raise TypeError(expected("kernel", "a subclass that defines rate", type(self).__name__))

    def rates(self, like: Array) -> float | Array:
        """Return the factor of (x_c − y_c)² in u: one for all columns, or (d,)."""
        return self.rate

    def profile(self, U: Array) -> Array:
        """Return f at u ≥ 0, of any shape."""
        return self._profile(-U)

    def slopes(self, X: Array, Y: Array) -> Array:
        """Return df/du at u(x_i, y_j), (n, m)."""
        return self._slope(self._minus_u(self._seen(Y))(self._seen(X)))

    def _root(self, like: Array, times: float) -> Any:
        """Return the factor of rows a with ½‖a − b‖² = times/2 · u: a number, or one per column."""
        rates = self.rates(like)
        if isinstance(rates, float):
            return sqrt(times * rates)
        return backend.namespace(like).sqrt(times * backend.working(rates))

    def _minus_u(self, Y: Array) -> Callable[[Array], Array]:
        """Return x ↦ −u(x, y_j), from one product of rows [a, −½‖a‖², 1] and [b, 1, −½‖b‖²].

        Rows are measured from the mean of Y, so that far-away data lose no digits, and clipped
        at 0, which rounding would pass.
        """
        factor = self._root(Y, 2.0)
        if backend.is_sparse(Y):
            return sparse_minus_u(Y, factor, rough=self.rough)
        origin = backend.namespace(Y).mean(backend.working(Y), axis=0)
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

    def _distances(self, d: int) -> Distances | None:
        """Invert f(u) = 1 − ½‖φ(x) − P‖², if f falls all the way."""
        if not self._monotone:
            return None
        return lambda k, o, p, x: self._inverse_profile(o + 0.5 * (1 - p)) / self.rate

    def _inverse_profile(self, K: Array) -> Array:
        """Return u with f(u) = K, for K clipped to [1e-12, 1], by bisection over log u."""
        xp, K = backend.namespace(K), _clipped(K)
        low, high = -80.0 + 0 * K, 80.0 + 0 * K
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = self.profile(xp.exp(middle)) > K
            low, high = xp.where(above, middle, low), xp.where(above, high, middle)
        return xp.where(K < 1, xp.exp(high), 0 * K)

    def _radial_slopes(self) -> Callable[[Array, Array], Array] | None:
        return self.slopes


def _clipped(K: Array) -> Array:
    """Return kernel values between `FLOOR` and 1."""
    xp = backend.namespace(K)
    return xp.where(K > 1, xp.ones_like(K), xp.where(K > FLOOR, K, FLOOR + 0 * K))


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
        check_positive(self, "length_scale")

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

    def _distances(self, d: int) -> Distances | None:
        return None if isinstance(self.length_scale, tuple) else super()._distances(d)

    def _column_rates(self, d: int) -> Host:
        """Return the rate of every column, (d,)."""
        return np.broadcast_to(self.rates(np.empty((0, d))), (d,))


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
        "gamma": {
            "scale": scale_rate,
            "median": median_rate("sqeuclidean"),
            "auto": column_rate,
        },
        "length_scale": {"median": median_length},
    }
    gain: ClassVar[float] = 0.5  # type: ignore[misc]
    _search = Family((WIDTH,), lambda s, p: {"gamma": (p["width"] * s.distance) ** -2.0})
    gamma: float | str | None = None
    length_scale: Any = None

    def _check(self) -> None:
        if self.gamma is not None and self.length_scale is not None:
            raise ValueError(expected("RBF", "given gamma or length_scale, not both", self))
        check_positive(self, "gamma", "length_scale")

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

    def _inverse_profile(self, K: Array) -> Array:
        return -backend.namespace(K).log(_clipped(K))

    def _fused_form(self, X: Array) -> Form | None:
        return Form("exp", self._root(X, 2 * LOG2_E))  # 2^(−u log₂e)

    def _terms(self, d: int) -> list[Term]:
        return [Term(1.0, self._column_rates(d))]

    def _frequencies(self, d: int, m: int, rng: np.random.Generator) -> Host:
        root = np.sqrt(2 * self._column_rates(d))[:, None]
        return np.asarray(root * rng.standard_normal((d, m)))

    def _onnx(self, graph: Any, rows: str, points: Host) -> str | None:
        widths = np.sqrt(self._column_rates(points.shape[1]))
        squares = graph.squared_distances(rows, points, widths)
        return str(graph.add("Exp", graph.add("Neg", squares)))


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
    _search = Family(
        (WIDTH, Parameter("nu", 1.5, choices=(0.5, 1.5, 2.5))),
        lambda s, p: {"nu": p["nu"], "length_scale": p["width"] * s.distance},
    )
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

    def _fused_form(self, X: Array) -> Form | None:
        return Form(f"matern{2 * self.nu:.0f}", LOG2_E * self._root(X, 2.0))

    def _frequencies(self, d: int, m: int, rng: np.random.Generator) -> Host:
        """Draw from Student's t with 2ν degrees of freedom."""
        spread = 1 / np.sqrt(rng.chisquare(2 * self.nu, size=m))
        return np.sqrt(self._column_rates(d))[:, None] * rng.standard_normal((d, m)) * spread


MOST_ALPHA = 16.0
"""Largest α of a fused pass: the rounding of 1 + u/α in float32 grows with it."""


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
    _search = Family(
        (WIDTH, Parameter("alpha", 1.0)),
        lambda s, p: {"alpha": p["alpha"], "length_scale": p["width"] * s.distance},
    )
    alpha: float = 1.0
    length_scale: Any = 1.0

    def _check(self) -> None:
        check_positive(self, "alpha", "length_scale")

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
        return algebra.exp(p * backend.namespace(E).log1p(-E))

    def _fused_form(self, X: Array) -> Form | None:
        if self.alpha > MOST_ALPHA:
            return None
        return Form("rational", self._root(X, 2.0), float(self.alpha))


@dataclass(frozen=True)
class Periodic(Stationary):
    """k(x, y) = exp(−2 sin²(π‖x − y‖/periodicity)/length_scale²).

    Equal to scikit-learn's ExpSineSquared, which uses the Euclidean distance over all columns:
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
    _search = Family(
        (Parameter("period", 1.0), Parameter("wave", 1.0)),
        lambda s, p: {
            "periodicity": p["period"] * s.distance,
            "length_scale": p["wave"],
            "on": (0,),
        },
        lambda s: "" if s.columns == 1 else "it needs a single column",
    )
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


# --- Kernels of a sum over columns, k(x, y) = F(Σ_c g(x_c, y_c)); no third axis is ever formed ---


class Columnwise(Kernel):
    """A function F(D) of D = Σ_c g(x_c, y_c), summed one column after the other.

    Subclasses define `_term` (g), `_term_slope` (∂g/∂x), and `_rate`, or else `_profile` (F, given
    D and d) and `_slope` (F'). Memory is O(nm).
    """

    _term: Callable[[Array, Array], Array]
    _term_slope: Callable[[Array, Array], Array]

    def _rate(self, d: int) -> float:
        """Return γ of F(D) = exp(−γD), for rows of d columns."""
        raise TypeError(expected("kernel", "a subclass that defines _rate", type(self).__name__))

    def _profile(self, D: Array, d: int) -> Array:
        return algebra.exp(-self._rate(d) * D)

    def _slope(self, D: Array, d: int) -> Array:
        return -self._rate(d) * self._profile(D, d)

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
        "gamma": {"scale": scale_rate, "median": median_rate("cityblock"), "auto": column_rate}
    }
    _search = Family((WIDTH,), lambda s, p: {"gamma": 1 / (p["width"] * s.taxicab)})
    gamma: float | str | None = None

    def _check(self) -> None:
        check_positive(self, "gamma")

    def rate_of(self, d: int) -> float:
        """Return γ for rows of d columns."""
        return 1.0 / d if self.gamma is None else number(self, self.gamma)

    _rate = rate_of

    def _sum(self, X: Array, Y: Array) -> Array:
        return algebra.taxicab(X, Y)

    def _term_slope(self, x: Array, y: Array) -> Array:
        return backend.namespace(x).sign(x - y)

    def _fused_form(self, X: Array) -> Form | None:
        return Form("taxicab", LOG2_E * self.rate_of(int(X.shape[1])))

    def _frequencies(self, d: int, m: int, rng: np.random.Generator) -> Host:
        return self.rate_of(d) * rng.standard_cauchy((d, m))


class Histograms(Columnwise):
    """Kernels of D = Σ_c (x_c − y_c)²/(x_c + y_c) for non-negative entries, with 0/0 = 0."""

    nonnegative: ClassVar[bool] = True

    def _refuse(self, X: Array) -> None:
        xp = backend.namespace(X)
        if bool(xp.any(X < 0)):
            what = f"non-negative for the {type(self).__name__} kernel"
            remedy = "Use it for counts or histograms, or choose another kernel."
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
    rules: ClassVar[dict[str, Any]] = {"gamma": {"median": median_rate("chi2")}}
    _search = Family(
        (WIDTH,),
        lambda s, p: {"gamma": 1 / (p["width"] * s.chi2)},
        lambda s: "" if s.chi2 else "it needs entries of 0 and above",
    )
    gamma: float | str = 1.0

    def _check(self) -> None:
        if self.gamma is None:
            raise ValueError(expected("gamma of Chi2", "positive, or 'median'", self.gamma))
        check_positive(self, "gamma")

    def _rate(self, d: int) -> float:
        return number(self, self.gamma)


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
