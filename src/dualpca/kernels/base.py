"""What a kernel is, what its class may declare, and sums, products and multiples of kernels.

A kernel is its equation: values, diagonal, gradient in x. Whatever else a kernel can do (a fused
GPU pass, expectations of uncertain rows, feature maps, inverted distances, ONNX nodes, a search
space) is a method or attribute of its class; the defaults in `Kernel` say that it cannot. The rest
of the library asks through the functions at the end of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, reduce
from math import sqrt
from numbers import Real
from operator import add, mul
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from scipy.spatial.distance import pdist

from dualpca.arrays import Array, algebra, backend
from dualpca.data import Host, InMemoryTable, Units, have_unlike_units
from dualpca.errors import DualPCAError, expected

# --- Parameters: numbers, words that are replaced by numbers found in the rows, one per column ---


def is_finite_number(value: object) -> bool:
    """Return True if a value is a finite real number."""
    return type(value) is not bool and isinstance(value, Real) and bool(np.isfinite(float(value)))


Rate = Annotated[float, ">= 1e-305, <= 1e305"]
"""A positive parameter in a model file: three times it, and one over it, are in float64's range."""

Width = Annotated[float, ">= 1e-152, <= 1e152"]
"""A width or a period in a model file: its square is in the range of `Rate`."""

Shift = Annotated[float, ">= -1e100, <= 1e100"]
"""A constant in a model file: its square and its cube are in the range of float64."""

Exponent = Annotated[int, ">= 1, <= 100"]
"""A power in a model file: of values up to 1000 it is in the range of float64."""

Rule = Callable[[Array], float]
"""A parameter found from the rows, (n, d)."""

SAMPLED_ROWS = 1000
"""Rows, evenly spaced, whose distances represent those of all rows."""


def scale_rate(X: Array) -> float:
    """Return 1 / (d · variance of all entries), scikit-learn's gamma='scale'; 1 if constant."""
    if backend.is_sparse(X):
        size = int(X.shape[0]) * int(X.shape[1])
        variance = float(algebra.squared_norms(X).sum()) / size - float(X.sum() / size) ** 2
    else:
        variance = float(backend.namespace(X).var(backend.working(X)))
    return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0


GAMMA_RULES: dict[str, Rule] = {"scale": scale_rate, "auto": lambda X: 1.0 / int(X.shape[1])}
"""Words for gamma, as in scikit-learn: 'scale' is 1 / (d · variance), 'auto' is 1 / d."""

Metric = Literal["sqeuclidean", "cityblock", "chi2"]


