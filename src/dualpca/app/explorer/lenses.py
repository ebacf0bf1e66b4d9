"""One interface to every kind of model: latents of rows, the way back, and its uncertainty.

What a model cannot do is a sentence in `reasons`, which the page shows next to the control.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dualpca.app.tables.columns import coded, level_words, named_rows, plain
from dualpca.app.tables.text import TableError
from dualpca.generation import fit_kernel_density

# --- the interface -----------------------------------------------------------------------------

Matrix = NDArray[np.float64]


class Lens:
    """A model that only has latents of rows, and no way back. Other lenses add to it.

    Parameters
    ----------
    model : estimator
        Fitted.
    """

    ways: tuple[str, ...] = ()  # pre-image methods, the default first

    def __init__(self, model: Any) -> None:
        self.model, self.name = model, type(model).__name__
        self.reasons: dict[str, str] = {}
        self._refuse("decode", "has no way back from latents to features")
        self._refuse("spread", "has no way back, and so no intervals")
        self._refuse("error", "does not reconstruct rows")
        if not hasattr(model, "score_samples"):
            self._refuse("density", "has no density")
        if not hasattr(model, "sample"):
            self._refuse("sample", "cannot sample rows")
        if not hasattr(model, "impute"):
            self._refuse("impute", "does not fill missing entries; PPCA does, for example")
        if not hasattr(model, "outliers"):
            self._refuse("limits", "has no T² and SPE with limits; PPCA does, for example")

    def _named(self, X: Matrix) -> Any:
        """Return rows with the names of their columns, if the model was fitted with names."""
        return named_rows(self.model, X)

    def _refuse(self, what: str, why: str) -> None:
        self.reasons[what] = f"{self.name} {why}."

    def _allow(self, *names: str) -> None:
        for name in names:
            self.reasons.pop(name, None)

    @property
    def levels(self) -> list[list[str]]:
        """The levels of every feature that has words for values; X has their positions."""
        return [[] for _ in range(int(self.model.n_features_in_))]

    def comparable(self, X: Matrix) -> Matrix:
        """Return rows such that differences of their entries make sense."""
        return X

    @property
    def sizes(self) -> list[int]:
        """Numbers of latents of the components of a mixture; one number for other models."""
        return [len(self.model.get_feature_names_out())]

    @property
    def parents(self) -> list[int | None]:
        """The component above every component, where they are nodes of a tree; else None."""
        return [None] * len(self.sizes)

    @property
    def group_names(self) -> list[str]:
        """What the numbers that `groups` returns stand for."""
        return [str(k + 1) for k in range(len(self.sizes))]

    def prior(self, component: int = 0) -> Matrix:
        """Return the standard deviations of latents under the model, (q,)."""
        return np.ones(self.sizes[component])

    def prepare(self, Z: Matrix) -> None:
        """Do once what is slow, given the latents of the rows."""

    def latents(self, X: Matrix, component: int = 0) -> Matrix:
        """Return the latents of rows, (n, q)."""
        return np.asarray(self.model.transform(self._named(X)), dtype=float)

    def decode(self, Z: Matrix, component: int = 0, way: str | None = None) -> Matrix:
        """Return the rows that latents represent, (m, d)."""
        raise TableError(self.reasons["decode"])

    def spread(self, z: Matrix, component: int = 0, way: str | None = None) -> Matrix:
        """Return the predictive standard deviation of every feature at one point, (d,)."""
        raise TableError(self.reasons["spread"])

    @property
    def density_of(self) -> str:
        """What `density` is a density of."""
        return "rows"

    def density(self, rows: Matrix, Z: Matrix) -> Matrix:
        """Return the log-density of rows (of latents, if the model has none for rows), (m,)."""
        if "density" in self.reasons:
            raise TableError(self.reasons["density"])
        return np.asarray(self.model.score_samples(self._named(rows)), dtype=float)

    def reconstruct(self, X: Matrix) -> Matrix:
        """Return the reconstructions of rows, (n, d)."""
        raise TableError(self.reasons["error"])

    def outliers(self, X: Matrix, level: float) -> Any:
        """Return T² and SPE of rows with their limits."""
        if "limits" in self.reasons:
            raise TableError(self.reasons["limits"])
        return self.model.outliers(self._named(X), level=level)

    def groups(self, X: Matrix) -> Matrix | None:
        """Return the component of every row of a mixture, (n,)."""
        return None

    def members(self, groups: Matrix, component: int) -> Matrix:
        """Return which rows belong to a component, (n,), by what `groups` returned."""
        return np.asarray(groups == component)

    def sample(self, count: int, seed: int) -> Matrix:
        """Draw rows, (count, d)."""
        if "sample" in self.reasons:
            raise TableError(self.reasons["sample"])
        found = self.model.sample(count, random_state=seed)
        return np.asarray(found[0] if isinstance(found, tuple) else found, dtype=float)

    def impute(self, X: Matrix, fixed: bool = False) -> tuple[Matrix, Matrix]:
        """Return rows with NaN filled, and the standard deviations of the filled entries.

        `fixed` takes the model's parameters as known, which needs no refits.
        """
        if "impute" in self.reasons:
            raise TableError(self.reasons["impute"])
        choice = "parameters" in inspect.signature(self.model.impute).parameters
        options = {"parameters": "fixed"} if fixed and choice else {}
        filled, std = self.model.impute(self._named(X), return_std=True, **options)
        return np.asarray(filled, dtype=float), np.asarray(std, dtype=float)


# --- one lens per kind of model ----------------------------------------------------------------

QUICK = 4000
"""Largest number of points for which a learned pre-image is prepared at the start."""

DRAWS = 48
"""Draws behind the spread of a pre-image."""

CENTRES = 2000
"""Rows from which a density over latents is estimated."""

METHODS = ("learned", "smoother", "distance", "fixed-point", "gradient", "auto")


class LinearLens(Lens):
    """PCA, probabilistic and Bayesian PCA, factor analysis: x = Wz + μ + ε."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._allow("decode", "spread", "error")
        q, start = self.sizes[0], np.asarray(model.mean_, dtype=float)[None, :]
        origin = self.decode(np.zeros((1, q)))
        W = self.decode(np.eye(q)) - origin
        noise = np.asarray(model.noise_variance_, dtype=float)
        scale = getattr(model, "scale_", None)
        noise = noise if scale is None else noise * np.asarray(scale, dtype=float) ** 2
        signal = np.zeros(origin.shape[1])
        if hasattr(model, "posterior"):
            own = np.asarray(model.posterior(self._named(start), parameters="fixed")[1][0])
            signal = np.sum((own @ W) * W, axis=0)
        # of a row measured at z: the noise, and the uncertainty of z given the row
        self._std: Matrix = np.sqrt(signal + noise)
        try:
            model.score_samples(self._named(origin))
        except ValueError:
            self._refuse("density", "has no density without noise")

    def prior(self, component: int = 0) -> Matrix:
        """Return the standard deviations of latents: those of projections for PCA, else 1."""
        if hasattr(self.model, "posterior") or getattr(self.model, "whiten", False):
            return super().prior(component)
        return np.asarray(self.model.explained_variance_, dtype=float) ** 0.5

    def decode(self, Z: Matrix, component: int = 0, way: str | None = None) -> Matrix:
        """Return Wz + μ."""
        return np.asarray(self.model.inverse_transform(Z), dtype=float)

    def spread(self, z: Matrix, component: int = 0, way: str | None = None) -> Matrix:
        """Return the standard deviation of a new measurement of a row at z."""
        return self._std

    def reconstruct(self, X: Matrix) -> Matrix:
        """Return the signal without noise."""
        return np.asarray(self.model.reconstruct(self._named(X)), dtype=float)


