"""`transform` as an ONNX graph, for places without Python.

Linear models are (x − μ)P. Those on a kernel that declares its nodes (RBF, and sums, products and
multiples of RBFs) are k(x, ·)A − t, where A and t hold centring and scale, so kernel values need
not be centred. All is computed in float64 inside, whatever comes in: float32 rows get the same
answers as from `transform`, which works in float64 too.

Squared distances are ‖a‖² + ‖b‖² − 2aᵀb around the middle of the training points where that keeps
12 digits after the point, one matrix product; elsewhere they are summed column by column, which
loses none. Either way m rows and n points take O(mn) memory, never O(mnd).
"""

from __future__ import annotations

import copy
import json
import os
from dataclasses import replace
from typing import Any

import numpy as np

from dualpca.arrays import backend, to_host
from dualpca.data import replacing
from dualpca.errors import expected
from dualpca.files import metadata as beside
from dualpca.files import onnx_graph
from dualpca.files.onnx_graph import Graph, Host
from dualpca.kernels import Kernel, onnx_values
from dualpca.operators import Landmarks, MappedSubspace, Subspace

LINEAR = ("PCA", "PPCA", "FactorAnalysis", "BayesianPCA", "CCA")
ON_KERNELS = ("KernelPCA", "DualPPCA", "ProbabilisticKernelPCA")
SUPPORTED = (
    f"{', '.join(LINEAR)}, or {', '.join(ON_KERNELS)} with an RBF kernel (or sums, "
    "products and multiples of such) on complete rows, alone or as the last step of a pipeline "
    "after StandardScaler"
)

ROWS = 1024
"""Of the identity matrix, whose images are P, at once."""


def to_onnx(
    model: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    dtype: str = "float64",
    metadata: dict[str, Any] | None = None,
) -> bytes:
    """Return a model's `transform` as an ONNX file; the same model gives the same bytes.

    The graph takes X (rows, d) and gives Y (rows, q), for any number of rows. They must be
    complete: a graph knows no expectations of NaN.

    Parameters
    ----------
    model : estimator
        Fitted: PCA, PPCA, FactorAnalysis, BayesianPCA, CCA (variates of the first view); KernelPCA,
        DualPPCA or ProbabilisticKernelPCA with an RBF kernel, or sums, products and multiples
        of such; a pipeline of StandardScaler and one of them.
    path : path, optional
        File to write, whole or not at all.
    dtype : {'float64', 'float32'}
        Of X and Y.
    metadata : dict, optional
        As `dualpca.load` returns it; means and scales of its `table` are applied first.

    Returns
    -------
    bytes

    Notes
    -----
    Needs the extra: pip install 'dualpca[onnx]'. Operators of ONNX's opset 17. A kernel model takes
    8·m·n bytes for m rows and n training points (or landmarks): run many rows in batches.

    Examples
    --------
    >>> import onnxruntime
    >>> import dualpca
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> model = dualpca.PPCA(2).fit(X)
    >>> session = onnxruntime.InferenceSession(dualpca.to_onnx(model))
    >>> [Y] = session.run(None, {"X": X[:5]})
    >>> bool(abs(Y - model.transform(X[:5])).max() < 1e-12)
    True
    """
    if dtype not in onnx_graph.TYPES:
        raise ValueError(expected("dtype", f"one of {list(onnx_graph.TYPES)}", dtype))
    steps = _steps(model)
    _check_supported(steps)
    d = int(steps[0].n_features_in_)
    graph = Graph(dtype)
    rows = graph.rows(d)
    rows = _from_table(graph, rows, beside.check(metadata or {}, d).get("table", {}))
    for step in steps[:-1]:
        rows = _standardised(graph, rows, step.mean_ if step.with_mean else None, step.scale_)
    last = steps[-1]
    found = (_linear if _name(last) in LINEAR else _kernel)(graph, rows, last)
    data = graph.finish(*found, _props(steps))
    if path is not None:
        with replacing(path) as file:
            file.write(data)
    return data


def _name(model: Any) -> str:
    """Return the name of a class of this library or of scikit-learn, '' for any other."""
    cls = type(model)
    return cls.__name__ if cls.__module__.split(".")[0] in ("dualpca", "sklearn") else ""


def _steps(model: Any) -> list[Any]:
    """Return the steps of a pipeline without those that do nothing, or the model alone."""
    if _name(model) == "FrozenEstimator":
        return _steps(model.estimator)
    if _name(model) != "Pipeline":
        return [model]
    parts = [part for _, part in model.steps if part is not None and not isinstance(part, str)]
    return [step for part in parts for step in _steps(part)] or [model]


