"""The same model in features and in kernels: PPCA to DualPPCA and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from dualpca.arrays import Array, backend
from dualpca.errors import DualPCAError, expected
from dualpca.estimators._base import check_matrix
from dualpca.estimators._dual_fits import DualFit
from dualpca.estimators._kernel_results import Approximation
from dualpca.estimators.ppca import PPCA
from dualpca.gaussian import SpikedGaussian
from dualpca.kernels import Linear
from dualpca.models.driver import History, Record
from dualpca.models.dual import MapSpace
from dualpca.models.spiked import SpikedModel
from dualpca.operators import Explicit, MappedSubspace, Spectrum, Subspace, UncertainSubspace


def to_primal(model: Any) -> Any:
    """Return a fitted DualPPCA as PPCA of explicit features; those are the rows if k is linear."""
    subspace = model._projector
    if isinstance(subspace, UncertainSubspace):
        what = "a model of complete rows: expected features are no features of any row"
        raise DualPCAError(expected("to_primal", what, "rows with NaN"))
    if isinstance(subspace, MappedSubspace):
        feature_map, V, mean = subspace.map, subspace.axes, subspace.mean
    else:
        feature_map = Explicit(subspace.kernel)
        F = backend.working(feature_map(subspace.points))
        V, mean = F.T @ subspace.coefficients, F.T @ subspace.base
    ppca = _ppca(model, V, mean)
    if feature_map.kernel == Linear():
        ppca.n_features_in_ = int(V.shape[0])
        return ppca
    return Pipeline([("features", FunctionTransformer(feature_map)), ("ppca", ppca)])


def _ppca(model: Any, V: Array, mean: Array) -> PPCA:
    """Return a PPCA with these axes and the variances of a dual model."""
    g, xp, like = model._gaussian, backend.namespace(V), model.eigenvalues_
    found = PPCA(model.n_components_, noise_variance=model.noise_variance)
    own = SpikedGaussian(g.values, g.noise, int(V.shape[0]))
    trace = float(model.eigenvalues_[0] / model.explained_variance_ratio_[0])
    vanished = g.noise == 0 and own.rank < own.dim
    loglikelihood = math.inf if vanished else own.loglikelihood(model._n, trace)
    found._model = SpikedModel(
        backend.cast_like(mean, like),
        backend.cast_like(xp.asarray(V.T, copy=True), like),
        model.explained_variance_,
        model.explained_variance_ratio_,
        g.noise,
        model.n_samples_,
        history=History((loglikelihood,), model.n_iter_, model.converged_),
    )
    found.n_features_in_ = int(V.shape[0])
    return found


def to_dual(model: PPCA, X: Any = None) -> Any:
    """Return a fitted PPCA as a DualPPCA with the linear kernel and r = d."""
    from dualpca.estimators.dual import DualPPCA

    spiked = model._fitted
    V, mean, g = spiked.axes, spiked.frame.mean, spiked.gaussian
    kernel, n = Linear(), float(model.n_samples_)
    points = _support(V, mean, g) if X is None else backend.working(check_matrix(X, "X"))
    ratio = backend.working(model.explained_variance_ratio_)
    trace = n * float(g.values[0] / ratio[0])
    spectrum = Spectrum(n * g.values, V, trace, g.dim)
    record = Record([model.loglikelihood_], model.n_iter_, True)
    projector = MappedSubspace(Explicit(kernel), V, mean)
    space = MapSpace(points - mean, V, mean)
    error = Approximation(0.0, 0.0)
    expansion = _expansion(V, mean, kernel)
    parts = (projector, expansion, space, points, error, "primal")
    dual = DualPPCA(g.rank, kernel="linear", noise_variance=g.noise or None, noise_dim=g.dim)
    dual._publish(DualFit(spectrum, g, record, None, n, *parts), kernel)
    dual.n_features_in_ = int(V.shape[0])
    return dual


def _support(V: Array, mean: Array, g: SpikedGaussian) -> Array:
    """Return μ and μ + √ℓ_p v_p, (q + 1, d): points enough to tell the model."""
    xp = backend.namespace(V)
    steps = (V * xp.sqrt(g.values)).T
    return mean + xp.concat([0 * mean[None, :], steps], axis=0)


def _expansion(V: Array, mean: Array, kernel: Linear) -> Subspace:
    """Return axes and mean as expansions over themselves, as points."""
    xp, q = backend.namespace(V), int(V.shape[1])
    points = xp.concat([V.T, mean[None, :]], axis=0)
    eye = backend.asarray(np.eye(q + 1), V)
    return Subspace(points, kernel, eye[:, :q], eye[:, q], V.T @ mean, float(mean @ mean))