def median_distance(X: Array, metric: Metric) -> float:
    """Return the median distance over pairs of at most `SAMPLED_ROWS` rows; 1 instead of 0.

    Parameters
    ----------
    X : array of shape (n, d)
    metric : {'sqeuclidean', 'cityblock', 'chi2'}
        'chi2' is Σ(x_c − y_c)²/(x_c + y_c).

    Examples
    --------
    >>> import numpy as np
    >>> median_distance(np.array([[0.0], [1.0], [3.0]]), "sqeuclidean")
    4.0
    >>> median_distance(np.array([[0.0, 1.0], [4.0, 1.0]]), "chi2")
    4.0
    """
    step = max(1, -(-int(X.shape[0]) // SAMPLED_ROWS))
    rows = backend.to_numpy(X[::step, :]).astype(np.float64)
    if rows.shape[0] < 2:
        return 1.0
    found = float(np.median(pairwise(rows, metric)))
    return found if found > 0 else 1.0


def pairwise(rows: Host, metric: Metric) -> Host:
    """Return the distances of all pairs of rows, (n(n − 1)/2,)."""
    if metric == "chi2":
        K = KERNELS["additive_chi2"]()(rows, rows)
        return np.asarray(-K[np.triu_indices(rows.shape[0], 1)])
    return np.asarray(pdist(rows, metric))


def median_rate(metric: Metric) -> Rule:
    """Return the rule 1 / (median distance)."""
    return lambda X: 1.0 / median_distance(X, metric)


def median_length(X: Array) -> float:
    """Return the median Euclidean distance."""
    return sqrt(median_distance(X, "sqeuclidean"))


# --- A width found from the rows: the one at which the values of the kernel differ the most ------

WIDTH_ROWS = 400
"""Rows, evenly spaced, whose distances a width is found from."""

COARSE, FINE = 2.0 ** np.arange(-10, 11), 2.0 ** (np.arange(-3, 4) / 4)
"""Multiples of the rate at the median distance that are tried: of all, and about the best."""


def widest_spread(D: Host, weights: Host, profile: Callable[[Host], Host]) -> float:
    """Return the rate at which the values f(rate · D) of a kernel vary the most over pairs.

    A kernel that is too wide has the same value for all pairs, one that is too narrow the value 0:
    between the two its variance is largest (Evangelista, Embrechts & Szymanski 2007). Where all
    distances are nearly the same, as in many dimensions, that is at 1/D for the RBF, which is the
    median rule; where they are not, it is the scale that tells near pairs from far ones.

    Parameters
    ----------
    D : array of shape (p,)
        Distances, on which f depends through their product with the rate.
    weights : array of shape (p,)
    profile : callable
        f.

    Returns
    -------
    rate : float
        1/(median distance) times a power of 2^(1/4) between 2^-10.75 and 2^10.75; 1 where all
        distances are 0. Pairs at distance 0 do not count.

    Examples
    --------
    >>> import numpy as np
    >>> D = np.array([1.0, 1.0, 1.0, 9.0, 9.0, 9.0])
    >>> round(widest_spread(D, np.ones(6), lambda u: np.exp(-u)), 3)
    0.297
    """
    far = (D > 0) & (weights > 0)
    if not far.any():
        return 1.0
    D, w = D[far], weights[far] / weights[far].sum()
    start = 1 / float(np.quantile(D, 0.5, weights=w, method="inverted_cdf"))

    def spread(rate: float) -> float:
        values = profile(rate * D)
        mean = float(w @ values)
        return float(w @ (values - mean) ** 2)

    rates = start * COARSE
    best = float(rates[int(np.argmax([spread(rate) for rate in rates]))])
    rates = best * FINE
    return float(rates[int(np.argmax([spread(rate) for rate in rates]))])


def row_pairs(X: Host, weights: Host | None, metric: Metric) -> tuple[Host, Host]:
    """Return distances and weights of all pairs of rows, (n(n − 1)/2,) each."""
    w = np.ones(len(X)) if weights is None else weights
    i, j = np.triu_indices(len(X), 1)
    return pairwise(X, metric), w[i] * w[j]


# --- What a kernel's class may declare -----------------------------------------------------------


class Form(NamedTuple):
    """A fused GPU pass: a function of rows that were multiplied by a factor."""

    shape: str  # the function, by the name that `fused_passes.profile` knows
    factor: float | Array  # a number, or one for every column, (d,)
    constant: float = 0.0
    degree: int = 1

    @property
    def bounded(self) -> bool:
        """Whether no value is above 1, so that 16 bits hold them."""
        return self.shape != "inner"


@dataclass(frozen=True, eq=False)
class Poly:
    """(Σ_c weights_c x_c y_c + constant)^degree, with weights ≥ 0."""

    weights: Host  # (d,), 0 for columns that are not seen
    constant: float
    degree: int


Monomials = frozenset[tuple[int, ...]]
"""Products of columns, each named by its columns in order, with repetitions; () is the constant."""

MOST_MONOMIALS = 20_000
"""Of an explicit feature map, and of those that are counted."""


@dataclass(frozen=True, eq=False)
class Term:
    """factor · exp(−Σ_c rates_c (x_c − y_c)²) · Π of polynomials: its expectation is known."""

    factor: float
    rates: Host  # (d,), 0 for columns that are not seen
    polys: tuple[Poly, ...] = ()

    @property
    def is_gaussian(self) -> bool:
        """Whether some column decays."""
        return bool(self.rates.any())

    def __mul__(self, other: Term) -> Term:
        """Return the product; two Gaussian factors make one, on any columns."""
        rates, polys = self.rates + other.rates, self.polys + other.polys
        return Term(self.factor * other.factor, rates, polys)

    def among(self, columns: Sequence[int], d: int) -> Term:
        """Return this term as one of d columns, of which it sees these."""
        full = np.zeros((1 + len(self.polys), d))
        full[:, list(columns)] = [self.rates, *(p.weights for p in self.polys)]
        polys = zip(self.polys, full[1:], strict=True)
        return Term(self.factor, full[0], tuple(replace(p, weights=w) for p, w in polys))


KNOWN_EXPECTATIONS = (
    "Expectations are known for RBF, Linear, Polynomial (degree 1, 2, 3), Constant, their sums, "
    "multiples, and products of RBFs or over different columns; impute the rows first for others."
)

Distances = Callable[[Array, Array, Array, Array], Array]
"""From k(x, x), ⟨φ(x), P⟩, ‖P‖² and ‖x‖² to ‖z − x‖², where φ(z) = P; all (b, k)."""


class OnnxGraph(Protocol):
    """An ONNX graph; values in it are known by their names."""

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, and return the name of its value."""

    def constant(self, values: Host) -> str:
        """Add numbers."""

    def integers(self, values: Sequence[int]) -> str:
        """Add whole numbers."""

    def squared_distances(self, rows: str, points: Host, widths: Host) -> str:
        """Add squared distances of rows from points, columns multiplied by widths."""


class Scales(NamedTuple):
    """The units of the rows, in which a search measures the parameters of kernels."""

    distance: float  # median ‖x − y‖
    taxicab: float  # median Σ|x_c − y_c|
    norm: float  # mean ‖x‖²
    chi2: float  # median χ² distance; 0 where an entry is negative
    columns: int

    @classmethod
    def of(cls, X: Array) -> Scales:
        """Measure rows (n, d); O(d · min(n, 1000)²).

        Examples
        --------
        >>> import numpy as np
        >>> Scales.of(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]))[:3]
        (5.0, 7.0, 41.666666666666664)
        """
        norm = float(np.mean(np.sum(X * X, axis=1)))
        lengths = median_length(X), median_distance(X, "cityblock"), norm if norm > 0 else 1.0
        chi2 = median_distance(X, "chi2") if np.min(X) >= 0 else 0.0
        return cls(*lengths, chi2, int(X.shape[1]))


class Parameter(NamedTuple):
    """A number on a logarithmic scale, or one of some choices; `centre` is the heuristic."""

    name: str
    centre: float
    low: float = 0.1
    high: float = 10.0
    choices: tuple[Any, ...] = ()


WIDTH_PARAMETER = Parameter("width", 1.0)


class Family(NamedTuple):
    """What a search varies in a kernel: parameters without units, centred at a heuristic.

    `arguments` turns the scales of the rows and the parameters into the kernel's own arguments;
    `unfit` says why a table has no such kernel.
    """

    parameters: tuple[Parameter, ...] = ()
    arguments: Callable[[Scales, dict[str, Any]], dict[str, Any]] = lambda scales, found: found
    unfit: Callable[[Scales], str] = lambda scales: ""


# --- What a kernel is: values, diagonal, gradient in x, on all columns or on some ----------------


def split_params(params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return parameters without '__' in their names, and the others by what stands before it.

    Examples
    --------
    >>> split_params({"gamma": 1.0, "left__gamma": 2.0, "left__on": None})
    ({'gamma': 1.0}, {'left': {'gamma': 2.0, 'on': None}})
    """
    own: dict[str, Any] = {}
    deeper: dict[str, dict[str, Any]] = {}
    for key, value in params.items():
        name, inside, rest = key.partition("__")
        if inside:
            deeper.setdefault(name, {})[rest] = value
        else:
            own[name] = value
    return own, deeper


