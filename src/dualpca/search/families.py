"""Families of kernels as a search sees them: parameters without units, centred at a heuristic.

A width of 1 is the median distance between rows, so a search does not change when the rows are
multiplied by a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import pdist

from dualpca._typing import Array
from dualpca.kernels import (
    RBF,
    ArcCosine,
    Chi2,
    Cosine,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    RationalQuadratic,
)
from dualpca.kernels.heuristics import (
    median_chi2_rate,
    median_over_pairs,
    median_squared_distance,
)


class Scales(NamedTuple):
    """The units of the rows."""

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
        return cls(
            sqrt(median_squared_distance(X)),
            median_over_pairs(X, lambda rows: pdist(rows, "cityblock")),
            norm if norm > 0 else 1.0,
            1.0 / median_chi2_rate(X) if np.min(X) >= 0 else 0.0,
            int(X.shape[1]),
        )


class Parameter(NamedTuple):
    """A number on a logarithmic scale, or one of some choices; `centre` is the heuristic."""

    name: str
    centre: Any
    low: float = 0.0
    high: float = 0.0
    choices: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Family:
    """A kernel whose parameters are to be searched.

    `make` takes the scales and the parameters; `unfit` says why a table has no such kernel.
    """

    make: Callable[[Scales, dict[str, Any]], Kernel]
    parameters: tuple[Parameter, ...] = ()
    unfit: Callable[[Scales], str] = lambda scales: ""


WIDTH = Parameter("width", 1.0, 0.1, 10.0)

FAMILIES: dict[str, Family] = {
    "rbf": Family(lambda s, p: RBF(gamma=(p["width"] * s.distance) ** -2.0), (WIDTH,)),
    "laplacian": Family(lambda s, p: Laplacian(gamma=1 / (p["width"] * s.taxicab)), (WIDTH,)),
    "matern": Family(
        lambda s, p: Matern(nu=p["nu"], length_scale=p["width"] * s.distance),
        (WIDTH, Parameter("nu", 1.5, choices=(0.5, 1.5, 2.5))),
    ),
    "rational_quadratic": Family(
        lambda s, p: RationalQuadratic(alpha=p["alpha"], length_scale=p["width"] * s.distance),
        (WIDTH, Parameter("alpha", 1.0, 0.1, 10.0)),
    ),
    "polynomial": Family(
        lambda s, p: Polynomial(degree=p["degree"], gamma=1 / s.norm, coef0=p["coef0"]),
        (Parameter("degree", 2, choices=(2, 3, 4)), Parameter("coef0", 1.0, 0.01, 100.0)),
    ),
    "cosine": Family(lambda s, p: Cosine()),
    "linear": Family(lambda s, p: Linear()),
    "arc_cosine": Family(
        lambda s, p: ArcCosine(order=p["order"]), (Parameter("order", 1, choices=(0, 1, 2)),)
    ),
    "chi2": Family(
        lambda s, p: Chi2(gamma=1 / (p["width"] * s.chi2)),
        (WIDTH,),
        lambda s: "" if s.chi2 else "it needs entries of 0 and above",
    ),
    "periodic": Family(
        lambda s, p: Periodic(
            periodicity=p["period"] * s.distance, length_scale=p["wave"], on=(0,)
        ),
        (Parameter("period", 1.0, 0.1, 10.0), Parameter("wave", 1.0, 0.1, 10.0)),
        lambda s: "" if s.columns == 1 else "it needs a single column",
    ),
}
"""By name. 'periodic' is positive semi-definite for one column only, 'chi2' needs histograms."""

USUAL = (
    "rbf",
    "laplacian",
    "matern",
    "rational_quadratic",
    "polynomial",
    "cosine",
    "linear",
)
"""What `kernels='auto'` tries, with 'periodic' where there is one column."""
