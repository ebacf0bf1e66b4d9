"""Kernels of a distance: Euclidean (RBF, Matérn, …), or a sum over columns (Laplacian, χ²)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log2, pi, sqrt
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from dualpca.arrays import Array, algebra, backend
from dualpca.data import Host
from dualpca.errors import expected
from dualpca.kernels.base import (
    GAMMA_RULES,
    WIDTH_PARAMETER,
    Distances,
    Family,
    Form,
    OnnxGraph,
    Parameter,
    Profiled,
    Rate,
    Term,
    Width,
    median_length,
    median_rate,
    row_pairs,
    widest_spread,
)

# --- Squared distances from one product of matrices, with the digits that this could lose --------

NEIGHBOURS = 1e-6
"""Share of their squared norms below which a squared distance has lost too many digits."""


def zero_within_rounding(E: Array, size: Array) -> Array:
    """Return −u with 0 for what is within rounding errors of it; `size` is −½(‖a‖² + ‖b‖²)."""
    xp = backend.namespace(E)
    close = xp.astype(8 * float(xp.finfo(E.dtype).eps) * size, E.dtype)
    return xp.where(E > close, xp.zeros_like(E), E)


def lifted(A: Array, dtype: DTypeLike, *, flip: bool) -> tuple[Array, Array]:
    """Return rows [a, −½‖a‖², 1], or [a, 1, −½‖a‖²], and −½‖a‖² in float64, (n, 1).

    A is float64 for every dtype: a factor that float32 rounds would scale all distances
    alike, and show in eigenvalues. NumPy's rows are filled in place: joining columns takes the
    projection of 150 rows from 0.19 to 0.22 ms.
    """
    if type(A) is np.ndarray:
        n, d = A.shape
        rows = np.empty((n, d + 2), dtype)
        seen = rows[:, :d]
        seen[...] = A
        seen = A if dtype == np.float64 else seen.astype(np.float64)
        half = np.einsum("ij,ij->i", seen, seen)[:, None]
        half *= -0.5
        rows[:, d + flip] = half[:, 0]
        rows[:, d + (not flip)] = 1.0
        return rows, half
    xp = backend.namespace(A)
    A = xp.astype(A, dtype, copy=False)
    half = -0.5 * algebra.squared_norms(backend.working(A))[:, None]
    high = xp.astype(half, dtype)
    last = [xp.ones_like(high), high] if flip else [high, xp.ones_like(high)]
    return xp.concat([A, *last], axis=1), half


def _column_means(X: Array) -> Array:
    if type(X) is np.ndarray:
        return np.add.reduce(X, axis=0) / X.shape[0]
    return backend.namespace(X).mean(X, axis=0)


def near_zero(E: Array, A: Array, B: Array, size: Array) -> Array:
    """Return −u, corrected for pairs of neighbours, where rounding errors exceed u itself.

    For NumPy from their differences; in other libraries values within rounding of 0 become 0.
    """
    if backend.is_foreign(E):
        return zero_within_rounding(E, size)
    i, j = np.nonzero(E > NEIGHBOURS * size)
    for part in backend.slices(len(i), 4096):
        gap = A[i[part]] - B[j[part]]
        E[i[part], j[part]] = -0.5 * np.sum(gap * gap, axis=1)
    return algebra.at_most_zero(E)


def sparse_minus_u(Y: Array, factor: float | Array, *, rough: bool) -> Callable[[Array], Array]:
    """Return x ↦ −u(x, y_j) for sparse rows, which cannot be measured from a mean.

    Where the kernel is `rough` at 0, what is within rounding of 0 counts as 0.
    """
    B = Y.multiply(factor).tocsr()
    b = 0.5 * algebra.squared_norms(B)

    def minus_u(X: Array) -> Array:
        A = X.multiply(factor).tocsr() if backend.is_sparse(X) else X * factor
        a = 0.5 * algebra.squared_norms(A)[:, None]
        E = algebra.inner(A, B) - a - b
        return zero_within_rounding(E, -a - b) if rough else algebra.at_most_zero(E)

    return minus_u


# --- Kernels of the distance: k(x, y) = f(u) with u = rate · ‖x − y‖², or a rate for every column

Widths = Width | str | Sequence[Width] | None
"""One width, a word for one that is found from the rows, or one for every column."""

LOG2_E = log2(2.718281828459045)

SMALLEST_INVERTED = 1e-12
"""Smallest kernel value that is turned into a distance, where f(0) = 1."""


class Stationary(Profiled):
    """Base class of kernels that are a function of the distance between two rows.

    Subclasses define `rate`, `_profile` (f at u, given −u ≤ 0, which it may overwrite) and
    `_slope` (df/du, likewise). `rough` says that f is not smooth at 0, where rounding errors of
    u would matter: values within them of 0 then count as 0.

    They are f(u) with u = rate · ‖x − y‖².

    Parameters
    ----------
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> from dualpca.kernels import RBF, Matern, Stationary
    >>> issubclass(RBF, Stationary), issubclass(Matern, Stationary)
    (True, True)
    """

    invariant: ClassVar[bool] = True
    sparse: ClassVar[bool] = True
    rough: ClassVar[bool] = False

    @property
    def rate(self) -> float:
        """The factor of ‖x − y‖² in u."""
        raise TypeError(expected("kernel", "a subclass that defines rate", type(self).__name__))

    def rates(self, like: Array) -> float | Array:
        """Return the factor of each column's squared difference: one number, or one per column.

        Parameters
        ----------
        like : array of shape (n, d)

        Returns
        -------
        rates : float or array of shape (d,)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import Periodic
        >>> Periodic(periodicity=2.0).rates(np.zeros((1, 1)))
        2.4674011002723395
        """
        return self.rate

    def profile(self, U: Array) -> Array:
        """Return the kernel at scaled squared distances.

        Parameters
        ----------
        U : array
            Scaled squared distances u ≥ 0, of any shape.

        Returns
        -------
        values : array of the shape of U

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> RBF().profile(np.array([0.0, 1.0])).round(4)
        array([1.    , 0.3679])
        """
        return self._profile(-U)

    def slopes(self, X: Array, Y: Array) -> Array:
        """Return the derivative of the kernel by the scaled squared distance, for all pairs.

        Parameters
        ----------
        X : array of shape (n, d)
        Y : array of shape (m, d)

        Returns
        -------
        slopes : array of shape (n, m)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> RBF(gamma=1.0).slopes(np.zeros((1, 1)), np.ones((1, 1))).round(4)
        array([[-0.3679]])
        """
        return self._slope(self._argument(self._seen(Y))(self._seen(X)))

    def _root(self, like: Array, times: float) -> float | Array:
        """Return the factor of rows a with ½‖a − b‖² = times/2 · u: a number, or one per column."""
        rates = self.rates(like)
        if isinstance(rates, float):
            return sqrt(times * rates)
        return backend.namespace(like).sqrt(times * backend.working(rates))

    def _argument(self, Y: Array) -> Callable[[Array], Array]:
        """Return x ↦ −u(x, y_j), from one product of rows [a, −½‖a‖², 1] and [b, 1, −½‖b‖²].

        Rows are measured from the mean of Y, so that far-away data lose no digits, and clipped
        at 0, which rounding would pass.
        """
        factor = self._root(Y, 2.0)
        if backend.is_sparse(Y):
            return sparse_minus_u(Y, factor, rough=self.rough)
        origin = _column_means(backend.working(Y))
        B, b = lifted((backend.working(Y) - origin) * factor, Y.dtype, flip=True)

        def minus_u(X: Array) -> Array:
            A, a = lifted((backend.working(X) - origin) * factor, X.dtype, flip=False)
            E = A @ B.T
            if not self.rough:
                return algebra.at_most_zero(E)
            return near_zero(E, A[:, :-2], B[:, :-2], a + b.T)

        return minus_u

    def _diag(self, X: Array) -> Array:
        return backend.ones((int(X.shape[0]),), X)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        """Return Σ_j C_ij f'(u_ij) 2 rate (z_i − y_j), both measured from the mean of Y."""
        xp, S = backend.namespace(Z), C * self._slope(self._argument(Y)(Z))
        origin, total = xp.mean(Y, axis=0), xp.sum(S, axis=1)[:, None]
        return 2 * self.rates(Y) * (total * (Z - origin) - S @ (Y - origin))

    def _distances(self, d: int) -> Distances | None:
        """Invert f(u) = 1 − ½‖φ(x) − P‖²."""
        return lambda k, o, p, x: self._inverse_profile(o + 0.5 * (1 - p)) / self.rate

    def _inverse_profile(self, K: Array) -> Array:
        """Return u with f(u) = K, for K clipped to [1e-12, 1], by bisection over log u."""
        xp = backend.namespace(K)
        K = xp.clip(K, SMALLEST_INVERTED, 1.0)
        low, high = -80.0 + 0 * K, 80.0 + 0 * K
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = self.profile(xp.exp(middle)) > K
            low, high = xp.where(above, middle, low), xp.where(above, high, middle)
        return xp.where(K < 1, xp.exp(high), 0 * K)

    def _radial_slopes(self) -> Callable[[Array, Array], Array] | None:
        return self.slopes


