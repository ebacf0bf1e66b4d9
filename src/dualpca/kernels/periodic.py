"""What repeats: a function of the sine of the distance."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from typing import ClassVar

from dualpca import _array
from dualpca._typing import Array
from dualpca.kernels.parameters import check_positive
from dualpca.kernels.stationary import Stationary


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
    monotone: ClassVar[bool] = False
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
        xp = _array.namespace(E)
        return xp.exp(-2 * (xp.sin(xp.sqrt(-E)) / float(self.length_scale)) ** 2)

    def _slope(self, E: Array) -> Array:
        """Return df/du = −f sin(2t)/(t length_scale²), t = √u; at t = 0 the fraction is 2."""
        xp = _array.namespace(E)
        t = xp.sqrt(-E)
        safe = xp.where(t > 0, t, xp.ones_like(t))
        ratio = xp.where(t > 0, xp.sin(2 * t) / safe, 2 * xp.ones_like(t))
        return -self._profile(E) * ratio / float(self.length_scale) ** 2