class KernelLens(Lens):
    """Kernel PCA and dual probabilistic PCA: the way back is a pre-image."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        asked = "learned" if getattr(model, "fit_inverse_transform", False) else model.preimage
        if asked not in METHODS or asked == "auto":
            asked = "learned" if len(model.X_fit_) <= QUICK else "smoother"
        self.ways = (asked, *(way for way in METHODS if way != asked))
        self._kde: Any = None
        try:
            self.decode(np.zeros((1, self.sizes[0])))
        except ValueError as error:  # the kernel was not fitted to points with coordinates
            self.reasons["decode"] = str(error)
            self.ways = ()
            return
        self._allow("decode", "error")
        if hasattr(model, "posterior"):
            self._allow("spread")
            origin = np.asarray(model.X_fit_[:1], dtype=float)
            own = np.asarray(model.posterior(self._named(origin), parameters="fixed")[1][0])
            self._root = np.sqrt(np.diagonal(own))
        else:
            self._refuse("spread", "has no noise, and so no intervals; DualPPCA has")

    def prepare(self, Z: Matrix) -> None:
        """Estimate a density over latents, for models without a density."""
        if "density" not in self.reasons or "decode" in self.reasons or len(Z) < 3:
            return
        step = -(-len(Z) // CENTRES)
        try:
            self._kde = fit_kernel_density(Z[::step])
        except ValueError:
            return
        self._allow("density", "sample")

    def prior(self, component: int = 0) -> Matrix:
        """Return the standard deviations of latents."""
        if hasattr(self.model, "posterior"):
            return super().prior(component)
        return np.asarray(self.model.explained_variance_, dtype=float) ** 0.5

    def decode(self, Z: Matrix, component: int = 0, way: str | None = None) -> Matrix:
        """Return pre-images."""
        return np.asarray(self.model.preimages(Z, way or self.ways[0]).points, dtype=float)

    def spread(self, z: Matrix, component: int = 0, way: str | None = None) -> Matrix:
        """Return the spread of pre-images as latents vary within their posterior of one row."""
        noise = np.random.default_rng(0).normal(size=(DRAWS, len(self._root)))
        quick = "smoother" if (way or self.ways[0]) != "learned" else "learned"
        return np.asarray(self.decode(z + noise * self._root, way=quick).std(axis=0))

    @property
    def density_of(self) -> str:
        """What `density` is a density of: features, or latents of the rows."""
        return "features" if self._kde is None else "latents"

    def density(self, rows: Matrix, Z: Matrix) -> Matrix:
        """Return the model's density of rows, or the estimate over latents."""
        if self._kde is None:
            return super().density(rows, Z)
        return np.asarray(self._kde.log_density(Z), dtype=float)

    def reconstruct(self, X: Matrix) -> Matrix:
        """Return pre-images of projections."""
        return self.decode(self.latents(X))

    def sample(self, count: int, seed: int) -> Matrix:
        """Sample from the model, or decode samples from the density over latents."""
        if self._kde is None:
            return super().sample(count, seed)
        return self.decode(np.asarray(self._kde.sample(count, np.random.default_rng(seed))))


