"""Ways through latent space: straight, along high density, along one component."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize

from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.generation.densities import Density, solved_rows


def straight(a: Array, b: Array, n: int) -> Array:
    """Return n points evenly spaced from a to b, both included, (n, q).

    Parameters
    ----------
    a, b : array of shape (q,)
    n : int
        Two or more.

    Examples
    --------
    >>> import numpy as np
    >>> straight(np.zeros(1), np.ones(1), 3)
    array([[0. ], [0.5], [1. ]])
    """
    if n < 2:
        raise ValueError(expected("n", "2 or more, both ends included", n))
    t = backend.asarray(np.linspace(0, 1, n), a)[:, None]
    return (1 - t) * a + t * b


def traversal(centre: Array, direction: Array, n: int, reach: float) -> Array:
    """Return n points evenly spaced from centre − reach·direction to centre + reach·direction.

    Parameters
    ----------
    centre, direction : array of shape (q,)
    n : int
    reach : float

    Examples
    --------
    >>> import numpy as np
    >>> traversal(np.zeros(2), np.array([0.0, 2.0]), 3, 1.5)
    array([[ 0., -3.], [ 0.,  0.], [ 0.,  3.]])
    """
    if not 0 < reach < np.inf:
        raise ValueError(expected("reach", "a positive number", reach))
    return straight(centre - reach * direction, centre + reach * direction, n)


def along_density(
    density: Density, a: Array, b: Array, n: int, *, weight: float = 1.0, factor: Array
) -> Array:
    """Return the path from a to b that trades length against density, (n, q).

    It minimises E = (n−1)/2 Σ_k ‖u_{k+1} − u_k‖² − weight/(n−1) Σ_k ln π(z_k), u = F⁻¹z, over the
    n − 2 points between: an elastic band that the density pulls at. As E starts at the straight
    path, the shortest, the mean of ln π along the result is never below that of the straight one.
    L-BFGS on the host; the density is evaluated where it lives.

    Parameters
    ----------
    density : Density
    a, b : array of shape (q,)
    n : int
    weight : float
        0 is the straight path.
    factor : array of shape (q, q)
        F, which says what length is; FFᵀ the covariance of the latents makes it free of scale.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.generation import KernelDensity
    >>> t = np.linspace(0, np.pi, 50)
    >>> arc = KernelDensity(np.column_stack([np.cos(t), np.sin(t)]), 0.1 * np.eye(2))
    >>> path = along_density(arc, arc.centres[0], arc.centres[-1], 9, factor=np.eye(2))
    >>> bool(path[4, 1] > 0.8)
    True
    """
    if not 0 <= weight < np.inf:
        raise ValueError(expected("weight", "a number of at least 0", weight))
    start = straight(a, b, n)
    if n == 2:
        return start
    steps, F = n - 1, backend.to_numpy(factor)
    ends = backend.to_numpy(solved_rows(factor, start))

    def energy(flat: Any) -> tuple[float, Any]:
        U = np.concatenate([ends[:1], flat.reshape(n - 2, -1), ends[-1:]])
        value, gradient = density.value_and_gradient(backend.asarray(U[1:-1] @ F.T, start))
        D = np.diff(U, axis=0)
        pull = backend.to_numpy(gradient) @ F
        cost = 0.5 * steps * np.sum(D * D) - weight / steps * float(backend.to_numpy(value).sum())
        return float(cost), (steps * (D[:-1] - D[1:]) - weight / steps * pull).ravel()

    found = scipy.optimize.minimize(energy, ends[1:-1].ravel(), jac=True, method="L-BFGS-B")
    between = backend.asarray(found.x.reshape(n - 2, -1) @ F.T, start)
    return backend.namespace(start).concat([start[:1, :], between, start[-1:, :]], axis=0)
