"""Every operator beside the matrix that it stands for; traces of functions of one by quadrature."""

import inspect
from functools import partial

import numpy as np
import pytest
from scipy import sparse

from dualpca.arrays import EPS, backend
from dualpca.data.moments import Moments
from dualpca.data.table import SlicedTable
from dualpca.kernels import RBF, Linear, Polynomial
from dualpca.models.probabilistic_kernel import FeatureScatter
from dualpca.operators import (
    ColumnGram,
    DeviceScatter,
    Dual,
    Explicit,
    Given,
    Gram,
    MappedScatter,
    Operator,
    PartScatter,
    Primal,
    Rescaled,
    Scatter,
    map_rows,
    survey,
)
from dualpca.operators.columns import column_sums
from dualpca.operators.dual import quadrature
from dualpca.operators.primal import Mirror


@pytest.mark.parametrize("seed", range(3))
def test_quadrature_knows_the_trace_of_a_diagonal_and_its_polynomials(seed):
    values = np.linspace(-1.0, 4.0, 40)
    A = Scatter(Moments(1.0, np.zeros(40), np.diag(values)))
    nodes, weights = quadrature(A, np.random.default_rng(seed))
    for power in (0, 1, 2, 3):  # probes of ±1 see a diagonal as it is
        assert np.sum(weights * nodes**power) == pytest.approx(np.sum(values**power), rel=1e-9)


# --- Every operator, beside the matrix that it stands for ----------------------------------------

N, D = 23, 6
NUMBERS = np.random.default_rng(0)
X = NUMBERS.normal(size=(N, D)) * np.arange(1.0, D + 1) + 3 * NUMBERS.normal(size=D)
X[NUMBERS.random(X.shape) < 0.3] = 0.0
WEIGHTS = NUMBERS.uniform(0.2, 3.0, N)
SCALE = np.arange(2.0, D + 2)


def factor(X, weights=None, *, center=True, standardize=False, scale=None):
    """Return F, (n, d): centred rows in their units, times the root of their weights."""
    w = np.ones(len(X)) if weights is None else weights
    F = X - np.average(X, axis=0, weights=w) if center else X
    if standardize:
        scale = np.sqrt(np.average(F**2, axis=0, weights=w))
    return F / (1.0 if scale is None else scale) * np.sqrt(w)[:, None]


def torch_of(A):
    return None if A is None else pytest.importorskip("torch").asarray(A.copy())


def primal(w, standardize, into=np.asarray):
    weights = torch_of(w) if into is torch_of else w
    return Primal(into(X), weights, standardize=standardize), factor(X, w, standardize=standardize)


def on_device(w, standardize):
    moments, F = Moments.of(torch_of(X), torch_of(w)), factor(X, w, standardize=standardize)
    return DeviceScatter(moments, standardize=standardize, given_eps=EPS), F


def by_parts(w, standardize):
    table = SlicedTable(X, 7)
    table = table if w is None else table.with_weights(w)
    columns = survey(table, wide=True, nan=False).columns
    return PartScatter(table, columns, standardize=standardize), factor(
        X, w, standardize=standardize
    )


def by_columns(w, standardize):
    table = SlicedTable(np.ascontiguousarray(X.T), part_rows=4)
    table.row_weights = w
    gram = ColumnGram(table, column_sums(table, standardize=standardize), standardize=standardize)
    return gram, factor(X, w, standardize=standardize).T


def mapped(w, _):
    f = Explicit(Polynomial(2, coef0=1.0))
    return MappedScatter(f, map_rows(f, X, w)), factor(f(X), w)


def rescaled(w, _):
    return Rescaled(Primal(X, w), SCALE), factor(X, w, scale=SCALE)


def dual(kernel, make=lambda kernel: X, center=True):
    def made(w, _):
        root = np.linalg.cholesky(kernel(X, X) + 1e-13 * np.trace(kernel(X, X)) * np.eye(N))
        return Dual(make(kernel), kernel, w, center=center), factor(root, w, center=center).T

    return made


def of_features(w, _):
    gram = Gram(X, RBF(0.01))
    return FeatureScatter(gram, X, None, False), dual(RBF(0.01))(None, None)[1]


