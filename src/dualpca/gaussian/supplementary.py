"""Columns and rows that are shown beside a model and are no part of it.

Correlations of numbers with the components, barycentres and v-tests of categories, quality (cos²)
of rows: what R's FactoMineR gives for quanti.sup, quali.sup and ind.sup, and beside it what they
are for the latents themselves, of which scores are estimates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from dualpca.data import Host

CONSTANT_SCORE = 1e-20
"""Share of the largest variance below which a score is constant: a component without loadings."""

LEAST_RELIABILITY = 1e-8
"""Reliability below which the rows say nothing of a direction in the latent space."""


# --- what is found ---------------------------------------------------------------------------


@dataclass(frozen=True)
class SupplementaryNumbers:
    """Supplementary columns of numbers, one row per column, one column per component.

    Parameters
    ----------
    names : tuple of str
    weight : array of shape (p,)
        Number of rows in which the column is known, or their weight.
    correlation : array of shape (p, q)
        Correlation with the scores; NaN for a constant column.
    latent_correlation : array of shape (p, q) or None
        Correlation with the latents; None without a posterior.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PCA, supplementary
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 4.0], [3.0, 3.0]])
    >>> found = supplementary(
    ...     PCA(1).fit(X),
    ...     X,
    ...     {"kind": ["u", "u", "v", "v"], "size": [1.0, 2.0, 4.0, 3.0]},
    ...     rows=[[9.0, 9.0]],
    ... )
    >>> found.numbers.correlation.shape
    (1, 1)
    """

    names: tuple[str, ...]
    weight: Host  # (p,), rows in which the column is known, or their weight
    correlation: Host  # (p, q), with the scores; NaN for a constant column
    latent_correlation: Host | None  # (p, q), with the latents; None without a posterior

    @property
    def cos2(self) -> Host:
        """Squared correlation: the share of the column's variance along each component, (p, q)."""
        return self.correlation**2

    def table(self) -> dict[str, list[Any]]:
        """Return one row per column, for `pandas.DataFrame` or `polars.DataFrame`.

        Returns
        -------
        table : dict of str to list

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import PCA, supplementary
        >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 4.0], [3.0, 3.0]])
        >>> found = supplementary(
        ...     PCA(1).fit(X),
        ...     X,
        ...     {"kind": ["u", "u", "v", "v"], "size": [1.0, 2.0, 4.0, 3.0]},
        ...     rows=[[9.0, 9.0]],
        ... )
        >>> sorted(found.numbers.table())
        ['column', 'correlation0', 'cos20', 'rows']
        """
        found: dict[str, list[Any]] = {"column": list(self.names), "rows": self.weight.tolist()}
        found |= _spread("correlation", self.correlation) | _spread("cos2", self.cos2)
        return found | _spread("latent_correlation", self.latent_correlation)


@dataclass(frozen=True)
class SupplementaryLevels:
    """The levels of supplementary columns of categories, one row per level.

    Parameters
    ----------
    columns : tuple of str
        Column of each level.
    levels : tuple
        The levels themselves.
    weight : array of shape (g,)
        Number of rows of the level, or their weight.
    coordinates : array of shape (g, q)
        Mean of the scores of its rows.
    v_test : array of shape (g, q)
        Mean in standard errors of a random subset; NaN where a level has every row.
    latent_coordinates : array of shape (g, q) or None
        Mean of the latents of its rows; None without a posterior.
    cos2 : array of shape (g, q) or None
        Share of the squared distance along each axis; None without orthogonal axes.
    distance : array of shape (g,) or None
        Distance of the level's mean from the mean of all rows, in the units of the fit.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PCA, supplementary
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 4.0], [3.0, 3.0]])
    >>> found = supplementary(
    ...     PCA(1).fit(X),
    ...     X,
    ...     {"kind": ["u", "u", "v", "v"], "size": [1.0, 2.0, 4.0, 3.0]},
    ...     rows=[[9.0, 9.0]],
    ... )
    >>> found.levels.names
    ('kind=u', 'kind=v')
    """

    columns: tuple[str, ...]  # the column of each level
    levels: tuple[Any, ...]
    weight: Host  # (g,), rows of the level, or their weight
    coordinates: Host  # (g, q), barycentres of the scores
    v_test: Host  # (g, q), NaN where a level has every row
    latent_coordinates: Host | None  # (g, q), barycentres of the latents; None without a posterior
    cos2: Host | None  # (g, q), None for models without orthogonal axes
    distance: Host | None  # (g,), of the barycentre from the mean, in the units of the fit

    @property
    def names(self) -> tuple[str, ...]:
        """Column and level of each, such as 'species=setosa'."""
        return tuple(f"{c}={level}" for c, level in zip(self.columns, self.levels, strict=True))

    def table(self) -> dict[str, list[Any]]:
        """Return one row per level, for `pandas.DataFrame` or `polars.DataFrame`.

        Returns
        -------
        table : dict of str to list

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import PCA, supplementary
        >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 4.0], [3.0, 3.0]])
        >>> found = supplementary(
        ...     PCA(1).fit(X),
        ...     X,
        ...     {"kind": ["u", "u", "v", "v"], "size": [1.0, 2.0, 4.0, 3.0]},
        ...     rows=[[9.0, 9.0]],
        ... )
        >>> found.levels.table()["level"]
        ['u', 'v']
        """
        found: dict[str, list[Any]] = {"column": list(self.columns)}
        found |= {"level": [str(level) for level in self.levels], "rows": self.weight.tolist()}
        found |= _spread("coordinate", self.coordinates) | _spread("v_test", self.v_test)
        found |= _spread("cos2", self.cos2)
        return found | _spread("latent_coordinate", self.latent_coordinates)