class MixtureLens(Lens):
    """Mixtures of probabilistic PCA: every component has a latent space of its own."""

    known: ClassVar[dict[str, Any]] = {"parameters": "fixed"}  # the map is that of the fit

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        if model.kernel is not None:
            self._refuse("decode", "with a kernel has no way back from latents")
            self._allow("error")
            return
        self._allow("decode", "spread", "error")

    @property
    def sizes(self) -> list[int]:
        """Number of latents of every component."""
        return [int(q) for q in self.model.n_components_]

    def latents(self, X: Matrix, component: int = 0) -> Matrix:
        """Return the latents of rows under one component."""
        return np.asarray(self.model.posterior(self._named(X), component)[0], dtype=float)

    def decode(self, Z: Matrix, component: int = 0, way: str | None = None) -> Matrix:
        """Return W_k z + μ_k."""
        if "decode" in self.reasons:
            return super().decode(Z, component)
        W, mean, _ = self._parts(component)
        return np.asarray(Z @ W.T + mean)

    def _parts(self, component: int) -> tuple[Matrix, Matrix, Matrix]:
        """Return W, μ and σ² of one component."""
        parts = (self.model.loadings_, self.model.means_, self.model.noise_variance_)
        loadings, mean, noise = (np.asarray(part[component], dtype=float) for part in parts)
        return loadings, mean, noise

    def spread(self, z: Matrix, component: int = 0, way: str | None = None) -> Matrix:
        """Return the standard deviation of a new measurement of a row of this component."""
        if "spread" in self.reasons:
            return super().spread(z, component)
        W, mean, noise = self._parts(component)
        X = self._named(mean[None, :])
        own = np.asarray(self.model.posterior(X, component, **self.known)[1][0], dtype=float)
        scale = getattr(self.model, "scale_", None)  # W is in the units of the rows, noise not
        noise = noise if scale is None else noise * np.asarray(scale, dtype=float) ** 2
        return np.asarray(np.sqrt(np.sum((W @ own) * W, axis=1) + noise))

    def reconstruct(self, X: Matrix) -> Matrix:
        """Return the signal, averaged over components."""
        return np.asarray(self.model.reconstruct(self._named(X)), dtype=float)

    def groups(self, X: Matrix) -> Matrix:
        """Return the most probable component of every row."""
        return np.asarray(self.model.predict(self._named(X)), dtype=float)


