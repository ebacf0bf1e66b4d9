"""One interface to every kind of model: latents of rows, the way back, and how sure it is.

What a model cannot do is a sentence in `reasons`, which the page shows where the control is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dualpca.app.tables.dialects import TableError

Matrix = NDArray[np.float64]


class Lens:
    """A model that only places rows: no way back. Others add to it.

    Parameters
    ----------
    model : estimator
        Fitted.
    """

    ways: tuple[str, ...] = ()  # of coming back, the default first

    def __init__(self, model: Any) -> None:
        self.model, self.name = model, type(model).__name__
        self.reasons: dict[str, str] = {}
        self._refuse("decode", "has no way back from latents to features")
        self._refuse("spread", "has no way back, so nothing to be unsure of")
        self._refuse("error", "does not reconstruct rows")
        if not hasattr(model, "score_samples"):
            self._refuse("density", "has no density")
        if not hasattr(model, "sample"):
            self._refuse("sample", "does not draw rows")
        if not hasattr(model, "impute"):
            self._refuse("impute", "does not fill missing entries: fit PPCA, for one")

    def _named(self, X: Matrix) -> Any:
        """Return rows with the names of their columns, where the model was fitted on names."""
        names = getattr(self.model, "feature_names_in_", None)
        return X if names is None else pl.DataFrame(X, schema=[str(n) for n in names], orient="row")

    def _refuse(self, what: str, why: str) -> None:
        self.reasons[what] = f"{self.name} {why}."

    def _allow(self, *names: str) -> None:
        for name in names:
            self.reasons.pop(name, None)

    @property
    def sizes(self) -> list[int]:
        """Number of latents of every component of a mixture; one number for other models."""
        names = self.model.get_feature_names_out()
        return [len(names)]

    def prior(self, component: int = 0) -> Matrix:
        """Return the standard deviations that latents have where there are no rows, (q,)."""
        return np.ones(self.sizes[component])

    def prepare(self, Z: Matrix) -> None:
        """Do what is slow once, given the latents of the rows."""

    def latents(self, X: Matrix, component: int = 0) -> Matrix:
        """Return the latents of rows, (n, q)."""
        return np.asarray(self.model.transform(self._named(X)), dtype=float)

    def decode(self, Z: Matrix, component: int = 0, way: str | None = None) -> Matrix:
        """Return the rows that latents stand for, (m, d)."""
        raise TableError(self.reasons["decode"])

    def spread(self, z: Matrix, component: int = 0, way: str | None = None) -> Matrix:
        """Return the predictive standard deviation of every feature at one point, (d,)."""
        raise TableError(self.reasons["spread"])

    @property
    def density_of(self) -> str:
        """Say what `density` is of."""
        return "rows"

    def density(self, rows: Matrix, Z: Matrix) -> Matrix:
        """Return the log-density of rows (of their latents, where rows have none), (m,)."""
        if "density" in self.reasons:
            raise TableError(self.reasons["density"])
        return np.asarray(self.model.score_samples(self._named(rows)), dtype=float)

    def reconstruct(self, X: Matrix) -> Matrix:
        """Return rows as the model sees them, (n, d)."""
        raise TableError(self.reasons["error"])

    def groups(self, X: Matrix) -> Matrix | None:
        """Return the component of every row of a mixture, (n,)."""
        return None

    def sample(self, count: int, seed: int) -> Matrix:
        """Draw rows, (count, d)."""
        if "sample" in self.reasons:
            raise TableError(self.reasons["sample"])
        found = self.model.sample(count, random_state=seed)
        return np.asarray(found[0] if isinstance(found, tuple) else found, dtype=float)

    def impute(self, X: Matrix) -> tuple[Matrix, Matrix]:
        """Return rows with NaN filled, and the standard deviations of what was filled."""
        if "impute" in self.reasons:
            raise TableError(self.reasons["impute"])
        filled, std = self.model.impute(self._named(X), return_std=True)
        return np.asarray(filled, dtype=float), np.asarray(std, dtype=float)
