"""All methods that suit the kernel; each row keeps its best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.kernels import Kernel
from dualpca.preimages.base import Method, PreImage, Span, Target, better
from dualpca.preimages.closed import Distance, Learned, Smoother
from dualpca.preimages.iterative import FixedPoint, Gradient


@dataclass(frozen=True)
class Auto(Method):
    """Run every method that suits the kernel, refine the best, keep the smallest distance a row.

    No part is ever closer. It costs as much as all of them. Close in feature space is not always
    close to the clean input: where P itself has shrunk to the mean under heavy noise, the smoother
    and the distances, which answer with neighbours, may denoise better.

    Parameters
    ----------
    parts : tuple of Method

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> from dualpca.preimages import Span
    >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
    >>> Auto().find(span, np.array([[1.0]])).distance
    array([0.])
    """

    name: ClassVar[str] = "auto"
    parts: tuple[Method, ...] = (Smoother(), Distance(), Learned(), FixedPoint(), Gradient())

    def prepare(self, span: Span) -> Method:
        """Prepare the methods that suit the kernel."""
        return Auto(tuple(p.prepare(span) for p in self.parts if p.suits(span.kernel)))

    def suits(self, kernel: Kernel) -> bool:
        """Tell whether any part does."""
        return any(p.suits(kernel) for p in self.parts)

    def _find(self, target: Target, start: Array | None) -> tuple[Array, np.ndarray | None]:
        best: PreImage | None = None
        for part in self.parts:
            found = part.block(target, start)
            best = found if best is None else better(best, found)
        assert best is not None  # find() has asked suits()
        if Gradient().suits(target.span.kernel):
            best = better(best, Gradient().run(target, best.points))
        return best.points, backend.to_numpy(best.iterations)