class Lengths(Stationary):
    """Widths given by `length_scale`: u = gain · Σ_c ((x_c − y_c)/length_scale_c)².

    Subclasses define `gain`.
    """

    rules: ClassVar[dict[str, Any]] = {"length_scale": {"median": median_length}}
    _positive: ClassVar[tuple[str, ...]] = ("length_scale",)
    length_scale: Widths
    gain: float

    def __post_init__(self) -> None:
        """Keep a length scale for every column as a tuple, so that kernels can be hashed."""
        given = self.length_scale
        if given is not None and not isinstance(given, str | Real):
            lengths = np.asarray(given)
            if lengths.ndim > 1 or not lengths.size or lengths.dtype.kind not in "fiu":
                what = "a positive number, or one for every column"
                raise ValueError(expected("length_scale", what, given))
            widths = tuple(lengths.astype(float).tolist()) if lengths.ndim else lengths.item()
            object.__setattr__(self, "length_scale", widths)
        super().__post_init__()

    @property
    def rate(self) -> float:
        """Gain over length_scale²; an error where every column has its own."""
        return self.gain / self._number(self.length_scale) ** 2

    def rates(self, like: Array) -> float | Array:
        """Return the factor of each column's squared difference: one number, or one per column.

        Parameters
        ----------
        like : array of shape (n, d)

        Returns
        -------
        rates : float or array of shape (d,)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> RBF(length_scale=[1.0, 2.0]).rates(np.zeros((1, 2)))
        array([0.5  , 0.125])
        """
        if not isinstance(self.length_scale, tuple):
            return self.rate
        if len(self.length_scale) != like.shape[1]:
            what = f"one number for each of the {like.shape[1]} columns"
            raise ValueError(expected("length_scale", what, self.length_scale))
        return backend.constants([self.gain / v**2 for v in self.length_scale], like)

    def _with_width(self, X: Host, weights: Host | None, scale: Host | None) -> Lengths:
        pairs = row_pairs(X if scale is None else X / scale, weights, "sqeuclidean")
        rate = widest_spread(*pairs, self.profile)
        return self._of_rate(rate, scale)

    def _of_rate(self, rate: float, scale: Host | None) -> Lengths:
        """Return the kernel of u = rate · Σ_c ((x_c − y_c)/scale_c)²."""
        width: Any = sqrt(self.gain / rate) * (1.0 if scale is None else scale)
        return replace(self, length_scale=width)  # type: ignore[call-arg]

    def _distances(self, d: int) -> Distances | None:
        return None if isinstance(self.length_scale, tuple) else super()._distances(d)

    def _column_rates(self, d: int) -> Host:
        """Return the rate of every column, (d,)."""
        return np.broadcast_to(self.rates(np.empty((0, d))), (d,))