parameter_names: Callable[[type], tuple[str, ...]] = cache(
    lambda kind: tuple(f.name for f in fields(kind))
)
"""The names of the parameters of a kernel's class."""


KERNELS: dict[str, type[Kernel]] = {}


@dataclass(frozen=True)
class Kernel:
    """Base class of kernels, positive semi-definite functions of two rows.

    Subclasses define `_against`, `_diag` and `_pull`; a class attribute `name` registers them.
    Methods with a leading underscore are given the columns that the kernel sees, and no others.

    Parameters
    ----------
    on : sequence of int, default=None
        The columns that this kernel sees; default: all.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> RBF(gamma=1.0, on=[0])(X, X).round(4)
    array([[1.    , 0.3679],
           [0.3679, 1.    ]])
    """

    name: ClassVar[str] = ""
    definite: ClassVar[bool] = True
    """Whether every Gram matrix is positive semi-definite."""
    _quick: ClassVar[bool] = True
    """Whether values are found by array operations, not by one call of a function for each."""
    sparse: ClassVar[bool] = False
    """Whether rows may be SciPy sparse matrices."""
    invariant: ClassVar[bool] = False
    """Whether k(x + c, y + c) = k(x, y)."""
    nonnegative: ClassVar[bool] = False
    """Whether negative entries raise an error, as for histograms."""
    rules: ClassVar[dict[str, dict[str, Rule]]] = {}
    """For each parameter, the words that it accepts in place of a number, and what they mean."""
    _positive: ClassVar[tuple[str, ...]] = ()
    """Parameters that must be positive; None passes where it is the default."""
    on: Sequence[int] | None = field(default=None, kw_only=True)

    def __init_subclass__(cls) -> None:
        """Register the kernel under its name."""
        if cls.name:
            KERNELS[cls.name] = cls

    def __post_init__(self) -> None:
        """Check the parameters once, and keep `on` as a tuple so that kernels can be hashed."""
        if self.on is not None:
            columns = np.asarray(self.on)
            good = columns.ndim == 1 and columns.size > 0 and columns.dtype.kind in "iu"
            if not good or columns.min() < 0 or np.unique(columns).size < columns.size:
                raise ValueError(expected("on", "different column numbers, from 0", self.on))
            object.__setattr__(self, "on", tuple(columns.tolist()))
        for name, words in self.rules.items():
            value = getattr(self, name)
            if isinstance(value, str) and value not in words:
                raise ValueError(expected(name, f"a number or one of {sorted(words)}", value))
        for name in self._positive:
            self._check_positive(name)
        self._check()

    def _check_positive(self, name: str) -> None:
        """Raise for a number that is not positive; words pass, and None where it is the default."""
        value, default = getattr(self, name), getattr(type(self), name, None)
        for one in value if isinstance(value, tuple) else (value,):
            given = not (isinstance(one, str) or (one is None and default is None))
            if given and not (is_finite_number(one) and one > 0):
                raise ValueError(expected(f"{name} of {type(self).__name__}", "positive", value))

    def _number(self, value: float | str | Sequence[float] | None, default: float = 1.0) -> float:
        """Return a parameter that must be a single number by now; the default for None."""
        if isinstance(value, str):
            remedy = "Call resolve(X) first, or fit a model."
            raise ValueError(f"{self!r} finds {value!r} from the rows. {remedy}")
        if isinstance(value, Sequence):
            what = "one number where a single width is needed"
            raise ValueError(expected(f"length_scale of {type(self).__name__}", what, value))
        return default if value is None else float(value)

    def _check(self) -> None:
        """Raise for parameters that define no kernel; words such as 'median' pass."""

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        """Return x ↦ k(x, Y), with what depends on Y alone done once. The result is fresh."""
        raise TypeError(expected("kernel", "a subclass that defines _against", type(self).__name__))

    def _diag(self, X: Array) -> Array:
        raise TypeError(expected("kernel", "a subclass that defines _diag", type(self).__name__))

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        raise TypeError(expected("kernel", "one that has a gradient in x", self))

    def _diag_gradient(self, Z: Array) -> Array:
        """Return ∂k(z, z)/∂z; by symmetry twice the gradient in the first argument at y = z."""
        xp, one = backend.namespace(Z), backend.ones((1, 1), Z)
        if self.invariant or not Z.shape[0]:
            return xp.zeros_like(Z)
        rows = (Z[i : i + 1, :] for i in range(Z.shape[0]))
        return xp.concat([2 * self._pull(z, z, one) for z in rows], axis=0)

    # what a class may declare; these defaults say that it cannot

    _search: ClassVar[Family | None] = None
    """What a search varies, for kernels that it can be given by name."""
    _linear: ClassVar[bool] = False
    """Whether φ(x) is x up to a factor."""

    def _with_width(self, X: Host, weights: Host | None, scale: Host | None) -> Kernel:
        """Return the kernel with a width found from some rows, on the host, (n, d).

        `scale`, (d,), is the unit of each column where they are unlike.
        """
        return self

    @property
    def _differentiable(self) -> bool:
        """Whether there is a gradient in x."""
        return type(self)._pull is not Kernel._pull

    def _fused_form(self, X: Array) -> Form | None:
        """Return the form that a fused GPU pass over rows X knows."""
        return None

    def _terms(self, d: int) -> list[Term]:
        """Return the terms whose sum is the kernel, for expectations over uncertain rows."""
        remedy = KNOWN_EXPECTATIONS
        raise TypeError(expected("kernel", "one whose expectation is known", self, remedy))

    def _features(self, X: Array) -> Array:
        """Return f(x) of every row, (n, r), with f(x)ᵀf(y) = k(x, y) exactly."""
        remedy = "Models of other kernels exist in the dual only."
        what = "Linear, Polynomial with coef0 of at least 0, or sums and multiples of these"
        raise DualPCAError(expected("the kernel of an explicit feature map", what, self, remedy))

    def _monomials(self, d: int) -> Monomials | None:
        """Return the monomials that span the features, where they are polynomials."""
        return None

    def _dimension(self, d: int, *, center: bool) -> int | None:
        """Return the dimension of the features, or of φ − φ̄ if `center`; None if not known."""
        found = self._monomials(d)
        return None if found is None else len(found) - (center and () in found)

    def _factor(self, X: Array) -> Array | None:
        """Return rows no wider than those of X with inner products k(x, y), where there are any."""
        return None

    def _frequencies(self, d: int, m: int, rng: np.random.Generator) -> Host:
        """Draw from the spectral density of the kernel, (d, m), for random Fourier features."""
        what = "RBF, Matern, Laplacian or a product of these for random Fourier features"
        raise ValueError(expected("kernel", what, self, "Use eigen_solver='nystrom'."))

    def _distances(self, d: int) -> Distances | None:
        """Return how distances of d columns follow from inner products in feature space."""
        return None

    def _radial_slopes(self) -> Callable[[Array, Array], Array] | None:
        """Return (Z, Y) ↦ df/du up to a factor, (n, m), where k = f(u) and u grows as ‖z − y‖²."""
        return None

    def _onnx(self, graph: OnnxGraph, rows: str, points: Host) -> str | None:
        """Add nodes for k(rows, points) to an ONNX graph, and return the name of the values."""
        return None

    def _nonnegative_columns(self, d: int) -> set[int]:
        """Return the columns that must not be negative."""
        return set(range(d)) if self.nonnegative else set()

    # what all kernels have: batches, columns, parameters, + and *

    def __call__(self, X: Array, Y: Array) -> Array:
        """Return k(x_i, y_j), (n, m)."""
        return self.against(Y)(X)

    def against(self, Y: Array) -> Callable[[Array], Array]:
        """Return a function that evaluates the kernel against fixed points, block by block.

        Parameters
        ----------
        Y : array of shape (m, d)

        Returns
        -------
        evaluate : callable
            Maps an array of shape (n, d) to the kernel values, of shape (n, m).

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> X = np.array([[0.0, 0.0], [1.0, 0.0]])
        >>> RBF(gamma=1.0).against(X)(X).round(4)
        array([[1.    , 0.3679],
               [0.3679, 1.    ]])
        """
        if self.on is None:
            return self._against(Y)
        values = self._against(seen := self._seen(Y))
        return lambda X: values(seen if X is Y else self._seen(X))

    def diag(self, X: Array) -> Array:
        """Return the kernel of every row with itself, k(x, x).

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        values : array of shape (n,)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> X = np.array([[0.0, 0.0], [1.0, 0.0]])
        >>> RBF(gamma=1.0).diag(X)
        array([1., 1.])
        """
        return self._diag(self._seen(X))

    def gradient(self, x: Array, Y: Array) -> Array:
        """Return the derivative of k(x, y) by x, for one point x and every row y.

        Parameters
        ----------
        x : array of shape (d,)
        Y : array of shape (m, d)

        Returns
        -------
        gradient : array of shape (m, d)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import Linear
        >>> Linear().gradient(np.array([5.0, 6.0]), np.array([[1.0, 2.0]]))
        array([[1., 2.]])
        """
        Z = backend.namespace(x).broadcast_to(x[None, :], Y.shape)
        return self.pull(Z, Y, backend.identity(int(Y.shape[0]), x))

    def pull(self, Z: Array, Y: Array, C: Array) -> Array:
        """Return weighted sums of the kernel's gradient, which descent over points needs.

        Row i is Σ_j C_ij ∂k(z_i, y_j)/∂z_i.

        Parameters
        ----------
        Z : array of shape (n, d)
        Y : array of shape (m, d)
        C : array of shape (n, m)

        Returns
        -------
        sums : array of shape (n, d)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import Linear
        >>> Y = np.array([[1.0, 2.0], [3.0, 4.0]])
        >>> Linear().pull(np.zeros((1, 2)), Y, np.ones((1, 2)))
        array([[4., 6.]])
        """
        return self._full(self._pull(self._seen(Z), self._seen(Y), C), Z)

    def diag_gradient(self, Z: Array) -> Array:
        """Return the derivative of k(z, z) by z at every row.

        Parameters
        ----------
        Z : array of shape (n, d)

        Returns
        -------
        gradient : array of shape (n, d)

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import Linear
        >>> Linear().diag_gradient(np.array([[1.0, 2.0]]))
        array([[2., 4.]])
        """
        return self._full(self._diag_gradient(self._seen(Z)), Z)

    def resolve(self, X: Array) -> Kernel:
        """Return this kernel with numbers in place of words such as 'scale' or 'median'.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        kernel : Kernel

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> X = np.array([[0.0, 0.0], [1.0, 0.0]])
        >>> RBF(gamma="auto").resolve(X)
        RBF(on=None, gamma=0.5, length_scale=None)
        """
        found: dict[str, Any] = {}
        for name, value in ((name, getattr(self, name)) for name in parameter_names(type(self))):
            if isinstance(value, Kernel):
                found[name] = value.resolve(self._seen(X))
            elif isinstance(value, str) and name in self.rules:
                found[name] = self.rules[name][value](self._seen(X))
        return replace(self, **found) if found else self

    def _seen(self, X: Array) -> Array:
        """Return the columns that this kernel sees."""
        if self.on is None:
            return X
        return backend.take(X, list(self._within(int(X.shape[1]))), axis=1)

    def _within(self, d: int) -> Sequence[int]:
        """Return which of d columns this kernel sees."""
        if self.on is None:
            return range(d)
        if max(self.on) >= d:
            raise ValueError(expected("on", f"columns below {d}", self.on))
        return self.on

    def _full(self, G: Array, Z: Array) -> Array:
        """Return gradients with zeros in the columns that this kernel does not see."""
        if self.on is None:
            return G
        zeros = backend.namespace(Z).zeros_like(Z).T
        return backend.replaced(zeros, np.asarray(self.on), G.T).T

    def __add__(self, other: Kernel | float) -> Kernel:
        """Return k + l, or k + c for a number c ≥ 0."""
        if isinstance(other, Kernel):
            return Sum(self, other)
        if not is_finite_number(other):
            return NotImplemented
        constant: Any = KERNELS["constant"]  # whose module imports this one
        return self if other == 0 else Sum(self, constant(float(other)))

    __radd__ = __add__

    def __mul__(self, other: Kernel | float) -> Kernel:
        """Return k · l, or a scaled kernel."""
        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(float(other), self) if is_finite_number(other) else NotImplemented

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Kernel:
        """Return k(x, y)^p for a whole number p ≥ 1."""
        return self if exponent == 1 else Power(self, exponent)

    # parameters as scikit-learn names them: `kernel__gamma` of a model is gamma of its kernel

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, with those of the kernels it is made of if `deep`.

        Examples
        --------
        >>> from dualpca.kernels import RBF
        >>> (2.0 * RBF(gamma=0.5)).get_params()["kernel__gamma"]
        0.5
        """
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        parts = {k: v for k, v in found.items() if deep and isinstance(v, Kernel)}
        deeper = (
            (f"{k}__{n}", v) for k, part in parts.items() for n, v in part.get_params().items()
        )
        return found | dict(deeper)

    def with_params(self, **params: object) -> Kernel:
        """Return a kernel with other parameters, named as `get_params` does; this one stays.

        Parameters
        ----------
        **params : object
            Names and new values.

        Returns
        -------
        kernel : Kernel

        Examples
        --------
        >>> from dualpca.kernels import RBF
        >>> (2.0 * RBF(gamma=0.5)).with_params(factor=3.0, kernel__gamma=0.1)
        Scaled(on=None, factor=3.0, kernel=RBF(on=None, gamma=0.1, length_scale=None))
        """
        own, deeper = split_params(params)
        unknown = sorted({*own, *deeper} - {f.name for f in fields(self)})
        if unknown:
            what = f"among {sorted(self.get_params())} for {type(self).__name__}"
            raise ValueError(expected("parameters", what, unknown))
        for name, given in deeper.items():
            part = own.get(name, getattr(self, name))
            if not isinstance(part, Kernel):
                what = f"a kernel, to set {sorted(given)} of it"
                raise ValueError(expected(f"{name} of {type(self).__name__}", what, part))
            own[name] = part.with_params(**given)
        return replace(self, **own)

    def __sklearn_clone__(self) -> Kernel:
        """Return the kernel itself: it never changes."""
        return self


class Profiled(Kernel):
    """A function f of one number t(x, y), such as an inner product or a squared distance.

    Subclasses define `_argument` (Y ↦ x ↦ t), `_profile` (f, which may overwrite t) and `_slope`
    (f').
    """

    _argument: Callable[[Array], Callable[[Array], Array]]
    _profile: Callable[[Array], Array]
    _slope: Callable[[Array], Array]

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        argument = self._argument(Y)
        return lambda X: self._profile(argument(X))


# --- Kernels made of kernels: sums, products and positive multiples ------------------------------


def _all_parts(name: str) -> Any:
    """Return a property: whether an attribute is true of all parts of a kernel."""
    return property(lambda self: all(getattr(part, name) for part in self._parts))


class Composed(Kernel):
    """A kernel made of others; it can do what all its parts can, where the mathematics allows.

    Subclasses define `_joined` (values of the parts to its own), `_slopes` (its derivative by the
    value of each part, which are evaluated where they are needed) and `_node` (its name in ONNX).
    """

    _joined: Callable[..., Array]
    _slopes: Callable[[Callable[[Kernel], Array]], tuple[float | Array, ...]]
    _node: ClassVar[str]

    definite = _all_parts("definite")
    _quick = _all_parts("_quick")
    invariant = _all_parts("invariant")
    sparse = _all_parts("sparse")
    _differentiable = _all_parts("_differentiable")

    @property
    def _parts(self) -> list[Kernel]:
        found = (getattr(self, f.name) for f in fields(self))
        return [value for value in found if isinstance(value, Kernel)]

    def _nonnegative_columns(self, d: int) -> set[int]:
        return set().union(*(nonnegative_columns(part, d) for part in self._parts))

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        parts = [part.against(Y) for part in self._parts]
        return lambda X: self._joined(*(values(X) for values in parts))

    def _diag(self, X: Array) -> Array:
        return self._joined(*(part.diag(X) for part in self._parts))

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        """Return the sum over parts of their gradients, by the chain rule."""
        slopes = zip(self._parts, self._slopes(lambda part: part(Z, Y)), strict=True)
        return sum(part.pull(Z, Y, slope * C) for part, slope in slopes)

    def _diag_gradient(self, Z: Array) -> Array:
        slopes = self._slopes(lambda part: part.diag(Z)[:, None])
        return sum(
            slope * part.diag_gradient(Z) for part, slope in zip(self._parts, slopes, strict=True)
        )

    def _onnx(self, graph: OnnxGraph, rows: str, points: Host) -> str | None:
        values = [onnx_values(part, graph, rows, points) for part in self._parts]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        own = (getattr(self, name) for name in parameter_names(type(self)))
        numbers = [graph.constant(np.asarray(value)) for value in own if is_finite_number(value)]
        return graph.add(self._node, *known, *numbers)


@dataclass(frozen=True)
class Pair(Composed):
    """Two kernels, added or multiplied."""

    left: Kernel
    right: Kernel

    def _check(self) -> None:
        for part in (self.left, self.right):
            if not isinstance(part, Kernel):
                raise TypeError(expected("a part of a kernel", "a Kernel", part))


@dataclass(frozen=True)
class Sum(Pair):
    """The sum of two kernels; written `k + l`.

    Parameters
    ----------
    left : Kernel
    right : Kernel
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import Linear
    >>> (Linear() + Linear(on=[0]))(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[14.]])
    """

    _node = "Add"
    _joined = staticmethod(add)

    def _slopes(self, values: Callable[[Kernel], Array]) -> tuple[float | Array, ...]:
        return 1.0, 1.0

    def _terms(self, d: int) -> list[Term]:
        return expectation_terms(self.left, d) + expectation_terms(self.right, d)

    def _features(self, X: Array) -> Array:
        parts = [feature_map(part, X) for part in self._parts]
        return backend.namespace(X).concat(parts, axis=1)

    def _monomials(self, d: int) -> Monomials | None:
        """Return those of either part: the functions of k + l are sums of theirs."""
        left, right = monomials(self.left, d), monomials(self.right, d)
        return None if left is None or right is None else left | right


@dataclass(frozen=True)
class Product(Pair):
    """The product of two kernels; written `k * l`.

    Parameters
    ----------
    left : Kernel
    right : Kernel
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import Linear
    >>> (Linear(on=[0]) * Linear(on=[1]))(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[24.]])
    """

    _node = "Mul"
    _joined = staticmethod(mul)

    def _slopes(self, values: Callable[[Kernel], Array]) -> tuple[float | Array, ...]:
        return values(self.right), values(self.left)

    def _terms(self, d: int) -> list[Term]:
        right = expectation_terms(self.right, d)
        return [s * t for s in expectation_terms(self.left, d) for t in right]

    def _monomials(self, d: int) -> Monomials | None:
        return products_of(monomials(self.left, d), monomials(self.right, d))

    def _frequencies(self, d: int, m: int, rng: np.random.Generator) -> Host:
        """Add draws: the spectral density of a product is the convolution of the two."""
        return frequencies(self.left, d, m, rng) + frequencies(self.right, d, m, rng)


@dataclass(frozen=True)
class Scaled(Composed):
    """A kernel times a positive number; written `c * k`.

    Parameters
    ----------
    factor : float
        Positive.
    kernel : Kernel
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import Linear
    >>> (3.0 * Linear())(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[33.]])
    """

    _node = "Mul"
    factor: Rate
    kernel: Kernel

    def _check(self) -> None:
        if not self.factor > 0:
            raise ValueError(expected("the factor of a kernel", "positive", self.factor))

    @property
    def _linear(self) -> bool:  # type: ignore[override]
        return self.kernel._linear

    def _joined(self, value: Array) -> Array:
        return self.factor * value

    def _slopes(self, values: Callable[[Kernel], Array]) -> tuple[float | Array, ...]:
        return (self.factor,)

    def _terms(self, d: int) -> list[Term]:
        return [Term(self.factor, np.zeros(d)) * t for t in expectation_terms(self.kernel, d)]

    def _features(self, X: Array) -> Array:
        return sqrt(self.factor) * feature_map(self.kernel, X)

    def _monomials(self, d: int) -> Monomials | None:
        return monomials(self.kernel, d)

    def _dimension(self, d: int, *, center: bool) -> int | None:
        return feature_dimension(self.kernel, d, center=center)

    def _factor(self, X: Array) -> Array | None:
        rows = thin_factor(self.kernel, X)
        return None if rows is None else sqrt(self.factor) * rows

    def _distances(self, d: int) -> Distances | None:
        inner, c = inverse_distances(self.kernel, d), self.factor
        return None if inner is None else lambda k, o, p, x: inner(k / c, o / c, p / c, x)

    def _radial_slopes(self) -> Callable[[Array, Array], Array] | None:
        return self.kernel._radial_slopes() if self.on is None else None


@dataclass(frozen=True)
class Power(Composed):
    """A whole power of a kernel; written `k**p` with p ≥ 1.

    Parameters
    ----------
    kernel : Kernel
    exponent : int
        p; powers that are not whole are in general not positive semi-definite.
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import Linear
    >>> ((Linear() + 1.0) ** 2)(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[144.]])
    """

    _node = "Pow"
    kernel: Kernel
    exponent: Exponent

    def _check(self) -> None:
        p = self.exponent
        if not is_finite_number(p) or p < 1 or p != int(p):
            raise ValueError(expected("the exponent of a kernel", "a whole number from 1", p))
        object.__setattr__(self, "exponent", int(p))

    def _joined(self, value: Array) -> Array:
        return value**self.exponent

    def _slopes(self, values: Callable[[Kernel], Array]) -> tuple[float | Array, ...]:
        return (self.exponent * values(self.kernel) ** (self.exponent - 1),)

    def _terms(self, d: int) -> list[Term]:
        one = expectation_terms(self.kernel, d)
        found = one
        for _ in range(self.exponent - 1):
            found = [s * t for s in found for t in one]
        return found

    def _monomials(self, d: int) -> Monomials | None:
        one = monomials(self.kernel, d)
        return reduce(products_of, [one] * self.exponent)

    def _frequencies(self, d: int, m: int, rng: np.random.Generator) -> Host:
        """Add p draws: the spectral density of a power is its p-fold convolution."""
        return sum(frequencies(self.kernel, d, m, rng) for _ in range(self.exponent))  # type: ignore[return-value]


# --- How the rest of the library asks a kernel, whatever `on` is ---------------------------------


def has_width(kernel: Kernel) -> bool:
    """Return True if a kernel has a width that can be found from rows.

    Examples
    --------
    >>> from dualpca.kernels import RBF, Linear
    >>> has_width(RBF()), has_width(Linear())
    (True, False)
    """
    return type(kernel)._with_width is not Kernel._with_width


def with_width(kernel: Kernel, X: Array, weights: Array | None = None) -> Kernel:
    """Return a kernel of the distance with the width at which its values differ the most.

    From at most 400 rows, evenly spaced (see `widest_spread`). Where columns are of unlike units
    (the variance of one is more than 100 times that of another; columns that mostly hold one value
    do not count), kernels with a width for every column get a multiple of its standard deviation:
    the same as one width for standardised columns. Kernels without a width stay as they are.

    Parameters
    ----------
    kernel : Kernel
    X : array of shape (n, d)
        Complete rows.
    weights : array of shape (n,), default=None

    Returns
    -------
    kernel : Kernel

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF, with_width
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> round(with_width(RBF(), X).gamma, 3)
    0.235
    >>> [round(width, 2) for width in with_width(RBF(), X * [1, 1, 1000]).length_scale]
    [1.56, 1.44, 1372.94]
    """
    if not has_width(kernel):
        return kernel
    scale = None
    if not backend.is_sparse(X):
        table = InMemoryTable(kernel._seen(X), weights)
        scale = backend.to_numpy(Units.of(table).scale) if have_unlike_units(table) else None
    step = max(1, -(-int(X.shape[0]) // WIDTH_ROWS))
    rows = backend.to_numpy(kernel._seen(X)[::step, :]).astype(np.float64)
    w = None if weights is None else np.asarray(backend.to_numpy(weights), np.float64)[::step]
    return kernel._with_width(rows, w, scale)


def fused_form(kernel: Kernel, X: Array) -> Form | None:
    """Return the form of a fused GPU pass over rows X; None if the kernel has none.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import Matern
    >>> fused_form(Matern(nu=1.5), np.zeros((1, 2))).shape
    'matern3'
    """
    return kernel._fused_form(X) if kernel.on is None else None


def expectation_terms(kernel: Kernel, d: int) -> list[Term]:
    """Return terms of known expectation whose sum is the kernel of d columns.

    Examples
    --------
    >>> from dualpca.kernels import RBF, Linear
    >>> [term.factor for term in expectation_terms(2.0 * (Linear() + RBF()), 3)]
    [2.0, 2.0]
    """
    columns = kernel._within(d)
    return [term.among(columns, d) for term in kernel._terms(len(columns))]


def feature_map(kernel: Kernel, X: Array) -> Array:
    """Return f(x) of every row, (n, r), with f(x)ᵀf(y) = k(x, y); raise if there is none."""
    return kernel._features(kernel._seen(X))


def monomials(kernel: Kernel, d: int) -> Monomials | None:
    """Return the monomials of d columns that span the features, where they are polynomials."""
    columns = kernel._within(d)
    found = kernel._monomials(len(columns))
    if found is None or kernel.on is None:
        return found
    return frozenset(tuple(sorted(columns[c] for c in each)) for each in found)


def products_of(left: Monomials | None, right: Monomials | None) -> Monomials | None:
    """Return all products of two monomials; None if they are too many to be counted."""
    if left is None or right is None or len(left) * len(right) > MOST_MONOMIALS:
        return None
    return frozenset(tuple(sorted(a + b)) for a in left for b in right)


def feature_dimension(kernel: Kernel, d: int, *, center: bool) -> int | None:
    """Return the dimension of the span of φ(x) over all rows x of d columns; None if not known.

    Of φ(x) − φ(y) if `center`: a constant feature then counts for nothing.

    Examples
    --------
    >>> from dualpca.kernels import RBF, Linear, Polynomial
    >>> [feature_dimension(k, 3, center=True) for k in (Linear(), Polynomial(degree=2), RBF())]
    [3, 9, None]
    """
    return kernel._dimension(len(kernel._within(d)), center=center)


def thin_factor(kernel: Kernel, X: Array) -> Array | None:
    """Return F, (n, r), r ≤ d, with FFᵀ = k(X, X) for dense rows of NumPy; None if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF, Linear
    >>> thin_factor(4.0 * Linear(), np.ones((1, 2))), thin_factor(RBF(), np.ones((1, 2)))
    (array([[2., 2.]]), None)
    """
    return kernel._factor(kernel._seen(X)) if type(X) is np.ndarray and X.ndim == 2 else None


def frequencies(kernel: Kernel, d: int, m: int, rng: np.random.Generator) -> Host:
    """Draw frequencies of random Fourier features, (d, m); raise if there are none."""
    kind = type(kernel) if kernel.on is None else Kernel  # whose method raises
    return kind._frequencies(kernel, d, m, rng)


def inverse_distances(kernel: Kernel, d: int) -> Distances | None:
    """Return how input distances follow from feature space, where they are those of all columns."""
    return kernel._distances(d) if kernel.on is None else None


def nonnegative_columns(kernel: Kernel, d: int) -> set[int]:
    """Return those of d columns that must not be negative for some part of a kernel."""
    columns = kernel._within(d)
    return {columns[c] for c in kernel._nonnegative_columns(len(columns))}


def onnx_values(kernel: Kernel, graph: OnnxGraph, rows: str, points: Host) -> str | None:
    """Add k(rows, points) to an ONNX graph; None if the kernel has no nodes."""
    if kernel.on is not None:
        rows = graph.add("Gather", rows, graph.integers(kernel.on), axis=1)
    return kernel._onnx(graph, rows, kernel._seen(points))
