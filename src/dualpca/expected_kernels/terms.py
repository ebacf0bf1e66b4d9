"""A kernel as a sum of products of Gaussian and polynomial factors, over the columns they see."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.expected_kernels.points import Uncertain
from dualpca.kernels import RBF, Constant, Kernel, Linear, Polynomial, Product, Scaled, Sum
from dualpca.kernels.parameters import number

Columns = tuple[int, ...]
Vector = np.ndarray[tuple[int], np.dtype[np.float64]]

REMEDY = (
    "Expectations are known for RBF, Linear, Polynomial (degree 1, 2, 3), Constant, their sums, "
    "multiples, and products of RBFs or over different columns; impute the rows first for others."
)


@dataclass(frozen=True, eq=False)
class Poly:
    """(Σ_c weights_c x_c y_c + constant)^degree, with weights ≥ 0."""

    weights: Vector  # (d,), 0 for columns that are not seen
    constant: float
    degree: int


@dataclass(frozen=True, eq=False)
class Term:
    """factor · exp(−Σ_c rates_c (x_c − y_c)²) · Π of polynomials."""

    factor: float
    rates: Vector  # (d,), 0 for columns that are not seen
    polys: tuple[Poly, ...] = ()

    @property
    def is_gaussian(self) -> bool:
        """Whether some column decays."""
        return bool(self.rates.any())

    def check(self, x: Uncertain) -> None:
        """Refuse factors that are not independent: shared or correlated columns."""
        seen = [p.weights > 0 for p in self.polys] + [self.rates > 0] * self.is_gaussian
        for i, a in enumerate(seen):
            for b in seen[:i]:
                if (a & b).any() or _correlated(x, a, b):
                    raise ValueError(
                        "the expectation of this product of kernels is unknown: its factors share "
                        "columns, or columns whose missing entries are correlated. " + REMEDY
                    )


def _correlated(x: Uncertain, a: Array, b: Array) -> bool:
    """Tell whether the unknown parts of two sets of columns are correlated in some row."""
    xp = _array.namespace(x.mean)
    both = _array.asarray(np.outer(a, b), x.mean)
    return bool(xp.any(x.covariance * both[None, :, :] != 0))


def split(kernel: Kernel, d: int) -> list[Term]:
    """Return the terms of a kernel of d columns.

    Examples
    --------
    >>> [term.factor for term in split(2.0 * (Linear() + RBF()), 3)]
    [2.0, 2.0]
    """
    return terms(kernel, tuple(range(d)), d)


def seen(kernel: Kernel, columns: Columns) -> Columns:
    """Return which of the d columns a kernel sees, given those that it is shown."""
    if kernel.on is None:
        return columns
    if max(kernel.on) >= len(columns):
        raise ValueError(expected("on", f"columns below {len(columns)}", kernel.on))
    return tuple(columns[c] for c in kernel.on)


def spread(values: float | Array, columns: Columns, d: int) -> Vector:
    """Return values at those columns and 0 at the others, (d,)."""
    full = np.zeros(d)
    full[list(columns)] = values
    return full


@singledispatch
def terms(kernel: Kernel, columns: Columns, d: int) -> list[Term]:
    """Return the terms whose sum is the kernel, for kernels whose expectation is known.

    Parameters
    ----------
    kernel : Kernel
    columns : tuple of int
        Which of the d columns it is shown.
    d : int
    """
    raise TypeError(expected("kernel", "one whose expectation is known", kernel, REMEDY))


@terms.register
def _(kernel: RBF, columns: Columns, d: int) -> list[Term]:
    columns = seen(kernel, columns)
    rates = kernel.rates(np.empty((0, len(columns))))
    return [Term(1.0, spread(rates, columns, d))]


@terms.register
def _(kernel: Linear, columns: Columns, d: int) -> list[Term]:
    return [Term(1.0, np.zeros(d), (Poly(spread(1.0, seen(kernel, columns), d), 0.0, 1),))]


@terms.register
def _(kernel: Constant, columns: Columns, d: int) -> list[Term]:
    return [Term(float(kernel.value), np.zeros(d))]


@terms.register
def _(kernel: Polynomial, columns: Columns, d: int) -> list[Term]:
    if kernel.degree > 3:
        what = "1, 2 or 3 where rows are uncertain"
        raise ValueError(expected("degree of Polynomial", what, kernel.degree, REMEDY))
    columns = seen(kernel, columns)
    gamma = 1.0 / len(columns) if kernel.gamma is None else number(kernel, kernel.gamma)
    return [
        Term(
            1.0,
            np.zeros(d),
            (Poly(spread(gamma, columns, d), float(kernel.coef0), kernel.degree),),
        )
    ]


@terms.register
def _(kernel: Scaled, columns: Columns, d: int) -> list[Term]:
    inner = terms(kernel.kernel, seen(kernel, columns), d)
    return [Term(kernel.factor * t.factor, t.rates, t.polys) for t in inner]


@terms.register
def _(kernel: Sum, columns: Columns, d: int) -> list[Term]:
    columns = seen(kernel, columns)
    return terms(kernel.left, columns, d) + terms(kernel.right, columns, d)


@terms.register
def _(kernel: Product, columns: Columns, d: int) -> list[Term]:
    """Multiply term by term; the product of two RBFs is one, wherever their columns are."""
    columns = seen(kernel, columns)
    left, right = terms(kernel.left, columns, d), terms(kernel.right, columns, d)
    return [
        Term(s.factor * t.factor, s.rates + t.rates, s.polys + t.polys) for s in left for t in right
    ]