OPERATORS = {
    "Primal": primal,
    "Primal, sparse": partial(primal, into=sparse.csr_array),
    "Primal, by columns": partial(primal, into=sparse.csc_array),
    "Primal, torch": partial(primal, into=torch_of),
    "Mirror": lambda *how: (primal(*how)[0].mirror, primal(*how)[1].T),
    "Mirror, sparse": lambda *how: (
        primal(*how, into=sparse.csr_array)[0].mirror,
        primal(*how)[1].T,
    ),
    "Mirror, torch": lambda *how: (primal(*how, into=torch_of)[0].mirror, primal(*how)[1].T),
    "Scatter": lambda w, s: (Scatter(Moments.of(X, w), standardize=s), primal(w, s)[1]),
    "DeviceScatter": on_device,
    "Rescaled": rescaled,
    "PartScatter": by_parts,
    "ColumnGram": by_columns,
    "MappedScatter": mapped,
    "Dual": dual(RBF(0.01)),
    "Dual, thin factor": dual(Linear()),
    "Dual, given": dual(RBF(0.01), lambda kernel: Given(kernel(X, X), kernel)),
    "Dual, stored": dual(RBF(0.01), lambda kernel: Gram(X, kernel, stored=True)),
    "Dual, not centred": dual(RBF(0.01), center=False),
    "FeatureScatter": of_features,
}
"""Operators FᵀF of a table with given weights, standardised or not, each with F."""


def close(found, expected):
    size = np.abs(expected).max()
    np.testing.assert_allclose(backend.to_numpy(found), expected, rtol=0, atol=1e-9 * size)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("w", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_is_its_matrix(name, w, standardize, monkeypatch):
    A, F = OPERATORS[name](w, standardize)
    M, V = F.T @ F, np.random.default_rng(1).normal(size=(F.shape[1], 3))
    here = backend.asarray(V, A.like)
    assert A.shape == M.shape
    assert A.trace == pytest.approx(np.trace(M), rel=1e-9)
    for product in (A @ here, A.times_in_double(here)):
        close(product, M @ V)
    for order in (128, 0):  # found on the host up to it, beside the rows beyond
        monkeypatch.setattr("dualpca.operators.primal.HOST_ORDER", order)
        for matrix in (A.dense(), A.dense_for(2)):
            close(matrix, M)
    stored, uncentred = A.matrix()
    assert uncentred or np.allclose(backend.to_numpy(stored), M)
    close(A @ here[:, :1], M @ V[:, :1])
    if hasattr(A, "diag"):
        close(A.diag(), np.sum(F**2, axis=1 if isinstance(A, ColumnGram) else 0))
    if A.factor_width is not None:
        thin = backend.to_numpy(A.factor())
        assert thin.shape[1] == A.factor_width
        close(thin @ thin.T, M)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("w", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("name", [name for name in OPERATORS if name[:6] in ("Primal", "Mirror")])
def test_halves_of_an_operator_and_of_its_mirror_are_adjoint(name, w, standardize):
    A, F = OPERATORS[name](w, standardize)
    rng = np.random.default_rng(1)
    V, U = rng.normal(size=(F.shape[1], 3)), rng.normal(size=(F.shape[0], 3))
    close(A.half(backend.asarray(V, A.like)), F @ V)
    close(A.mirror.half(backend.asarray(U, A.like)), F.T @ U)
    close(A.mirror.dense(), F @ F.T)
    assert A.mirror.mirror.shape == A.shape
    if not backend.is_sparse(getattr(A, "X", A.like)) and "sparse" not in name:
        R = backend.to_numpy(A.triangle())
        close(R.T @ R, F.T @ F)
    _, e = np.linalg.eigh(F @ F.T)
    v = backend.to_numpy(A.unmirror(backend.asarray(e[:, -2:].copy(), A.like)))
    close(v.T @ v, np.eye(2))
    close(np.abs(v.T @ np.linalg.eigh(F.T @ F)[1][:, -2:]), np.eye(2))
    values = np.sum(F**2, axis=0)
    silent = "torch" in name or isinstance(A, Mirror)  # its diagonal would cost more than it tells
    assert A.alike(0.5 * values.min() / values.max())
    assert A.alike(2.0 * values.min() / values.max()) == silent or values.min() == values.max()


def test_every_operator_is_tried():
    """One of each class; those of a GPU alone aside."""
    tried = {type(make(None, False)[0]) for make in OPERATORS.values()}

    def below(of):
        return {of}.union(*map(below, of.__subclasses__()))

    ours = {one for one in below(Operator) if one.__module__.startswith("dualpca.")}
    assert {one for one in ours if not inspect.isabstract(one)} == tried