@dataclass(frozen=True)
class RBF(Lengths):
    """The radial basis function (Gaussian) kernel of the squared distance.

    k(x, y) = exp(−γ‖x − y‖²).

    Parameters
    ----------
    gamma : float or {'scale', 'median', 'auto'}, default=None
        γ > 0; 'scale' is 1/(d · variance) and 'auto' 1/d, as in scikit-learn, and 'median'
        1/(median of the squared distances). 1 where neither parameter is given.
    length_scale : float, 'median' or sequence of d floats, default=None
        γ = 1 / (2·length_scale²), for every column its own if there are several. Give one of the
        two, never both.
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> RBF(gamma=1.0)(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(4)
    array([[1.    , 0.3679]])
    """

    name: ClassVar[str] = "rbf"
    rules: ClassVar[dict[str, Any]] = {
        "gamma": {**GAMMA_RULES, "median": median_rate("sqeuclidean")},
        "length_scale": {"median": median_length},
    }
    _positive = ("gamma", "length_scale")
    gain: ClassVar[float] = 0.5  # type: ignore[misc]
    _search = Family((WIDTH_PARAMETER,), lambda s, p: {"gamma": (p["width"] * s.distance) ** -2.0})
    gamma: Rate | str | None = None
    length_scale: Widths = None

    def _check(self) -> None:
        if self.gamma is not None and self.length_scale is not None:
            raise ValueError(expected("RBF", "given gamma or length_scale, not both", self))

    def _of_rate(self, rate: float, scale: Host | None) -> Lengths:
        if scale is None:
            return replace(self, gamma=rate, length_scale=None)
        return replace(self, gamma=None, length_scale=(sqrt(0.5 / rate) * scale).tolist())

    @property
    def rate(self) -> float:
        """γ."""
        return self._number(self.gamma) if self.length_scale is None else super().rate

    def _profile(self, E: Array) -> Array:
        return algebra.exp(E)

    def _slope(self, E: Array) -> Array:
        return -algebra.exp(E)

    def _inverse_profile(self, K: Array) -> Array:
        xp = backend.namespace(K)
        return -xp.log(xp.clip(K, SMALLEST_INVERTED, 1.0))

    def _fused_form(self, X: Array) -> Form | None:
        return Form("exp", self._root(X, 2 * LOG2_E))  # 2^(−u log₂e)

    def _terms(self, d: int) -> list[Term]:
        return [Term(1.0, self._column_rates(d))]

    def _frequencies(self, d: int, m: int, rng: np.random.Generator) -> Host:
        draws: Host = np.sqrt(2 * self._column_rates(d))[:, None] * rng.standard_normal((d, m))
        return draws

    def _onnx(self, graph: OnnxGraph, rows: str, points: Host) -> str | None:
        widths = np.sqrt(self._column_rates(points.shape[1]))
        squares = graph.squared_distances(rows, points, widths)
        return graph.add("Exp", graph.add("Neg", squares))


