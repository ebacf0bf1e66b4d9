"""Pre-images by descent: Mika's fixed point and L-BFGS, from several starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.kernels import Kernel, Scaled, Stationary
from dualpca.kernels.algebra import Pair
from dualpca.preimages.base import Method, PreImage, better
from dualpca.preimages.descent import Steps, descend
from dualpca.preimages.lbfgs import LBFGSSteps
from dualpca.preimages.smoother import Smoother
from dualpca.preimages.span import Target


@dataclass(frozen=True)
class Iterative(Method):
    """Minimise ‖φ(z) − P‖² from several starts; the best end of each row is kept.

    Starts: the smoother's answer, the nearest training point, and `start` where given (the noisy
    point itself). Distances never rise on the way. `iterations` are those of the run kept.

    Parameters
    ----------
    max_iter : int
    tol : float
        A row stops where it moves by less than this share of the spread of the data.
    """

    max_iter: int = 200
    tol: float = 1e-7

    def __post_init__(self) -> None:
        """Refuse limits that stop nothing."""
        if self.max_iter < 1:
            raise ValueError(expected("max_iter", "at least 1", self.max_iter))
        if not self.tol >= 0:
            raise ValueError(expected("tol", "non-negative", self.tol))

    def _steps(self, target: Target) -> Steps:
        raise TypeError(expected("method", "a subclass that defines _steps", type(self).__name__))

    def run(self, target: Target, Z: Array) -> PreImage:
        """Descend from one start a row."""
        end, counts = descend(target, Z, self._steps(target), self.max_iter, self.tol)
        xp, device = _array.namespace(Z), _array.device_of(Z)
        return PreImage(end, target.distance(end), xp.asarray(counts, device=device))

    def _find(self, target: Target, start: Array | None) -> tuple[Array, np.ndarray | None]:
        span = target.span
        closest = _array.namespace(target.Y).argmin(span.gaps(target.Y), axis=1)
        starts = [Smoother()._find(target, None)[0], _array.take(span.points, closest)]
        best = self.run(target, starts[0])
        for Z in starts[1:] if start is None else [*starts[1:], start]:
            best = better(best, self.run(target, Z))
        return best.points, _array.to_numpy(best.iterations)


@dataclass(frozen=True)
class FixedPoint(Iterative):
    """z ← Σ_i γ_i s_i x_i / Σ_i γ_i s_i with s_i = −f'(u_i), for kernels f(rate · ‖z − x‖²).

    Where the gradient of ‖φ(z) − P‖² vanishes, z is this mean. For the RBF kernel s is the kernel
    itself and this is MATH 11.1, of Mika et al. (1999, Eq. 10), here with the centred γ. Steps
    are halved towards the last z until the distance does not rise; where Σ γ s is negative the
    step is turned round, for it would climb.

    Cost O(n(d + q)) a row and iteration.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> from dualpca.preimages import Span
    >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
    >>> FixedPoint().find(span, np.array([[1.0]])).distance
    array([0.])
    """

    name: ClassVar[str] = "fixed-point"
    needs: ClassVar[str] = "a function of the distance (RBF, Matérn, …), or a multiple of one"

    def suits(self, kernel: Kernel) -> bool:
        """Tell whether the kernel is stationary."""
        return _stationary(kernel) is not None

    def _steps(self, target: Target) -> Steps:
        kernel = _stationary(target.span.kernel)
        assert kernel is not None  # find() has asked suits()
        return FixedPointSteps(kernel)


def _stationary(kernel: Kernel) -> Stationary | None:
    """Return the function of the distance that a kernel is up to a factor, if it is one."""
    if isinstance(kernel, Scaled) and kernel.on is None:
        return _stationary(kernel.kernel)
    return kernel if isinstance(kernel, Stationary) else None


class FixedPointSteps:
    """From z to the weighted mean; no memory."""

    def __init__(self, kernel: Stationary) -> None:
        self.kernel = kernel

    def direction(self, target: Target, Z: Array) -> tuple[Array, Array]:
        """Return Σ γ s (x − z) / |Σ γ s|; the loop only asks that J does not rise."""
        xp = _array.namespace(Z)
        S = -target.weights * self.kernel.slopes(Z, target.span.points)
        S = xp.where(xp.isfinite(S), S, 0 * target.weights)
        total = xp.sum(S, axis=1)[:, None]
        size = xp.abs(total)
        D = (S @ target.span.points - total * Z) / xp.where(size > 0, size, xp.ones_like(size))
        return D, xp.zeros_like(total[:, 0])

    def take(self, rows: np.ndarray) -> None:
        """Nothing to forget."""


@dataclass(frozen=True)
class Gradient(Iterative):
    """L-BFGS on ‖φ(z) − P‖², for any kernel with a gradient, many rows at once.

    Cost O(n(d + q)) a row and iteration.

    Parameters
    ----------
    max_iter, tol :
        As above.
    memory : int
        Pairs of steps and gradients kept.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> from dualpca.preimages import Span
    >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
    >>> Gradient().find(span, np.array([[1.0]])).distance
    array([0.])
    """

    name: ClassVar[str] = "gradient"
    needs: ClassVar[str] = "a kernel with a gradient in x"
    memory: int = 8

    def suits(self, kernel: Kernel) -> bool:
        """Tell whether all parts of the kernel define a gradient."""
        if isinstance(kernel, Pair):
            return self.suits(kernel.left) and self.suits(kernel.right)
        if isinstance(kernel, Scaled):
            return self.suits(kernel.kernel)
        return type(kernel)._pull is not Kernel._pull

    def _steps(self, target: Target) -> Steps:
        return LBFGSSteps(self.memory)
