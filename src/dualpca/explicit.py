"""Feature maps that can be written down: those of linear and polynomial kernels and their sums."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb, factorial, prod, sqrt

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import DualPCAError, expected
from dualpca.kernels import Kernel, Linear, Polynomial, Scaled, Sum

MOST = 20_000
"""Largest number of features that are written down."""


@dataclass(frozen=True)
class Explicit:
    """f with f(x)ᵀf(y) = k(x, y), exactly.

    (γ xᵀy + c)^p = Σ over monomials of degree |a| ≤ p: the feature of x^a is
    √(p! / (a! (p − |a|)!) γ^{|a|} c^{p − |a|}) x^a, C(d + p, p) in all, or C(d + p − 1, p) where
    c = 0.

    Parameters
    ----------
    kernel : Kernel
        Linear, Polynomial with c ≥ 0, or sums and multiples of these; numbers for parameters.

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])
    >>> f = Explicit(Polynomial(degree=2, gamma=1.0))
    >>> f(x).shape, (f(x) @ f(y).T).round(8)
    ((1, 6), array([[144.]]))
    """

    kernel: Kernel

    def __call__(self, X: Array) -> Array:
        """Return f(x) of every row, (n, r)."""
        return _features(self.kernel, _array.points(X))


def _features(kernel: Kernel, X: Array) -> Array:
    """Return the features of one kernel, by what it is made of."""
    X = kernel._seen(X)
    if isinstance(kernel, Scaled):
        return sqrt(kernel.factor) * _features(kernel.kernel, X)
    if isinstance(kernel, Sum):
        parts = [_features(k, X) for k in (kernel.left, kernel.right)]
        return _array.namespace(X).concat(parts, axis=1)
    if isinstance(kernel, Linear):
        return X
    if isinstance(kernel, Polynomial) and kernel.coef0 >= 0:
        return _monomials(kernel, X)
    remedy = "Models of other kernels exist in the dual only."
    what = "Linear, Polynomial with coef0 of at least 0, or sums and multiples of these"
    raise DualPCAError(expected("the kernel of an explicit feature map", what, kernel, remedy))


def _monomials(kernel: Polynomial, X: Array) -> Array:
    """Return all monomials of the columns up to the degree, weighted."""
    d, p, c = int(X.shape[1]), kernel.degree, float(kernel.coef0)
    gamma = kernel.rate_for(X)
    if comb(d + p, p) > MOST:
        what = f"with at most {MOST} monomials"
        raise DualPCAError(expected("the polynomial", what, f"{comb(d + p, p)} of {d} columns"))
    xp, one = _array.namespace(X), _array.ones((int(X.shape[0]),), X)
    degrees = range(p + 1) if c > 0 else (p,)
    found = []
    for k in degrees:
        for columns in combinations_with_replacement(range(d), k):
            counts = np.bincount(columns, minlength=d) if columns else ()
            ways = factorial(p) / (prod(factorial(int(a)) for a in counts) * factorial(p - k))
            feature = sqrt(ways * gamma**k * c ** (p - k)) * one
            for j in columns:
                feature = feature * X[:, j]
            found.append(feature)
    return xp.stack(found, axis=1)