def _check_supported(steps: list[Any]) -> None:
    """Refuse what has no graph, before any work."""
    *before, last = steps
    good = _name(last) in (*LINEAR, *ON_KERNELS)
    if not good or any(_name(step) != "StandardScaler" for step in before):
        raise ValueError(expected("model", SUPPORTED, last if not good else before[0]))
    for step in steps:
        getattr(step, "_require_fitted", dict)()


def _props(steps: list[Any]) -> dict[str, str]:
    """Return what the file says of itself."""
    found = {"model": type(steps[-1]).__name__}
    names = getattr(steps[0], "feature_names_in_", None)
    if names is not None:
        found["columns"] = json.dumps([str(name) for name in names])
    return found


# --- standardisation --------------------------------------------------------------------------


def _from_table(graph: Graph, rows: str, table: dict[str, Any]) -> str:
    return _standardised(graph, rows, table.get("means"), table.get("scales"))


def _standardised(graph: Graph, rows: str, means: Any, scales: Any) -> str:
    """Add (x − mean) / scale, as far as they are there."""
    if means is not None:
        rows = graph.add("Sub", rows, graph.constant(_host(means)))
    if scales is not None:
        rows = graph.add("Div", rows, graph.constant(_host(scales)))
    return rows


def _host(values: Any) -> Host:
    return np.asarray(
        backend.to_numpy(values) if backend.is_foreign(values) else values, dtype=float
    )


# --- linear models ----------------------------------------------------------------------------


def _linear(graph: Graph, rows: str, model: Any) -> tuple[str, int]:
    """Add (x − μ)P; P is what the model, its mean moved to 0, makes of the identity matrix."""
    mean = _host(model.x_mean_ if _name(model) == "CCA" else model.mean_)
    probe = _without_mean(model)
    d = mean.shape[0]
    blocks = [range(i, min(i + ROWS, d)) for i in range(0, d, ROWS)]
    P = np.concatenate([_host(probe.transform(_unit_rows(block, d))) for block in blocks])
    centred = graph.add("Sub", rows, graph.constant(mean))
    return graph.add("MatMul", centred, graph.constant(P)), int(P.shape[1])


def _unit_rows(which: range, d: int) -> Host:
    found = np.zeros((len(which), d))
    found[np.arange(len(which)), list(which)] = 1
    return found


def _without_mean(model: Any) -> Any:
    """Return a copy with mean 0 that lives on the host and takes rows without names."""
    probe = copy.copy(model)
    for name in ("feature_names_in_", "_sklearn_output_config", "_stream", "_placed"):
        vars(probe).pop(name, None)
    for name, value in vars(probe).items():
        if backend.is_foreign(value):
            setattr(probe, name, backend.to_numpy(value))
    if _name(model) == "CCA":
        fitted = to_host(model._fitted)
        x = replace(fitted.canonical.x, mu=0 * fitted.canonical.x.mu)
        probe._model = replace(fitted, canonical=replace(fitted.canonical, x=x))
    elif hasattr(model, "_fitted"):
        fitted = to_host(model._fitted)
        probe._model = replace(fitted, mean=0 * fitted.mean)
    else:
        probe.mean_ = np.zeros(probe.n_features_in_)
    return probe


# --- models on a kernel -----------------------------------------------------------------------


def _kernel(graph: Graph, rows: str, model: Any) -> tuple[str, int]:
    """Add k(x, points)A − t."""
    points, kernel, A, tilt = _expansion(model)
    values = onnx_values(kernel, graph, rows, points)
    if values is None:
        raise ValueError(expected("model", SUPPORTED, model))
    product = graph.add("MatMul", values, graph.constant(A))
    return graph.add("Sub", product, graph.constant(tilt)), int(A.shape[1])


def _expansion(model: Any) -> tuple[Host, Kernel, Host, Host]:
    """Return points, kernel, A (n, q) and t (q,) with y = k(x, ·)A − t."""
    space = model._projector if _name(model) == "DualPPCA" else model._subspace
    if isinstance(space, MappedSubspace) and isinstance(space.map, Landmarks):
        whitened = _host(space.map.whitening) @ _host(space.axes)
        parts = (
            space.map.points,
            space.map.kernel,
            whitened,
            _host(space.mean) @ _host(space.axes),
        )
    elif isinstance(space, Subspace):
        parts = (space.points, space.kernel, _host(space.coefficients), _host(space.tilt))
    else:
        raise ValueError(expected("model", SUPPORTED, model))
    points, kernel, A, tilt = parts
    if points.ndim != 2 or getattr(model, "metric", None) is not None:
        raise ValueError(expected("model", SUPPORTED, model))
    if _name(model) == "DualPPCA":
        gaussian = model._gaussian
        scale = _host(gaussian.posterior_mean(gaussian.values * 0 + 1))
        A, tilt = A * scale, tilt * scale
    dense = points.toarray() if backend.is_sparse(points) else points
    return _host(dense), kernel, A, tilt
