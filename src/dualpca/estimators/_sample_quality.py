"""How good the samples of a `Generator` are, beside rows that it has not seen."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualpca import generation
from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.estimators._base import check_number, generator
from dualpca.estimators._latent_paths import LatentPaths
from dualpca.generation import Nearest


class Quality(NamedTuple):
    """How samples compare with rows that no fit has seen."""

    precision: float  # share of samples that lie among the rows
    recall: float  # share of rows that lie among the samples
    mmd: float  # squared maximum mean discrepancy, unbiased: about 0 if they are alike
    p_value: float  # of the hypothesis that they are
    novelty: float  # median distance to the nearest training point, in units of that of the rows


class SampleQuality(LatentPaths):
    """Nearest training points, precision, recall and a two-sample test.

    Subclasses provide `sample` as well.
    """

    sample: Any

    def nearest(self, X: Any) -> Nearest:
        """Return the training point nearest to every row, to see whether the row is new.

        Parameters
        ----------
        X : array of shape (m, d)

        Returns
        -------
        Nearest
            `index` (m,) of rows of `X_fit_`, and `distance` (m,).
        """
        return generation.nearest(self._rows(X, "nearest"), self.X_fit_)

    def quality(
        self,
        X: Any,
        n_samples: int | None = None,
        k: int = 3,
        n_permutations: int = 200,
        random_state: Any = None,
    ) -> Quality:
        """Compare samples with rows that were not used to fit.

        Parameters
        ----------
        X : array of shape (m, d)
            More than k rows. Rows of the training set would flatter.
        n_samples : int, optional
            m unless given.
        k : int
            Neighbours that define the reach of a point, for precision and recall.
        n_permutations : int
            Of the kernel two-sample test.
        random_state : None, int, Generator or RandomState

        Returns
        -------
        Quality
            `precision`, `recall`, `mmd`, `p_value`, `novelty`. A novelty of 0 is copies of
            training points, 1 is as far from them as held-out rows are.
        """
        rows, rng = self._rows(X, "quality"), generator(random_state)
        for name, value in (("k", k), ("n_permutations", n_permutations)):
            check_number(name, value, 1, integer=True)
        scale = _median(generation.nearest(rows, self.X_fit_).distance)
        if scale == 0:
            raise ValueError(expected("X", "rows that fit has not seen", "mostly training rows"))
        new = self.sample(int(rows.shape[0]) if n_samples is None else n_samples, rng)
        novelty = _median(generation.nearest(new, self.X_fit_).distance) / scale
        covered = generation.coverage(rows, new, int(k))
        test = generation.mmd_test(new, rows, rng, int(n_permutations))
        return Quality(*covered, *test, novelty)


def _median(values: Array) -> float:
    return float(np.median(backend.to_numpy(values)))
