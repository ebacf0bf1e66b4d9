"""Factor analysis, a drop-in for scikit-learn's that takes NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from dualpca.arrays import Array, algebra, backend, showing
from dualpca.data import ChunkedTable, effective_rows, has_missing, observed_weights
from dualpca.errors import HeywoodWarning, expected, warn
from dualpca.estimators._base import (
    Saved,
    check_checkpoint,
    check_choice,
    check_number,
    check_rows,
    check_rows_count,
    check_weights,
    generator,
    open_parts,
    parts_of,
    publish_record,
    surveyed,
    used_rows,
    variances_like,
    watch_of,
)
from dualpca.estimators._components import check_request, is_count
from dualpca.estimators._factor_model import FactorModel
from dualpca.estimators._incomplete import named_columns
from dualpca.estimators._placing import OnDevice
from dualpca.gaussian import SHARES, Factors, Reference, rotate
from dualpca.models.driver import Record
from dualpca.models.factor import fit_factors
from dualpca.models.incomplete import fit_incomplete
from dualpca.operators import Primal, deterministic_signs, scatter_of

HEYWOOD = 1e-4
"""Smallest noise, as a share of a feature's variance."""


class FactorAnalysis(
    OnDevice,
    Saved,
    FactorModel,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    BaseEstimator,
):
    """Factor analysis: x = Wz + μ + ε with z ~ N(0, I_q) and ε ~ N(0, diag ψ).

    Every feature has its own noise, so the model does not depend on the features' units. NaN is
    welcome in `fit` and afterwards.

    Parameters
    ----------
    n_components : int or None
        Number of factors; None for the number of features, as in scikit-learn.
    tol : float
        Estimated relative distance to the maximum at which EM stops.
    copy : bool
        Accepted for compatibility. X is never modified.
    max_iter : int
        Largest number of EM steps.
    noise_variance_init : array of shape (d,), optional
        Noise to start from.
    svd_method, iterated_power
        Accepted for compatibility: EM here needs no decomposition a step.
    rotation : {None, 'varimax', 'quartimax'}
        Rotate the loadings to be read more easily; densities do not change.
    random_state : None, int, Generator or RandomState
        Start of EM with NaN.
    verbose : bool
        Say on standard error where and how the fit works, and how far it has come.
    checkpoint : path or Checkpoint, optional
        A file that a killed fit goes on from, as in `PPCA`.
    device : None, 'auto', 'cpu' or 'cuda'
        Where to work: where the rows are; on a card if they are worth it; there. Host arrays go
        there and results come home, so the fitted model is one of the host.

    Attributes
    ----------
    components_ : array of shape (q, d)
        Loadings Wᵀ; without rotation WᵀΨ⁻¹W is diagonal, largest first.
    noise_variance_ : array of shape (d,)
        ψ.
    mean_ : array of shape (d,)
    heywood_ : list of int
        Features whose noise was held at 1/10,000 of their variance: the factors explain them
        wholly (a Heywood case), which usually means too many factors or too few rows.
    loglike_, loglikelihoods_ : list of float
        Log-likelihood at every step kept.
    loglikelihood_ : float
    n_iter_ : int
    converged_ : bool

    Notes
    -----
    Complete rows and d ≤ 2,000: the correlation matrix is formed once, then quasi-Newton on ψ with
    W at its best (Jöreskog 1967), O(d³) a step. Otherwise EM (Rubin & Thayer 1982) with parameter
    expansion and SQUAREM, O(ndq) a step, O(ndq²) with NaN, and nothing d×d is formed.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from dualpca import FactorAnalysis
    >>> model = FactorAnalysis(n_components=3, rotation="varimax").fit(load_wine().data)
    >>> model.components_.shape, model.converged_, round(model.loglikelihood_, 1)
    ((3, 13), True, -3414.1)
    """

    components_: Array  # (q, d)
    noise_variance_: Array  # (d,)
    mean_: Array  # (d,)
    n_features_in_: int
    loglikelihoods_: list[float]

    def __init__(
        self,
        n_components: int | None = None,
        *,
        tol: float = 1e-4,
        copy: bool = True,
        max_iter: int = 1000,
        noise_variance_init: Any = None,
        svd_method: str = "randomized",
        iterated_power: int = 3,
        rotation: str | None = None,
        random_state: Any = 0,
        verbose: bool = False,
        checkpoint: Any = None,
        device: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.tol = tol
        self.copy = copy
        self.max_iter = max_iter
        self.noise_variance_init = noise_variance_init
        self.svd_method = svd_method
        self.iterated_power = iterated_power
        self.rotation = rotation
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.device = device

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> FactorAnalysis:
        """Fit the model by maximum likelihood.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN where nothing was observed. Never modified.
        y : ignored
        sample_weight : array of shape (n,), optional

        Returns
        -------
        self
        """
        self._check_parameters()
        parts = parts_of(X)
        if parts is not None:
            return self._fit_parts(parts, sample_weight)
        X = check_rows(self, X, reset=True, min_rows=2)
        w = check_weights(sample_weight, X)
        q = self._count(X)
        with showing(self.verbose):
            factors, record, self.n_samples_ = self._fit(X, w, q)
        self._adopt(factors, record, effective_rows(X, w), X)
        return self

    def _adopt(self, factors: Factors, record: Record, n: float, like: Array) -> None:
        """Set the fitted attributes."""
        self._set(self._canonical(factors), like)
        self._reference = Reference(n, n)
        publish_record(self, record)
        self.loglike_ = self.loglikelihoods_

    def _fit_parts(self, parts: ChunkedTable, sample_weight: Any) -> FactorAnalysis:
        """Fit a table in parts: from its moments, or by EM where values are missing."""
        parts, like = open_parts(self, parts, sample_weight), parts.like
        q, psi = self._count(like), self._initial_noise(like)
        with showing(self.verbose):
            found = surveyed(parts, nan=True)
            if found.holes and found.columns is not None:
                self.n_samples_, n = found.columns.used, float(found.columns.n.mean())
                fit = self._fit_holes(parts, None, q, psi)
            else:
                operator, self.n_samples_ = scatter_of(parts, found)
                check_rows_count(self, self.n_samples_)
                n, fit = operator.n, fit_factors(operator, q, HEYWOOD, psi, **self._limits)  # type: ignore[arg-type]
        self._adopt(*fit, n, like)
        return self

    @property
    def _limits(self) -> dict[str, Any]:
        """When iterations stop, and what is kept of them on the way."""
        return {"tol": self.tol, "max_iter": self.max_iter, "watch": watch_of(self)}

    def _fit_holes(
        self, X: Array | ChunkedTable, w: Array | None, q: int, psi: Array | None
    ) -> tuple[Factors, Record]:
        """Fit rows with NaN, in memory or in parts."""
        options: dict[str, Any] = {"diagonal": True, "floor": HEYWOOD, "psi": psi}
        rng = generator(self.random_state)
        with named_columns(self):
            return fit_incomplete(X, w, q, rng, **options, **self._limits)

    def _check_parameters(self) -> None:
        check_number("tol", self.tol, 0)
        check_number("max_iter", self.max_iter, 1, integer=True)
        check_checkpoint(self)
        check_choice("svd_method", self.svd_method, ("randomized", "lapack"))
        if self.rotation is not None:
            check_choice("rotation", self.rotation, tuple(SHARES))

    def _count(self, X: Array) -> int:
        d = int(X.shape[1])
        if self.n_components is None:
            return d
        if not is_count(self.n_components):
            raise ValueError(expected("n_components", "an int or None", self.n_components))
        check_request(self.n_components, d, d, "em")
        return int(self.n_components)

    def _fit(self, X: Array, w: Array | None, q: int) -> tuple[Factors, Record, int]:
        psi = self._initial_noise(X)
        if has_missing(X):
            w = observed_weights(X, w)
            found = self._fit_holes(X, w, q, psi)
        else:
            found = fit_factors(Primal(X, w), q, HEYWOOD, psi, **self._limits)
        return *found, used_rows(X, w)

    def _initial_noise(self, X: Array) -> Array | None:
        if self.noise_variance_init is None:
            return None
        psi = np.asarray(backend.to_numpy(self.noise_variance_init), dtype=np.float64)
        if psi.shape != (X.shape[1],) or not np.all(psi > 0):
            what = f"{X.shape[1]} positive numbers, one a feature"
            raise ValueError(expected("noise_variance_init", what, psi))
        return backend.asarray(psi, X)

    def _canonical(self, factors: Factors) -> Factors:
        """Rotate so that WᵀΨ⁻¹W is diagonal, or as asked; signs are deterministic."""
        W, root = factors.W, backend.namespace(factors.psi).sqrt(factors.psi)[:, None]
        if W.shape[1]:
            U, s, _ = algebra.svd(W / root)
            W = (U * s) * root
            W = W if self.rotation is None else rotate(W, self.rotation)
        return Factors(deterministic_signs(W), factors.mu, factors.psi)

    def _set(self, factors: Factors, like: Array) -> None:
        self.components_ = backend.cast_like(factors.W.T, like)
        self.mean_ = backend.cast_like(factors.mu, like)
        self.noise_variance_ = variances_like(factors.psi, like)
        xp = backend.namespace(factors.W)
        variance = xp.sum(factors.W**2, axis=1) + factors.psi
        held = backend.to_numpy(factors.psi <= 2 * HEYWOOD * variance)
        self.heywood_ = [int(j) for j in np.flatnonzero(held)]
        if self.heywood_:
            warn(
                f"Heywood case: the factors explain features {self.heywood_[:10]} wholly, "
                "their noise is held at 1/10,000 of their variance. Use fewer factors, or more "
                "rows.",
                HeywoodWarning,
            )

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what the model takes and gives."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.array_api_support = True
        tags.input_tags.allow_nan = True
        return tags
