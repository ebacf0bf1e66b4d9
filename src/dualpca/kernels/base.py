"""What a kernel is: values, diagonal, gradient in x; its parameters; sums, products, multiples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from math import sqrt
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from scipy.spatial.distance import pdist

from dualpca.arrays import Array, algebra, backend
from dualpca.errors import expected

# --- What a kernel's parameters may be: numbers, words to be read from the rows, one per column --


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite real number."""
    return type(value) is not bool and isinstance(value, Real) and bool(np.isfinite(float(value)))


def is_positive(value: Any) -> bool:
    """Tell whether a value is a positive, finite number."""
    return is_number(value) and value > 0


def check_positive(kernel: Any, *names: str) -> None:
    """Refuse parameters that are neither positive numbers nor None nor words that `rules` knows."""
    for name in names:
        value = getattr(kernel, name)
        if value is not None and not isinstance(value, str) and not is_positive(value):
            raise ValueError(expected(f"{name} of {type(kernel).__name__}", "positive", value))


def check_width(kernel: Any, gamma: Any, length_scale: Any) -> None:
    """Refuse both widths at once, and widths that are not positive."""
    name = type(kernel).__name__
    if gamma is not None and length_scale is not None:
        raise ValueError(expected(name, "given gamma or length_scale, not both", kernel))
    several = isinstance(length_scale, tuple)
    values = (gamma, *length_scale) if several else (gamma, length_scale)
    for value in values:
        if value is not None and not isinstance(value, str) and not is_positive(value):
            raise ValueError(expected(name, "given a positive gamma or length_scale", kernel))
    if several and (not length_scale or any(isinstance(v, str) for v in length_scale)):
        raise ValueError(expected(name, "given a positive length_scale for every column", kernel))


def as_lengths(length_scale: Any) -> Any:
    """Return a length scale for every column as a tuple, so that kernels can be hashed."""
    if length_scale is None or isinstance(length_scale, str | Real):
        return length_scale
    lengths = np.asarray(length_scale)
    if lengths.ndim == 0:
        return lengths.item()
    if lengths.ndim != 1 or lengths.dtype.kind not in "fiu":
        what = "a positive number, or one for every column"
        raise ValueError(expected("length_scale", what, length_scale))
    return tuple(float(v) for v in lengths)


def number(kernel: Any, value: Any) -> float:
    """Return a parameter that must be one number by now."""
    if isinstance(value, str):
        raise ValueError(
            f"{kernel!r} takes {value!r} from the rows: call resolve(X) first, or fit a model."
        )
    if isinstance(value, tuple):
        what = "one number where a single width is needed"
        raise ValueError(expected(f"length_scale of {type(kernel).__name__}", what, value))
    return float(value)


# --- Parameters found from the rows: 'scale' as in scikit-learn, 'median' of the distances -------

Distances = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]
"""From rows to the distances of pairs i < j, in one vector."""

ENOUGH = 1000
"""Rows, evenly spaced over the table, whose distances stand for all."""


def scale_rate(X: Array) -> float:
    """Return 1 / (d · variance of all entries), scikit-learn's gamma='scale'; 1 if constant."""
    if backend.is_sparse(X):
        size = int(X.shape[0]) * int(X.shape[1])
        variance = float(algebra.squared_norms(X).sum()) / size - float(X.sum() / size) ** 2
    else:
        variance = float(backend.namespace(X).var(backend.working(X)))
    return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0


def median_squared_distance(X: Array) -> float:
    """Return the median of ‖x_i − x_j‖² over pairs i < j; 1 where it would be 0.

    Examples
    --------
    >>> import numpy as np
    >>> median_squared_distance(np.array([[0.0], [1.0], [3.0]]))
    4.0
    """
    return median_over_pairs(X, lambda rows: pdist(rows, "sqeuclidean"))


