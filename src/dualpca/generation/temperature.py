"""Narrower and wider densities, by a temperature."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dualpca.errors import expected
from dualpca.generation.densities import Density, Gaussian, KernelDensity, Mixture


def tempered(density: Density, temperature: float) -> Density:
    """Return the density with the covariance of every Gaussian in it times T; centres stay.

    A Gaussian becomes π^{1/T}, normalised, and so do parts of a mixture that lie apart. T < 1 draws
    points nearer to the centres: less varied, and less often where the density knows little.

    Parameters
    ----------
    density : Gaussian, KernelDensity or Mixture
    temperature : float
        T > 0.

    Examples
    --------
    >>> import numpy as np
    >>> tempered(Gaussian(np.zeros(1), np.array([[2.0]])), 0.25).factor
    array([[1.]])
    """
    if not 0 < temperature < math.inf:
        raise ValueError(expected("temperature", "a positive number", temperature))
    if isinstance(density, Gaussian | KernelDensity):
        return replace(density, factor=math.sqrt(temperature) * density.factor)
    if isinstance(density, Mixture):
        return replace(density, parts=tuple(tempered(p, temperature) for p in density.parts))
    what: Any = "Gaussian, KernelDensity or Mixture"
    raise ValueError(expected("density", what, density))