@dataclass(frozen=True)
class SupplementaryRatios:
    """Supplementary columns of categories, one row per column.

    Parameters
    ----------
    names : tuple of str
    weight : array of shape (c,)
        Number of rows in which the column is known, or their weight.
    eta2 : array of shape (c, q)
        Share of the variance of each score that lies between the levels.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PCA, supplementary
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 4.0], [3.0, 3.0]])
    >>> found = supplementary(
    ...     PCA(1).fit(X),
    ...     X,
    ...     {"kind": ["u", "u", "v", "v"], "size": [1.0, 2.0, 4.0, 3.0]},
    ...     rows=[[9.0, 9.0]],
    ... )
    >>> found.categories.eta2.round(2)
    array([[0.99]])
    """

    names: tuple[str, ...]
    weight: Host  # (c,), rows in which the column is known, or their weight
    eta2: Host  # (c, q), share of the variance of each score that lies between the levels

    def table(self) -> dict[str, list[Any]]:
        """Return one row per column, for `pandas.DataFrame` or `polars.DataFrame`.

        Returns
        -------
        table : dict of str to list

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import PCA, supplementary
        >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 4.0], [3.0, 3.0]])
        >>> found = supplementary(
        ...     PCA(1).fit(X),
        ...     X,
        ...     {"kind": ["u", "u", "v", "v"], "size": [1.0, 2.0, 4.0, 3.0]},
        ...     rows=[[9.0, 9.0]],
        ... )
        >>> found.categories.table()["column"]
        ['kind']
        """
        found: dict[str, list[Any]] = {"column": list(self.names), "rows": self.weight.tolist()}
        return found | _spread("eta2", self.eta2)


@dataclass(frozen=True)
class SupplementaryRows:
    """Rows that are placed by a model without being part of its fit.

    Parameters
    ----------
    coordinates : array of shape (m, q)
        As `transform` returns them.
    cos2 : array of shape (m, q) or None
        Share of the squared distance along each axis; None without orthogonal axes.
    distance : array of shape (m,) or None
        Distance from the mean, in the units of the fit.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PCA, supplementary
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 4.0], [3.0, 3.0]])
    >>> found = supplementary(
    ...     PCA(1).fit(X),
    ...     X,
    ...     {"kind": ["u", "u", "v", "v"], "size": [1.0, 2.0, 4.0, 3.0]},
    ...     rows=[[9.0, 9.0]],
    ... )
    >>> found.rows.coordinates.round(1)
    array([[9.9]])
    """

    coordinates: Host  # (m, q), as `transform` returns them
    cos2: Host | None  # (m, q), None for models without orthogonal axes
    distance: Host | None  # (m,), from the mean, in the units of the fit

    def table(self) -> dict[str, list[Any]]:
        """Return one row per row, for `pandas.DataFrame` or `polars.DataFrame`.

        Returns
        -------
        table : dict of str to list

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import PCA, supplementary
        >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 4.0], [3.0, 3.0]])
        >>> found = supplementary(
        ...     PCA(1).fit(X),
        ...     X,
        ...     {"kind": ["u", "u", "v", "v"], "size": [1.0, 2.0, 4.0, 3.0]},
        ...     rows=[[9.0, 9.0]],
        ... )
        >>> sorted(found.rows.table())
        ['coordinate0', 'cos20', 'distance']
        """
        found = _spread("coordinate", self.coordinates) | _spread("cos2", self.cos2)
        return found | ({} if self.distance is None else {"distance": self.distance.tolist()})