def median_over_pairs(X: Array, distances: Distances) -> float:
    """Return the median of a distance over pairs of at most `ENOUGH` rows; 1 for 0."""
    step = max(1, -(-int(X.shape[0]) // ENOUGH))
    rows = backend.to_numpy(X[::step, :]).astype(np.float64)
    values = distances(rows) if rows.shape[0] > 1 else np.zeros(1)
    found = float(np.median(values))
    return found if found > 0 else 1.0


def median_rate(X: Array) -> float:
    """Return 1 / (median of the squared distances)."""
    return 1.0 / median_squared_distance(X)


def median_length(X: Array) -> float:
    """Return the median distance."""
    return sqrt(median_squared_distance(X))


def column_rate(X: Array) -> float:
    """Return 1 / d, scikit-learn's gamma='auto'."""
    return 1.0 / int(X.shape[1])


def median_taxicab_rate(X: Array) -> float:
    """Return 1 / (median of Σ|x_j − y_j| over pairs of rows); 1 where it would be 0."""
    return 1.0 / median_over_pairs(X, lambda rows: pdist(rows, "cityblock"))


def median_chi2_rate(X: Array) -> float:
    """Return 1 / (median of Σ(x_j − y_j)²/(x_j + y_j) over pairs of rows); 1 where it would be 0.

    Examples
    --------
    >>> import numpy as np
    >>> median_chi2_rate(np.array([[0.0, 1.0], [4.0, 1.0]]))
    0.25
    """
    return 1.0 / median_over_pairs(X, _chi2_pairs)


def _chi2_pairs(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the χ² distances of pairs i < j, one column at a time."""
    i, j = np.triu_indices(rows.shape[0], 1)
    found = np.zeros(i.size)
    for x in rows.T:
        total = x[i] + x[j]
        found += (x[i] - x[j]) ** 2 / np.where(total > 0, total, 1.0)
    return found


# --- What a kernel is: values, diagonal, gradient in x, on all columns or on some ----------------

KERNELS: dict[str, type[Kernel]] = {}

Rule = Callable[[Array], float]
"""A parameter found from the rows, (n, d)."""


@dataclass(frozen=True)
class Kernel:
    """A positive semi-definite function k(x, y).

    Subclasses define `_against`, `_diag` and `_pull`; a class attribute `name` registers them.

    Parameters
    ----------
    on : sequence of int, optional
        The columns that this kernel sees; all of them unless given.
    """

    name: ClassVar[str] = ""
    definite: ClassVar[bool] = True
    """Whether every Gram matrix is positive semi-definite."""
    sparse: ClassVar[bool] = False
    """Whether rows may be SciPy sparse matrices."""
    invariant: ClassVar[bool] = False
    """Whether k(x + c, y + c) = k(x, y)."""
    nonnegative: ClassVar[bool] = False
    """Whether entries below 0 are refused, as for histograms."""
    rules: ClassVar[dict[str, dict[str, Rule]]] = {}
    """Parameter name to the words it takes in place of a number, and what they mean."""
    on: Sequence[int] | None = field(default=None, kw_only=True)

    def __init_subclass__(cls) -> None:
        """Register the kernel under its name."""
        if cls.name:
            KERNELS[cls.name] = cls

    def __post_init__(self) -> None:
        """Check the parameters once, and keep `on` as a tuple so that kernels can be hashed."""
        if self.on is not None:
            object.__setattr__(self, "on", _columns(self.on))
        for name, words in self.rules.items():
            value = getattr(self, name)
            if isinstance(value, str) and value not in words:
                raise ValueError(expected(name, f"a number or one of {sorted(words)}", value))
        self._check()

    def _check(self) -> None:
        """Refuse parameters that define no kernel. Words such as 'median' come through here too."""

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        """Return x ↦ k(x, Y), with what depends on Y alone done once. The result is fresh."""
        raise TypeError(expected("kernel", "a subclass that defines _against", type(self).__name__))

    def _diag(self, X: Array) -> Array:
        raise TypeError(expected("kernel", "a subclass that defines _diag", type(self).__name__))

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        raise TypeError(expected("kernel", "a subclass that defines _pull", type(self).__name__))

    def _diag_gradient(self, Z: Array) -> Array:
        """Return ∂k(z, z)/∂z; by symmetry twice the gradient in the first argument at y = z."""
        xp = backend.namespace(Z)
        one = backend.ones((1, 1), Z)
        rows = [2 * self._pull(Z[i : i + 1, :], Z[i : i + 1, :], one) for i in range(Z.shape[0])]
        return xp.concat(rows, axis=0) if rows else xp.zeros_like(Z)

    def __call__(self, X: Array, Y: Array) -> Array:
        """Return k(x_i, y_j), (n, m)."""
        return self.against(Y)(X)

    def against(self, Y: Array) -> Callable[[Array], Array]:
        """Return the function x ↦ k(x, y_j), (n, d) ↦ (n, m), to be evaluated block by block."""
        if self.on is None:
            return self._against(Y)
        of = self._against(seen := self._seen(Y))
        return lambda X: of(seen if X is Y else self._seen(X))

    def diag(self, X: Array) -> Array:
        """Return k(x_i, x_i), (n,)."""
        return self._diag(self._seen(X))

    def gradient(self, x: Array, Y: Array) -> Array:
        """Return ∂k(x, y_j)/∂x, (m, d), for one point x of shape (d,)."""
        xp = backend.namespace(x)
        m = int(Y.shape[0])
        Z = xp.broadcast_to(x[None, :], (m, x.shape[0]))
        return self.pull(Z, Y, backend.identity(m, x))

    def pull(self, Z: Array, Y: Array, C: Array) -> Array:
        """Return Σ_j C_ij ∂k(z_i, y_j)/∂z_i, (n, d): what gradient descent over points needs.

        Parameters
        ----------
        Z : array of shape (n, d)
        Y : array of shape (m, d)
        C : array of shape (n, m)
        """
        return self._full(self._pull(self._seen(Z), self._seen(Y), C), Z)

    def diag_gradient(self, Z: Array) -> Array:
        """Return ∂k(z_i, z_i)/∂z_i, (n, d)."""
        return self._full(self._diag_gradient(self._seen(Z)), Z)

    def resolve(self, X: Array) -> Kernel:
        """Return this kernel with numbers in place of words such as 'scale' or 'median'."""
        X = self._seen(X)
        words = {f.name: getattr(self, f.name) for f in fields(self) if f.name in self.rules}
        found: dict[str, Any] = {
            k: self.rules[k][v](X) for k, v in words.items() if isinstance(v, str)
        }
        return replace(self, **found) if found else self

    def _seen(self, X: Array) -> Array:
        """Return the columns that this kernel sees."""
        if self.on is None:
            return X
        if max(self.on) >= X.shape[1]:
            raise ValueError(expected("on", f"columns below {X.shape[1]}", self.on))
        return backend.take(X, list(self.on), axis=1)

    def _full(self, G: Array, Z: Array) -> Array:
        """Return gradients with zeros in the columns that this kernel does not see."""
        if self.on is None:
            return G
        xp, columns = backend.namespace(Z), {c: i for i, c in enumerate(self.on)}
        zero = xp.zeros_like(Z[:, 0])
        parts = [G[:, columns[c]] if c in columns else zero for c in range(Z.shape[1])]
        return xp.stack(parts, axis=1)

    def __add__(self, other: Kernel) -> Kernel:
        """Return k + l."""
        return Sum(self, other)

    def __mul__(self, other: Kernel | float) -> Kernel:
        """Return k · l, or a scaled kernel."""
        return Product(self, other) if isinstance(other, Kernel) else Scaled(float(other), self)

    def __rmul__(self, other: float) -> Kernel:
        """Return a scaled kernel."""
        return self * other


def _columns(on: Any) -> tuple[int, ...]:
    """Return column numbers as a tuple."""
    columns = np.asarray(on)
    good = columns.ndim == 1 and columns.size > 0 and columns.dtype.kind in "iu"
    if not good or columns.min() < 0 or np.unique(columns).size < columns.size:
        raise ValueError(expected("on", "different column numbers, from 0", on))
    return tuple(int(c) for c in columns)


# --- Kernels made of kernels: sums, products and positive multiples ------------------------------


@dataclass(frozen=True)
class Pair(Kernel):
    """Two kernels, joined."""

    left: Kernel
    right: Kernel

    def _check(self) -> None:
        for part in (self.left, self.right):
            if not isinstance(part, Kernel):
                raise TypeError(expected("a part of a kernel", "a Kernel", part))

    @property
    def definite(self) -> bool:  # type: ignore[override]
        """Whether both parts are."""
        return self.left.definite and self.right.definite

    @property
    def invariant(self) -> bool:  # type: ignore[override]
        """Whether both parts are."""
        return self.left.invariant and self.right.invariant

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        """Whether both parts take sparse rows."""
        return self.left.sparse and self.right.sparse

    def resolve(self, X: Array) -> Kernel:
        """Resolve both parts."""
        X = self._seen(X)
        return type(self)(self.left.resolve(X), self.right.resolve(X), on=self.on)


@dataclass(frozen=True)
class Sum(Pair):
    """k + l."""

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        k, m = self.left.against(Y), self.right.against(Y)
        return lambda X: k(X) + m(X)

    def _diag(self, X: Array) -> Array:
        return self.left.diag(X) + self.right.diag(X)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        return self.left.pull(Z, Y, C) + self.right.pull(Z, Y, C)

    def _diag_gradient(self, Z: Array) -> Array:
        return self.left.diag_gradient(Z) + self.right.diag_gradient(Z)


@dataclass(frozen=True)
class Product(Pair):
    """k · l."""

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        k, m = self.left.against(Y), self.right.against(Y)
        return lambda X: k(X) * m(X)

    def _diag(self, X: Array) -> Array:
        return self.left.diag(X) * self.right.diag(X)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        """Return k'l + kl'."""
        k, m = self.left(Z, Y), self.right(Z, Y)
        return self.left.pull(Z, Y, C * m) + self.right.pull(Z, Y, C * k)

    def _diag_gradient(self, Z: Array) -> Array:
        k, m = self.left.diag(Z)[:, None], self.right.diag(Z)[:, None]
        return self.left.diag_gradient(Z) * m + self.right.diag_gradient(Z) * k


@dataclass(frozen=True)
class Scaled(Kernel):
    """c · k for c > 0."""

    factor: float
    kernel: Kernel

    def _check(self) -> None:
        if not self.factor > 0:
            raise ValueError(expected("the factor of a kernel", "positive", self.factor))

    @property
    def definite(self) -> bool:  # type: ignore[override]
        """Whether the kernel is."""
        return self.kernel.definite

    @property
    def invariant(self) -> bool:  # type: ignore[override]
        """Whether the kernel is."""
        return self.kernel.invariant

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        """Whether the kernel takes sparse rows."""
        return self.kernel.sparse

    def resolve(self, X: Array) -> Kernel:
        """Resolve the kernel."""
        return Scaled(self.factor, self.kernel.resolve(self._seen(X)), on=self.on)

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        of = self.kernel.against(Y)
        return lambda X: self.factor * of(X)

    def _diag(self, X: Array) -> Array:
        return self.factor * self.kernel.diag(X)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        return self.factor * self.kernel.pull(Z, Y, C)

    def _diag_gradient(self, Z: Array) -> Array:
        return self.factor * self.kernel.diag_gradient(Z)
