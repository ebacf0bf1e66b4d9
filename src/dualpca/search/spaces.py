"""What a kernel search may try: families of kernels, sums and products, a number of components."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.spatial.distance import pdist

from dualpca.arrays import Array
from dualpca.errors import expected
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
    median_chi2_rate,
    median_over_pairs,
    median_squared_distance,
)

# --- Families of kernels as a search sees them: parameters without units, centred at a heuristic -


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


# --- What may be tried: a kernel, or two that are added or multiplied, and a number of components

COMPOSITIONS = ("sum", "product")
WEIGHT = Parameter("weight", 1.0, 0.1, 10.0)
ROWS = 300
"""Rows, evenly spaced, that say how large a kernel is."""

SINGLE = "single"


class Trial(Protocol):
    """What Optuna's trials can do, as far as a space needs it."""

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """Return one of the choices."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool) -> float:
        """Return a number of a range."""

    def suggest_int(self, name: str, low: int, high: int, *, log: bool) -> int:
        """Return a whole number of a range."""


@dataclass(frozen=True)
class Replay:
    """A trial whose answers are known."""

    params: dict[str, Any]

    def suggest_categorical(self, name: str, *_: Any, **__: Any) -> Any:
        """Return the known answer."""
        return self.params[name]

    suggest_float = suggest_int = suggest_categorical


class Candidate(NamedTuple):
    """A kernel with numbers for parameters, and how many components."""

    kernel: Kernel
    n_components: int


@dataclass(frozen=True, eq=False)
class Space:
    """All kernels and numbers of components that a search may try.

    Parameters
    ----------
    kernels : tuple of str and Kernel
        Names of `FAMILIES`, whose parameters are searched, and kernels that are taken as they are.
    compositions : tuple of {'sum', 'product'}
        Ways to join two kernels; empty for single kernels only.
    components : (int, int)
        The smallest and the largest number of components.
    rows : array of shape (m, d)
        Some of the rows: of a sum each part is divided by its variance tr Kc/m over them, so that
        `weight` means the same for all kernels.
    scales : Scales

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> space = Space.of(X, ["rbf", "linear"], (), (2, 2))
    >>> space.first()
    {'kernel': 'rbf', 'width': 1.0}
    >>> type(space.replay({"kernel": "linear"}).kernel).__name__
    'Linear'
    """

    kernels: tuple[str | Kernel, ...]
    compositions: tuple[str, ...]
    components: tuple[int, int]
    rows: Array
    scales: Scales

    @classmethod
    def of(cls, X: Array, kernels: Any, compositions: Any, components: tuple[int, int]) -> Space:
        """Return the space over rows X, checked."""
        scales = Scales.of(X)
        if isinstance(kernels, str) and kernels == "auto":
            kernels = (*USUAL, "periodic") if scales.columns == 1 else USUAL
        chosen = _checked(kernels, scales)
        joins = tuple(compositions)
        unknown = [join for join in joins if join not in COMPOSITIONS]
        if unknown or len(set(joins)) < len(joins):
            what = f"among {list(COMPOSITIONS)}, each once"
            raise ValueError(expected("compositions", what, compositions))
        rows = X[:: -(-int(X.shape[0]) // ROWS), :]
        known = [k if isinstance(k, str) else k.resolve(X) for k in chosen]
        return cls(tuple(known), joins, components, rows, scales)

    @property
    def labels(self) -> tuple[str, ...]:
        """What the kernels are called in a record."""
        return tuple(k if isinstance(k, str) else repr(k) for k in self.kernels)

    def draw(self, trial: Trial) -> Candidate:
        """Return what a trial suggests; which parameters there are depends on its answers."""
        low, high = self.components
        q = low if low == high else trial.suggest_int("n_components", low, high, log=True)
        join = SINGLE
        if self.compositions:
            join = trial.suggest_categorical("composition", (SINGLE, *self.compositions))
        left = self._kernel(trial, "")
        if join == SINGLE:
            return Candidate(left, q)
        right = self._kernel(trial, "_2")
        if join == "product":
            return Candidate(left * right, q)
        weight = _suggest(trial, WEIGHT, "")
        return Candidate(left * (1 / self._size(left)) + right * (weight / self._size(right)), q)

    def replay(self, params: dict[str, Any]) -> Candidate:
        """Return what a finished trial tried."""
        return self.draw(Replay(params))

    def first(self) -> dict[str, Any]:
        """Return the heuristic: an RBF, or else the first kernel, as wide as the median distance.

        The number of components is in the geometric middle.
        """
        label = "rbf" if "rbf" in self.labels else self.labels[0]
        family = FAMILIES.get(label)
        params = {} if family is None else {p.name: p.centre for p in family.parameters}
        low, high = self.components
        chosen: dict[str, Any] = {} if low == high else {"n_components": round(sqrt(low * high))}
        if self.compositions:
            chosen["composition"] = SINGLE
        if len(self.kernels) > 1:
            chosen["kernel"] = label
        return chosen | params

    def _kernel(self, trial: Trial, suffix: str) -> Kernel:
        labels, which = self.labels, 0
        if len(labels) > 1:
            which = labels.index(trial.suggest_categorical("kernel" + suffix, labels))
        kernel = self.kernels[which]
        if isinstance(kernel, Kernel):
            return kernel
        family = FAMILIES[kernel]
        found = {p.name: _suggest(trial, p, suffix) for p in family.parameters}
        return family.make(self.scales, found)

    def _size(self, kernel: Kernel) -> float:
        """Return tr Kc / m over the rows; 1 where it is 0."""
        K = np.asarray(kernel(self.rows, self.rows))
        size = float(np.trace(K) / len(K) - K.mean())
        return size if np.isfinite(size) and size > 0 else 1.0


def _suggest(trial: Trial, parameter: Parameter, suffix: str) -> Any:
    name = parameter.name + suffix
    if parameter.choices:
        return trial.suggest_categorical(name, parameter.choices)
    return trial.suggest_float(name, parameter.low, parameter.high, log=True)


def _checked(kernels: Any, scales: Scales) -> tuple[str | Kernel, ...]:
    """Return names and kernels that suit the rows."""
    given = (kernels,) if isinstance(kernels, str | Kernel) else tuple(kernels)
    if not given:
        raise ValueError(expected("kernels", "at least one kernel", kernels))
    for kernel in given:
        if isinstance(kernel, Kernel):
            continue
        if not isinstance(kernel, str) or kernel not in FAMILIES:
            what = f"'auto', or among {sorted(FAMILIES)} and objects of dualpca.kernels"
            raise ValueError(expected("kernels", what, kernel))
        reason = FAMILIES[kernel].unfit(scales)
        if reason:
            raise ValueError(expected("kernels", f"without {kernel!r} here ({reason})", given))
    if len({k if isinstance(k, str) else repr(k) for k in given}) < len(given):
        raise ValueError(expected("kernels", "different from each other", given))
    return given