@dataclass(frozen=True)
class Supplementary:
    """Where supplementary columns and rows fall, as :func:`supplementary` returns it.

    Parameters
    ----------
    numbers : SupplementaryNumbers
        Columns of numbers.
    levels : SupplementaryLevels
        Levels of columns of categories.
    categories : SupplementaryRatios
        Columns of categories.
    rows : SupplementaryRows or None, default=None
        Supplementary rows.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PCA, supplementary
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 4.0], [3.0, 3.0]])
    >>> found = supplementary(PCA(1).fit(X), X, {"kind": ["u", "u", "v", "v"]}, rows=[[9.0, 9.0]])
    >>> found.categories.names, found.levels.weight, found.rows.coordinates.round(1)
    (('kind',), array([2., 2.]), array([[9.9]]))
    """

    numbers: SupplementaryNumbers
    levels: SupplementaryLevels
    categories: SupplementaryRatios
    rows: SupplementaryRows | None = None


def _spread(name: str, values: Host | None) -> dict[str, list[Any]]:
    """Return the columns of an array by name, counted from 0; none of None."""
    return {} if values is None else {f"{name}{k}": v.tolist() for k, v in enumerate(values.T)}


# --- how it is found -------------------------------------------------------------------------


@dataclass(frozen=True)
class Reliabilities:
    """Average reliability of the scores behind every number and every level.

    The reliability of a row is R = I − Cov(z | x): its score z̄ is on average Rz where its latents
    are z.
    """

    numbers: Host  # (p, q, q)
    levels: Host  # (g, q, q)


