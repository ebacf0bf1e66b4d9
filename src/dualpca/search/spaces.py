"""What a kernel search may try: kernels, sums and products of two, a number of components."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dualpca.arrays import Array
from dualpca.errors import expected, install
from dualpca.kernels import KERNELS, Family, Kernel, Parameter, Scales

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

# --- Families: the kernels that declare what a search varies -------------------------------------


def families() -> dict[str, Family]:
    """Return what a search varies in each kernel that it can be given by name."""
    return {name: kernel._search for name, kernel in KERNELS.items() if kernel._search}


USUAL = ("rbf", "laplacian", "matern", "rational_quadratic", "polynomial", "cosine", "linear")
"""What `kernels='auto'` tries, with 'periodic' where there is one column."""


# --- What may be tried: a kernel, or two that are added or multiplied, and a number of components

COMPOSITIONS = ("sum", "product")
WEIGHT = Parameter("weight", 1.0)
SCALE_ROWS = 300
"""Rows, evenly spaced, over which the variance of a kernel is taken."""

SINGLE = "single"


def optuna() -> Any:
    """Import Optuna, or say which extra brings it."""
    try:
        import optuna as module
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "optuna":
            raise
        message = f"KernelSearch needs Optuna: {install('search')}."
        raise ModuleNotFoundError(message, name="optuna") from error
    return module


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
        Names of `families()`, whose parameters are searched, and kernels to be used as they are.
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
        scales, joins = Scales.of(X), tuple(compositions)
        if isinstance(kernels, str) and kernels == "auto":
            kernels = (*USUAL, "periodic") if scales.columns == 1 else USUAL
        chosen = _checked(kernels, scales)
        if not set(joins) <= set(COMPOSITIONS) or len(set(joins)) < len(joins):
            what = f"among {list(COMPOSITIONS)}, each once"
            raise ValueError(expected("compositions", what, compositions))
        rows = X[:: -(-int(X.shape[0]) // SCALE_ROWS), :]
        known = tuple(k if isinstance(k, str) else k.resolve(X) for k in chosen)
        return cls(known, joins, components, rows, scales)

    @property
    def labels(self) -> tuple[str, ...]:
        """What the kernels are called in a record."""
        return tuple(k if isinstance(k, str) else repr(k) for k in self.kernels)

    def draw(self, trial: BaseTrial) -> Candidate:
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
        return self.draw(optuna().trial.FixedTrial(params))

    def first(self) -> dict[str, Any]:
        """Return the heuristic: an RBF, or else the first kernel, as wide as the median distance.

        The number of components is in the geometric middle.
        """
        label = "rbf" if "rbf" in self.labels else self.labels[0]
        family, (low, high) = families().get(label), self.components
        chosen: dict[str, Any] = {} if low == high else {"n_components": round(sqrt(low * high))}
        if self.compositions:
            chosen["composition"] = SINGLE
        if len(self.kernels) > 1:
            chosen["kernel"] = label
        return chosen | {p.name: p.centre for p in (family.parameters if family else ())}

    def _kernel(self, trial: BaseTrial, suffix: str) -> Kernel:
        labels, which = self.labels, 0
        if len(labels) > 1:
            which = labels.index(trial.suggest_categorical("kernel" + suffix, labels))
        kernel = self.kernels[which]
        if isinstance(kernel, Kernel):
            return kernel
        family = families()[kernel]
        found = {p.name: _suggest(trial, p, suffix) for p in family.parameters}
        return KERNELS[kernel](**family.arguments(self.scales, found))

    def _size(self, kernel: Kernel) -> float:
        """Return tr Kc / m over the rows; 1 where it is 0."""
        K = np.asarray(kernel(self.rows, self.rows))
        size = float(np.trace(K) / len(K) - K.mean())
        return size if np.isfinite(size) and size > 0 else 1.0


def _suggest(trial: BaseTrial, parameter: Parameter, suffix: str) -> Any:
    name = parameter.name + suffix
    if parameter.choices:
        return trial.suggest_categorical(name, parameter.choices)
    return trial.suggest_float(name, parameter.low, parameter.high, log=True)


def _checked(kernels: Any, scales: Scales) -> tuple[str | Kernel, ...]:
    """Return names and kernels that suit the rows."""
    given = (kernels,) if isinstance(kernels, str | Kernel) else tuple(kernels)
    if not given:
        raise ValueError(expected("kernels", "at least one kernel", kernels))
    known = families()
    for kernel in given:
        if isinstance(kernel, Kernel):
            continue
        if not isinstance(kernel, str) or kernel not in known:
            what = f"'auto', or among {sorted(known)} and objects of dualpca.kernels"
            raise ValueError(expected("kernels", what, kernel))
        reason = known[kernel].unfit(scales)
        if reason:
            raise ValueError(expected("kernels", f"without {kernel!r} here ({reason})", given))
    if len({k if isinstance(k, str) else repr(k) for k in given}) < len(given):
        raise ValueError(expected("kernels", "different from each other", given))
    return given