@dataclass(frozen=True)
class Matern(Lengths):
    """The Matérn kernel with smoothness ν of 1/2, 3/2 or 5/2.

    The larger ν the smoother; as ν → ∞ they become the RBF. At y = x the gradient of ν = 1/2
    does not exist, and 0 is returned. Equal to scikit-learn's Matern for Gaussian processes.

    They are e^(−t), (1 + t)e^(−t) and (1 + t + t²/3)e^(−t), with t = √(2ν)‖x − y‖/length_scale.

    Parameters
    ----------
    nu : {0.5, 1.5, 2.5}, default=1.5
    length_scale : float, 'median' or sequence of d floats, default=1.0
        One width, or one for every column.
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

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
    _search = Family(
        (WIDTH_PARAMETER, Parameter("nu", 1.5, choices=(0.5, 1.5, 2.5))),
        lambda s, p: {"nu": p["nu"], "length_scale": p["width"] * s.distance},
    )
    nu: float = 1.5
    length_scale: Widths = 1.0

    def _check(self) -> None:
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(expected("nu of Matern", "0.5, 1.5 or 2.5", self.nu))

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
            return xp.where(t > 0, -xp.exp(-t) / (2 * algebra.safe_divisor(t)), xp.zeros_like(t))
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
    """The rational quadratic kernel: RBFs of many widths, mixed.

    k(x, y) = (1 + ‖x − y‖²/(2α length_scale²))^(−α).

    As α → ∞ it becomes the RBF. Equal to scikit-learn's for Gaussian processes.

    Parameters
    ----------
    alpha : float, default=1.0
        α > 0.
    length_scale : float, 'median' or sequence of d floats, default=1.0
        One width, or one for every column.
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> RationalQuadratic(alpha=0.5)(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(4)
    array([[1.    , 0.7071]])
    """

    name: ClassVar[str] = "rational_quadratic"
    _search = Family(
        (WIDTH_PARAMETER, Parameter("alpha", 1.0)),
        lambda s, p: {"alpha": p["alpha"], "length_scale": p["width"] * s.distance},
    )
    _positive = ("alpha", "length_scale")
    alpha: Rate = 1.0
    length_scale: Widths = 1.0

    @property
    def gain(self) -> float:  # type: ignore[override]
        """1/(2α)."""
        return 0.5 / self.alpha

    def _profile(self, E: Array) -> Array:
        """Return (1 + u)^(−α); for a large α, u is small and 1 + u would have lost it."""
        return algebra.exp(-float(self.alpha) * backend.namespace(E).log1p(-E))

    def _slope(self, E: Array) -> Array:
        alpha, logs = float(self.alpha), backend.namespace(E).log1p(-E)
        return -alpha * algebra.exp(-(alpha + 1) * logs)

    def _fused_form(self, X: Array) -> Form | None:
        form = Form("rational", self._root(X, 2.0), float(self.alpha))
        return form if self.alpha <= MOST_ALPHA else None


@dataclass(frozen=True)
class Periodic(Stationary):
    """The periodic kernel, for columns such as the hour of the day.

    Equal to scikit-learn's ExpSineSquared, which uses the Euclidean distance over all columns:
    that is positive semi-definite for one column only. Give each periodic column its own, and
    multiply: `Periodic(on=[0]) * Periodic(on=[1])`.

    k(x, y) = exp(−2 sin²(π‖x − y‖/periodicity)/length_scale²).

    Parameters
    ----------
    periodicity : float, default=1.0
        The period, in the units of the column.
    length_scale : float, default=1.0
        Width within a period, in units of its length over π.
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

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
    _search = Family(
        (Parameter("period", 1.0), Parameter("wave", 1.0)),
        lambda s, p: dict(periodicity=p["period"] * s.distance, length_scale=p["wave"], on=(0,)),
        lambda s: "" if s.columns == 1 else "it needs a single column",
    )
    _positive = ("periodicity", "length_scale")
    periodicity: Width = 1.0
    length_scale: Width = 1.0

    @property
    def definite(self) -> bool:  # type: ignore[override]
        """Whether `on` names one column."""
        return self.on is not None and len(self.on) == 1

    @property
    def rate(self) -> float:
        """(π/periodicity)²."""
        return (pi / self.periodicity) ** 2

    def _distances(self, d: int) -> Distances | None:
        return None  # many distances have the same value

    def _profile(self, E: Array) -> Array:
        xp = backend.namespace(E)
        return xp.exp(-2 * (xp.sin(xp.sqrt(-E)) / float(self.length_scale)) ** 2)

    def _slope(self, E: Array) -> Array:
        """Return df/du = −f sin(2t)/(t length_scale²), t = √u; at t = 0 the fraction is 2."""
        xp = backend.namespace(E)
        t = xp.sqrt(-E)
        ratio = xp.where(t > 0, xp.sin(2 * t) / algebra.safe_divisor(t), 2 * xp.ones_like(t))
        return -self._profile(E) * ratio / float(self.length_scale) ** 2


# --- Kernels of a sum over columns, k(x, y) = F(Σ_c g(x_c, y_c)); no third axis is ever formed ---


class Columnwise(Profiled):
    """A function F of −γD, D = Σ_c g(x_c, y_c), summed one column after the other; exp by default.

    Subclasses define `_term` (g), `_term_slope` (∂g/∂x) and `_rate` (γ for rows of d columns).
    Memory is O(nm).
    """

    _term: Callable[[Array, Array], Array]
    _term_slope: Callable[[Array, Array], Array]
    _rate: Callable[[int], float]

    def _profile(self, E: Array) -> Array:
        return algebra.exp(E)

    _slope = _profile

    def _require_entries(self, X: Array) -> None:
        """Raise for negative entries where the kernel is one of histograms."""
        xp = backend.namespace(X)
        if self.nonnegative and bool(xp.any(X < 0)):
            what = f"non-negative for the {type(self).__name__} kernel"
            remedy = "Use it for counts or histograms, or choose another kernel."
            raise ValueError(expected("X", what, float(xp.min(X)), remedy))

    def _total(self, X: Array, Y: Array) -> Array:
        """Return D, (n, m)."""
        self._require_entries(X)
        self._require_entries(Y)
        D = backend.namespace(X).zeros_like(X[:, :1] + Y[:, 0][None, :])
        for c in range(X.shape[1]):
            D += self._term(X[:, c][:, None], Y[:, c][None, :])
        return D

    def _argument(self, Y: Array) -> Callable[[Array], Array]:
        return lambda X: -self._rate(int(Y.shape[1])) * self._total(X, Y)

    def _diag(self, X: Array) -> Array:
        """Return F(0): g(x, x) = 0 for all kernels here."""
        self._require_entries(X)
        return self._profile(backend.namespace(X).zeros_like(X[:, 0]))

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        """Return −γ Σ_j C_ij F'(−γD_ij) ∂g(z_ic, y_jc)/∂z_ic."""
        xp, d = backend.namespace(Z), int(Y.shape[1])
        S = C * (-self._rate(d) * self._slope(self._argument(Y)(Z)))
        slopes = (self._term_slope(Z[:, c][:, None], Y[:, c][None, :]) for c in range(d))
        return xp.stack([xp.sum(S * slope, axis=1) for slope in slopes], axis=1)

    def _diag_gradient(self, Z: Array) -> Array:
        return backend.namespace(Z).zeros_like(Z)


@dataclass(frozen=True)
class Laplacian(Columnwise):
    """The Laplacian kernel of the Manhattan distance, as scikit-learn's laplacian_kernel.

    Where x_c = y_c the gradient does not exist, and 0 is returned.

    k(x, y) = exp(−γ ‖x − y‖₁).

    Parameters
    ----------
    gamma : float or {'scale', 'median', 'auto'}, default=None
        γ > 0; 'scale' is 1/(d · variance), 'median' 1/(median of these distances), 'auto' and
        None are 1/d, as in scikit-learn.
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> Laplacian(gamma=1.0)(np.array([[0.0, 0.0]]), np.array([[0.5, -0.5]])).round(4)
    array([[0.3679]])
    """

    name: ClassVar[str] = "laplacian"
    invariant: ClassVar[bool] = True
    rules: ClassVar[dict[str, Any]] = {"gamma": {**GAMMA_RULES, "median": median_rate("cityblock")}}
    _positive = ("gamma",)
    _search = Family((WIDTH_PARAMETER,), lambda s, p: {"gamma": 1 / (p["width"] * s.taxicab)})
    gamma: Rate | str | None = None

    def _with_width(self, X: Host, weights: Host | None, scale: Host | None) -> Laplacian:
        rate = widest_spread(*row_pairs(X, weights, "cityblock"), lambda u: np.exp(-u))
        return replace(self, gamma=rate)

    def rate_of(self, d: int) -> float:
        """Return γ for rows of `d` columns.

        Parameters
        ----------
        d : int

        Returns
        -------
        gamma : float

        Examples
        --------
        >>> from dualpca.kernels import Laplacian
        >>> Laplacian().rate_of(4)
        0.25
        """
        return self._number(self.gamma, 1.0 / d)

    _rate = rate_of

    def _total(self, X: Array, Y: Array) -> Array:
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

    def _term(self, x: Array, y: Array) -> Array:
        return (x - y) ** 2 / algebra.safe_divisor(x + y)

    def _term_slope(self, x: Array, y: Array) -> Array:
        return (x - y) * (x + 3 * y) / algebra.safe_divisor(x + y) ** 2


@dataclass(frozen=True)
class Chi2(Histograms):
    """The exponential chi-squared kernel of histograms, as scikit-learn's chi2_kernel.

    k(x, y) = exp(−γ Σ_c (x_c − y_c)²/(x_c + y_c)).

    Parameters
    ----------
    gamma : float or 'median', default=1.0
        γ > 0; 'median' is 1/(median of these distances).
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> Chi2()(np.array([[1.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 0.0]])).round(4)
    array([[0.3679, 1.    ]])
    """

    name: ClassVar[str] = "chi2"
    rules: ClassVar[dict[str, Any]] = {"gamma": {"median": median_rate("chi2")}}
    _search = Family(
        (WIDTH_PARAMETER,),
        lambda s, p: {"gamma": 1 / (p["width"] * s.chi2)},
        lambda s: "" if s.chi2 else "it needs entries of 0 and above",
    )
    _positive = ("gamma",)
    gamma: Rate | str = 1.0

    def _with_width(self, X: Host, weights: Host | None, scale: Host | None) -> Chi2:
        rate = widest_spread(*row_pairs(X, weights, "chi2"), lambda u: np.exp(-u))
        return replace(self, gamma=rate)

    def _rate(self, d: int) -> float:
        return self._number(self.gamma)


@dataclass(frozen=True)
class AdditiveChi2(Histograms):
    """The additive chi-squared kernel, as scikit-learn's additive_chi2_kernel.

    Its diagonal is 0, so it is positive semi-definite only once centred (a conditionally
    positive definite kernel): use it with centred models.

    k(x, y) = −Σ_c (x_c − y_c)²/(x_c + y_c).

    Parameters
    ----------
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> AdditiveChi2()(np.array([[1.0, 0.0]]), np.array([[0.0, 0.0], [3.0, 0.0]]))
    array([[-1., -1.]])
    """

    name: ClassVar[str] = "additive_chi2"
    definite: ClassVar[bool] = False

    def _rate(self, d: int) -> float:
        return 1.0

    def _profile(self, E: Array) -> Array:
        return E + 0.0  # so that −0 becomes 0

    def _slope(self, E: Array) -> Array:
        return backend.namespace(E).ones_like(E)