def deviations(C: Host, weights: Host) -> tuple[Host, Host, Host]:
    """Return numbers (n, p) less their means, 0 where unknown; standard deviations; weights.

    The standard deviation of a constant column is 0 exactly.
    """
    known = ~np.isnan(C)
    weight = weights @ known
    filled = np.where(known, C, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        centred = np.where(known, C - weights @ filled / weight, 0.0)
        spread = np.sqrt(weights @ centred**2 / weight)
    used = known & (weights > 0)[:, None]
    first = np.where(used, C, np.inf).min(axis=0), np.where(used, C, -np.inf).max(axis=0)
    return centred, np.where(first[0] < first[1], spread, 0.0), weight


def number_columns(
    names: tuple[str, ...], C: Host, Z: Host, weights: Host, reliability: Host | None
) -> SupplementaryNumbers:
    """Return correlations of numbers with scores and with latents.

    Parameters
    ----------
    names : p names
    C : array of shape (n, p)
        NaN where unknown; every column is compared with the scores of the rows that know it.
    Z : array of shape (n, q)
    weights : array of shape (n,)
    reliability : array of shape (p, q, q) or None
        Averages of R = I − Cov(z | x) with the weights w(c − c̄)².

    Notes
    -----
    z̄ is shrunk, and the more so the less a row observed: E[z̄ | z] = Rz. If c depends on the row
    through z alone and E[z | c] = b(c − c̄), then Σ w(c − c̄)z̄ = Σ w(c − c̄)² R b on average, which
    is solved for b, and b s_c is the correlation of c with z.
    """
    centred, spread, weight = deviations(C, weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        covariance = (weights[:, None] * centred).T @ Z / weight[:, None]
        correlation = covariance / (spread[:, None] * _spreads(~np.isnan(C), Z, weights))
        latent = None
        if reliability is not None:
            latent = _solved(reliability, covariance) / spread[:, None]
    correlation = np.where(np.isfinite(correlation), np.clip(correlation, -1, 1), np.nan)
    if latent is not None:
        latent = np.where(np.isfinite(latent), latent, np.nan)
    return SupplementaryNumbers(names, weight, correlation, latent)


def _spreads(known: Host, Z: Host, weights: Host) -> Host:
    """Return the standard deviation of every score over the rows that know every column, (p, q)."""
    w = weights[:, None] * known
    Z = Z - weights @ Z / weights.sum()
    total = w.sum(axis=0)[:, None]
    variance = w.T @ Z**2 / total - (w.T @ Z / total) ** 2
    live = variance > CONSTANT_SCORE * np.nanmax(variance, initial=0.0)
    found: Host = np.sqrt(np.where(live, variance, 0.0))
    return found


def _solved(reliability: Host, values: Host) -> Host:
    """Return R⁻¹v for each of k pairs, (k, q); 0 along directions that no row says anything of."""
    known: Host = np.asarray(np.isfinite(reliability).all(axis=(1, 2)))
    lam, E = np.linalg.eigh(np.where(known[:, None, None], reliability, 0.0))
    inverse = np.where(lam > LEAST_RELIABILITY, 1 / np.maximum(lam, LEAST_RELIABILITY), 0.0)
    found = (E @ (inverse[..., None] * (np.swapaxes(E, 1, 2) @ values[..., None])))[..., 0]
    return np.where(known[:, None], found, np.nan)


class Representation(NamedTuple):
    """How well axes show where points lie."""

    cos2: Host  # (m, q), the share of the squared distance along each axis
    distance: Host  # (m,), from the mean


def representation(offsets: Host, V: Host) -> Representation:
    """Return how well axes show where points lie.

    Parameters
    ----------
    offsets : array of shape (m, d)
        Points less the mean.
    V : array of shape (q, d)
        Orthonormal axes.

    Examples
    --------
    >>> representation(np.array([[3.0, 4.0]]), np.eye(2)[:1])
    Representation(cos2=array([[0.36]]), distance=array([5.]))
    """
    squared = np.sum(offsets**2, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return Representation((offsets @ V.T) ** 2 / squared[:, None], np.sqrt(squared))


@dataclass(frozen=True)
class Coded:
    """Columns of categories as codes, and their levels one after another."""

    names: tuple[str, ...]  # (c,)
    codes: Host  # (n, c), positions among the levels of the column, -1 where unknown
    levels: tuple[tuple[Any, ...], ...]  # of each column

    @property
    def starts(self) -> Host:
        """Position of each column's first level among all, (c,)."""
        return np.cumsum([0, *(len(one) for one in self.levels)])[:-1]

    @property
    def owners(self) -> Host:
        """The column of each of the g levels, (g,)."""
        return np.repeat(np.arange(len(self.levels)), [len(one) for one in self.levels])

    def indicator(self, weights: Host) -> Any:
        """Return a sparse matrix (g, n): the weight of a row in the levels that it has."""
        row, column = np.nonzero(self.codes >= 0)
        place = self.codes[row, column] + self.starts[column]
        shape = (len(self.owners), len(self.codes))
        return sparse.csr_array((weights[row], (place, row)), shape=shape)


def category_columns(
    coded: Coded, Z: Host, weights: Host, reliability: Host | None, quality: Representation | None
) -> tuple[SupplementaryLevels, SupplementaryRatios]:
    """Return barycentres and v-tests of levels, and the correlation ratios of their columns.

    v = (z̄_g − z̄)/√(s²(N − n)/(n(N − 1))), where n of N rows have the level and s² is the variance
    of the score over all N, divisor N: the standard deviation is that of the mean of n rows drawn
    from the N without replacement (Lebart, Morineau & Piron 2000). Weights count rows.

    Parameters
    ----------
    coded : Coded
    Z : array of shape (n, q)
    weights : array of shape (n,)
    reliability : array of shape (g, q, q) or None
        Averages of R = I − Cov(z | x) over the rows of each level; then Σ wz̄ = Σ wR m on average
        for a level in which the latents have mean m.
    quality : Representation or None
        Of the average x − μ over the rows of each level.
    """
    G, owners = coded.indicator(weights), coded.owners
    member = (coded.codes >= 0) * weights[:, None]
    total, size = member.sum(axis=0), G @ np.ones(len(Z))
    with np.errstate(invalid="ignore", divide="ignore"):
        centre = member.T @ Z / total[:, None]
        spread = _spreads(coded.codes >= 0, Z, weights)
        at = (G @ Z) / size[:, None]
        N = total[owners]
        wide = np.sqrt((N - size) / (size * (N - 1)))[:, None] * spread[owners]
        away = at - centre[owners]
        v_test = np.where((wide > 0) & (N > size)[:, None], away / wide, np.nan)
        between = np.zeros_like(centre)
        np.add.at(
            between, owners, np.where(size > 0, size, 0.0)[:, None] * np.nan_to_num(away) ** 2
        )
        eta2 = np.where(spread > 0, between / (total[:, None] * spread**2), np.nan)
        latent = None if reliability is None else _solved(reliability, at)
    cos2, distance = (None, None) if quality is None else quality
    columns = tuple(coded.names[k] for k in owners)
    levels = tuple(level for one in coded.levels for level in one)
    return (
        SupplementaryLevels(columns, levels, size, at, v_test, latent, cos2, distance),
        SupplementaryRatios(coded.names, total, eta2),
    )
