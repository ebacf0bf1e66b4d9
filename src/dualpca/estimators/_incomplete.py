"""What models of incomplete rows can do: fill them, draw them, say how sure they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualpca.arrays import Array, backend, quadratic
from dualpca.errors import expected
from dualpca.estimators._base import as_frame as as_frame
from dualpca.estimators._base import by_parts, check_number, generator, new_rows
from dualpca.estimators._base import check_features as check_features
from dualpca.estimators._base import named_columns as named_columns
from dualpca.gaussian import Factors, Latents, each


class IncompleteRows:
    """Methods for rows with NaN, for models of the form x = Wz + μ + ε with diagonal noise.

    Subclasses provide `_factors`, (W, μ, ψ) in float64.
    """

    components_: Array

    @property
    def _factors(self) -> Factors:
        raise TypeError(expected("a model", "a class that defines _factors", type(self)))

    def _latents(self, X: Array) -> Latents:
        """Return posterior and observed-data density of every row."""
        xp = backend.namespace(X)
        found = [latents for _, latents in each(self._factors, X)]
        return Latents(*(xp.concat(list(part), axis=0) for part in zip(*found, strict=True)))

    @by_parts("n_features_in_")
    def impute(self, X: Any, return_std: bool = False) -> Any:
        """Fill every NaN with its expectation given what the row observed.

        Parameters
        ----------
        X : array or frame of shape (n, d)
            NaN (null) where nothing was observed. Never modified.
        return_std : bool
            Also return the standard deviation of every entry: 0 where it was observed, and
            √(wᵀCw + σ²), the uncertainty of a measurement, where it was not.

        Returns
        -------
        array or frame of shape (n, d), or a pair of them
            Observed entries are kept to the last bit. A pandas or polars frame comes back as one.

        Notes
        -----
        E[x_m | x_o] = μ_m + W_m z̄ (MATH 4). A row with nothing observed gets the mean and the
        standard deviation of the model.
        """
        rows = new_rows(self, X, "impute")
        xp, factors = backend.namespace(rows), self._factors
        filled, spread = [], []
        for block, found in each(factors, rows):
            missing = block.mask == 0
            mean = found.mean @ factors.W.T + factors.mu
            filled.append(xp.where(missing, mean, backend.row_block(rows, block.rows)))
            if return_std:
                variance = quadratic(found.covariance, factors.W) + factors.psi
                spread.append(xp.where(missing, xp.sqrt(variance), xp.zeros_like(variance)))
        result = as_frame(backend.cast_like(xp.concat(filled, axis=0), rows), X)
        if not return_std:
            return result
        return result, as_frame(backend.cast_like(xp.concat(spread, axis=0), rows), X)

    def sample_imputations(self, X: Any, n_draws: int = 5, random_state: Any = None) -> Array:
        """Draw completed tables: each NaN replaced by a draw from its distribution.

        Entries of one row are drawn together, so their correlations are right: fit any analysis
        to every table and pool the results (Rubin 1987).

        Parameters
        ----------
        X : array of shape (n, d)
        n_draws : int
        random_state : None, int, Generator or RandomState

        Returns
        -------
        array of shape (n_draws, n, d)
        """
        check_number("n_draws", n_draws, 1, integer=True)
        rows = new_rows(self, X, "sample_imputations")
        xp, factors, rng = backend.namespace(rows), self._factors, generator(random_state)
        tables = []
        for block, found in each(factors, rows):
            root = xp.linalg.cholesky(found.covariance)
            shape = (n_draws, *found.mean.shape)
            z = found.mean + (root @ backend.normal(rng, shape, rows)[..., None])[..., 0]
            noise = backend.normal(rng, (n_draws, *block.R.shape), rows)
            x = z @ factors.W.T + factors.mu + xp.sqrt(factors.psi) * noise
            tables.append(xp.where(block.mask == 0, x, backend.row_block(rows, block.rows)))
        return backend.cast_like(xp.concat(tables, axis=1), rows)

    def conditional(self, X: Any, features: Any = None) -> tuple[Array, Array]:
        """Return mean and covariance of features given what each row observed.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN marks what is not given.
        features : sequence of int, optional
            Which features; all unless given.

        Returns
        -------
        mean : array of shape (n, k)
        covariance : array of shape (n, k, k)
            W C Wᵀ + σ²I over the features not observed; zero for those that are.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import PPCA
        >>> X = np.random.default_rng(0).normal(size=(500, 1)) @ [[1.0, 2.0, 3.0]]
        >>> X += 0.1 * np.random.default_rng(1).normal(size=X.shape)
        >>> mean, covariance = PPCA(1).fit(X).conditional([[1.0, np.nan, np.nan]], features=[2])
        >>> mean.round(1), covariance.shape
        (array([[3.]]), (1, 1, 1))
        """
        rows = new_rows(self, X, "conditional")
        xp, factors = backend.namespace(rows), self._factors
        index = check_features(features, int(rows.shape[1]))
        take = xp.asarray(index, device=backend.device_of(rows))
        W, mu = xp.take(factors.W, take, axis=0), xp.take(factors.mu, take, axis=0)
        same = backend.asarray(np.equal.outer(index, index), rows)
        noise = xp.take(factors.psi, take, axis=0) * same
        means, covariances = [], []
        for block, found in each(factors, rows):
            unknown = 1 - xp.take(block.mask, take, axis=1)
            known = xp.take(backend.row_block(rows, block.rows), take, axis=1)
            means.append(xp.where(unknown == 0, known, found.mean @ W.T + mu))
            full = W @ found.covariance @ W.T + noise
            covariances.append(full * unknown[:, :, None] * unknown[:, None, :])
        mean, covariance = xp.concat(means, axis=0), xp.concat(covariances, axis=0)
        return backend.cast_like(mean, rows), backend.cast_like(covariance, rows)