class TreeLens(MixtureLens):
    """Trees of maps: every node has a latent space of its own; rows are sorted into leaves."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._refuse("error", "does not reconstruct rows; MixturePPCA does")

    @property
    def parents(self) -> list[int | None]:
        """The node above every node; None for the root."""
        return [node.parent for node in self.model.nodes_]

    @property
    def group_names(self) -> list[str]:
        """The numbers of the leaves."""
        return [str(leaf) for leaf in self.model.leaves_]

    def _parts(self, component: int) -> tuple[Matrix, Matrix, Matrix]:
        """Return W, μ and σ² of one node."""
        node = self.model.nodes_[component]
        parts = (node.loadings, node.mean, node.noise_variance)
        loadings, mean, noise = (np.asarray(part, dtype=float) for part in parts)
        return loadings, mean, noise

    def groups(self, X: Matrix) -> Matrix:
        """Return the position of the leaf that every row belongs to most."""
        found = np.asarray(self.model.predict(self._named(X)))
        return np.searchsorted(self.model.leaves_, found).astype(float)

    def members(self, groups: Matrix, component: int) -> Matrix:
        """Return which rows are in a leaf below a node, or in it."""
        above: list[set[int | None]] = []
        for parent in self.parents:
            before = set() if parent is None else above[parent]
            above.append({*before, len(above)})
        below = [component in above[leaf] for leaf in self.model.leaves_]
        return np.asarray(np.asarray(below)[groups.astype(int)])

    reconstruct = Lens.reconstruct


class MixedLens(Lens):
    """Columns of any kind: X has numbers, bounds for numbers, and positions of levels."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        words = level_words(model)
        self.names = [str(name) for name in model.column_kinds_]
        self._levels = [list(words.get(name, ())) for name in self.names]
        self._nominal = [kind == "nominal" for kind in model.column_kinds_.values()]
        self.table: pl.DataFrame | None = None
        self._X: Matrix | None = None
        self._allow("decode")
        self._refuse("spread", "has ranges only of entries that it fills: see Missing")
        self._refuse("error", "has no reconstruction error: levels have no distances")

    @property
    def levels(self) -> list[list[str]]:
        """The levels of every column of text, in order."""
        return self._levels

    def read(self, table: pl.DataFrame) -> Matrix:
        """Return the rows of a table as numbers, and keep them: they may have bounds."""
        self.table, self._X = table, self.codes(table)
        return self._X

    def codes(self, table: Any) -> Matrix:
        """Return a table of the model's columns as numbers and positions of levels."""
        frame = plain(table if hasattr(table, "columns") else self._unnamed(table))
        pairs = zip(frame.iter_columns(), self._levels, strict=True)
        return np.stack([coded(column, levels)[0] for column, levels in pairs], axis=1)

    def _unnamed(self, table: Any) -> pl.DataFrame:
        pairs = zip(self.names, table.T, strict=True)
        return pl.DataFrame({n: pl.Series(column.tolist(), strict=False) for n, column in pairs})

    def _named(self, X: Matrix) -> Any:
        """Return rows of numbers and positions as a table of numbers and words."""
        if self.table is not None and X is self._X:
            return self.table
        found = []
        for name, column, levels in zip(self.names, X.T, self._levels, strict=True):
            if levels:
                words = [None if np.isnan(v) else levels[int(v)] for v in column]
                found.append(pl.Series(name, words, dtype=pl.String))
            else:
                found.append(pl.Series(name, column).fill_nan(None))
        return pl.DataFrame(found)

    def comparable(self, X: Matrix) -> Matrix:
        """Return rows with a column of zeros and ones per level of nominal columns."""
        parts = []
        for column, levels, nominal in zip(X.T, self._levels, self._nominal, strict=True):
            if not (levels and nominal):
                parts.append(column[:, None])
                continue
            one = (column[:, None] == np.arange(len(levels))).astype(float)
            parts.append(np.where(np.isnan(column)[:, None], np.nan, one))
        return np.concatenate(parts, axis=1)

    def decode(self, Z: Matrix, component: int = 0, way: str | None = None) -> Matrix:
        """Return medians and the most probable levels."""
        return self.codes(self.model.inverse_transform(Z))

    @property
    def density_of(self) -> str:
        """What `density` is: relative to independent columns."""
        return "relative"

    def sample(self, count: int, seed: int) -> Matrix:
        """Draw rows."""
        return self.codes(self.model.sample(count, random_state=seed))

    def ranges(self, row: int, hidden: Sequence[int]) -> tuple[Matrix, Matrix, Matrix]:
        """Return a row of the table with entries hidden and filled, and the ends of 95 % ranges.

        Nominal columns have none: NaN.
        """
        if self.table is None:
            raise TableError("no table was given: start with `dualpca explore MODEL TABLE`.")
        one = self.table[row : row + 1]
        gone = [pl.lit(None).cast(one.dtypes[j]).alias(one.columns[j]) for j in hidden]
        tables = self.model.impute(one.with_columns(gone), return_interval=True, level=0.95)
        values, low, high = (self.codes(table) for table in tables)
        return values, low, high


def lens_of(model: Any) -> Lens:
    """Return the lens for a model, by its methods.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PPCA
    >>> lens = lens_of(PPCA(1).fit(np.random.default_rng(0).normal(size=(20, 3))))
    >>> type(lens).__name__, lens.sizes, sorted(lens.reasons)
    ('LinearLens', [1], [])
    """
    inner = getattr(model, "estimator_", None)
    model = model if inner is None or hasattr(model, "transform") else inner
    pairwise = getattr(model, "kernel", None) == "precomputed" or not hasattr(
        model, "n_features_in_"
    )
    if not hasattr(model, "transform") or hasattr(model, "add_indicator") or pairwise:
        raise TableError(
            f"{type(model).__name__} cannot be explored: it has no latents for rows of numbers. "
            "Fit pca, ppca, bpca, fa, kpca, dual, mixture or tree."
        )
    if hasattr(model, "column_kinds_"):
        return MixedLens(model)
    if hasattr(model, "preimages"):
        return KernelLens(model)
    if hasattr(model, "inverse_transform"):
        return LinearLens(model)
    if hasattr(model, "nodes_"):
        return TreeLens(model)
    return MixtureLens(model) if hasattr(model, "weights_") else Lens(model)
