"""Kernels of a few hundred points: Lanczos, thin factors, and what they must not miss."""

import pickle
import re
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import dualpca as dp
from dualpca import KernelPCA
from dualpca.errors import SpectrumWarning
from dualpca.kernels import RBF, Cosine, Linear, Precomputed, Sigmoid, thin_factor
from dualpca.operators import Dual, Given, Gram, Primal, negatives_of_matrix
from dualpca.solvers import KernelOptions, solve, solve_kernel
from dualpca.solvers.exact import (
    Basis,
    Krylov,
    MatrixProducts,
    lanczos,
    lanczos_cost,
    start_block,
    tridiagonal_pairs,
)
from tests.tolerances import assert_close

RNG = np.random.default_rng(0)
X = RNG.standard_normal((400, 6))


def centred(K):
    return K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()


def dual_of(points, kernel, weights=None, center=True):
    return Dual(Gram(points, kernel, stored=True), None, weights, center=center)


@pytest.mark.parametrize("center", [True, False])
def test_one_vector_at_a_time_finds_what_eigh_finds(center):
    operator = dual_of(X, RBF(gamma=0.1), None if center else RNG.uniform(0.5, 2, 400), center)
    found = lanczos(operator, 5, 0.0, np.random.default_rng(0))
    values, vectors = np.linalg.eigh(operator.dense())
    assert_close(found.values, values[::-1][:5], "eigenvalue")
    assert_close(abs(found.vectors.T @ vectors[:, ::-1][:, :5]), np.eye(5), "vector")
    assert found.error < 1e-10 and found.negatives is None


@pytest.mark.parametrize("n", [300, 500])
def test_pairs_of_equal_eigenvalues_are_not_missed(n):
    angle = 2 * np.pi * np.arange(n) / n  # ARPACK alone misses some of a ring's pairs
    ring = np.column_stack([np.cos(angle), np.sin(angle)])
    for gamma in (0.1, 1.0, 10.0):
        exact = np.linalg.eigvalsh(centred(RBF(gamma=gamma)(ring, ring)))[::-1]
        for seed in range(3):
            for q in (2, 3, 6):
                model = KernelPCA(q, kernel="rbf", gamma=gamma, random_state=seed).fit(ring)
                assert_close(model.eigenvalues_, exact[:q], "eigenvalue")


def test_a_missed_pair_is_noticed():
    n = 500
    angle = 2 * np.pi * np.arange(n) / n
    operator = dual_of(np.column_stack([np.cos(angle), np.sin(angle)]), RBF(gamma=10.0))
    seen = [lanczos(operator, 2, 0.0, np.random.default_rng(seed)) for seed in range(8)]
    first = np.linalg.eigvalsh(operator.dense())[-1]
    assert all(found is None or abs(found.values[1] - first) < 1e-10 for found in seen)


def test_auto_weighs_the_three_ways():
    how = KernelOptions()
    tiny, middle = dual_of(X[:60], RBF()), dual_of(X, RBF())
    assert solve_kernel(tiny, 2, how)[1] == "dense"
    assert lanczos_cost(middle, 2) < Krylov.block_cost(middle, 2)
    assert np.isinf(lanczos_cost(dual_of(X[:60], RBF()), 20))  # the basis would fill the space
    assert np.isinf(lanczos_cost(Dual(Gram(X, RBF())), 2))  # a kernel that is not to be stored
    assert solve_kernel(dual_of(X, Linear()), 2, how)[1] == "qr"


@pytest.mark.parametrize("kernel", [Linear(), 3.0 * Linear(), Cosine(), Linear(on=[1, 4])])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_thin_factor_gives_the_kernel_and_its_eigenpairs(kernel, weighted):
    F = thin_factor(kernel, X)
    assert_close(F @ F.T, kernel(X, X), "covariance")
    operator = dual_of(X + 1.0, kernel, RNG.uniform(0, 2, 400) if weighted else None)
    found, name = solve_kernel(operator, F.shape[1], KernelOptions())
    exact, _ = solve_kernel(operator, F.shape[1], KernelOptions("dense"))
    assert name == "qr"
    assert_close(found.values, exact.values, "eigenvalue")
    assert_close(found.trace, exact.trace, "covariance")
    assert thin_factor(RBF(), X) is None


def test_all_components_of_a_linear_kernel_are_those_of_the_columns():
    model = KernelPCA(kernel="linear").fit(X)
    assert model.n_components_ == 6 and KernelPCA(8, kernel="linear").fit(X).n_components_ == 8
    assert_close(model.eigenvalues_, np.linalg.eigvalsh(np.cov(X.T) * 399)[::-1], "eigenvalue")


@pytest.mark.parametrize("kernel", ["rbf", "linear", "precomputed"])
def test_fit_transform_is_what_transform_gives(kernel):
    rows = RBF(gamma=0.1)(X, X) if kernel == "precomputed" else X
    model = KernelPCA(4, kernel=kernel)
    assert_close(model.fit_transform(rows), model.transform(rows), "vector")
    w = RNG.uniform(0.5, 2, 400)
    assert_close(model.fit_transform(rows, sample_weight=w), model.transform(rows), "vector")


@pytest.mark.parametrize("n", [60, 400, 800])
def test_negative_eigenvalues_of_a_given_matrix_are_left_out_as_exactly_as_ever(n):
    rng = np.random.default_rng(n)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    values = np.concatenate([1 / np.arange(1, n - 9.0), -0.05 * np.ones(10)])
    K = (Q * values) @ Q.T
    K = (K + K.T) / 2
    before, exact = K.copy(), np.linalg.eigvalsh(centred(K))
    with pytest.warns(SpectrumWarning, match="negative eigenvalues sum to -0.4"):
        model = KernelPCA(3, kernel="precomputed").fit(K)
    share = exact[::-1][:3] / exact[exact > 0].sum()
    assert_close(model.explained_variance_ratio_, share, "covariance")
    assert np.array_equal(K, before)


def test_a_cholesky_factor_proves_that_nothing_is_negative():
    K = centred(RBF(gamma=0.1)(X, X))
    assert negatives_of_matrix(K).negative == negatives_of_matrix(X @ X.T).negative == 0
    negative, total, _ = negatives_of_matrix(np.diag([1.0, 2.0, -1e-3]))
    assert_close([negative, total], [1e-3, 3.001], "eigenvalue")


def test_a_large_given_matrix_is_centred_without_a_copy():
    Y = np.random.default_rng(1).standard_normal((750, 4))
    K = RBF(gamma=0.2)(Y, Y)
    operator = Dual(Given(K, Precomputed()))
    matrix, centring = operator.matrix()
    assert matrix is K and centring
    found = lanczos(operator, 3, 0.0, np.random.default_rng(0))
    assert_close(found.values, np.linalg.eigvalsh(centred(K))[::-1][:3], "eigenvalue")
    products = MatrixProducts(K)
    tracemalloc.start()
    try:
        products.matvec(np.ones(750))
        assert tracemalloc.get_traced_memory()[1] < K.nbytes / 10
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_products_of_several_tiles_are_those_of_the_whole_kernel(backend, stored, single):
    rng = np.random.default_rng(1)
    points, V = rng.standard_normal((600, 3)), rng.standard_normal((600, 2))
    K = RBF(gamma=0.3)(points, points)
    gram = Gram(backend.asarray(points), RBF(gamma=0.3), single=single, stored=stored)
    assert len(list(gram.tiles())) == 6
    for found in (gram.times(backend.asarray(V)), gram.times_in_double(backend.asarray(V))):
        assert_close(
            backend.numpy(found), K @ V, "covariance", np.float32 if single else np.float64
        )
    assert_close(backend.numpy(gram.whole()), K, "covariance")


def test_blocks_are_wide_only_where_the_kernel_is_evaluated_anew():
    operators = [
        Primal(np.random.default_rng(1).standard_normal((400, 200))),
        Dual(Gram(X, RBF(gamma=0.1), stored=True)),
        Dual(Gram(X, RBF(gamma=0.1))),
    ]
    for operator, width in zip(operators, (16, 16, 24), strict=True):
        seen, times = set(), type(operator).__matmul__
        kind = type("Counted", (type(operator),), {})
        kind.__matmul__ = lambda self, V, times=times, seen=seen: (
            seen.add(V.shape[1]) or times(self, V)
        )
        operator.__class__ = kind
        Krylov().solve(operator, 10, np.random.default_rng(0))
        assert max(seen) == width


def test_evaluating_a_kernel_costs_all_pairs_of_points():
    wide = np.zeros((400, 1000))
    costs = [Gram(wide[:n], RBF()).fill_cost for n in (100, 200, 400)]
    assert costs[1] / costs[0] == costs[2] / costs[1] == 4
    every, once = Gram(wide, RBF()), Gram(wide, RBF(), stored=True)
    assert every.pass_cost > 10 * once.pass_cost  # distances of 1000 columns in every product


@pytest.mark.parametrize("center", [True, False])
def test_shares_of_an_indefinite_kernel_are_counted_when_they_are_read(center, tmp_path):
    w = RNG.uniform(0.5, 2, 400)
    exact = np.linalg.eigvalsh(dual_of(X, Sigmoid(gamma=1 / 6), w, center).dense())
    with pytest.warns(SpectrumWarning, match="indefinite") as told:
        model = KernelPCA(4, kernel="sigmoid", center=center).fit(X, sample_weight=w)
    found = float(re.search(r"sum to about (\S+),", str(told[0].message))[1])
    assert 0.5 < found / exact[exact < 0].sum() < 2  # one probe
    assert model._model.ratios is None
    dp.save(model, tmp_path / "m.dpca")
    again = [pickle.loads(pickle.dumps(model)), dp.load(tmp_path / "m.dpca")]
    share = exact[::-1][:4] / exact[exact > 0].sum()
    for one in (model, *again):
        assert_close(one.explained_variance_ratio_, share, "covariance")
        assert one.explained_variance_ratio_ is one.explained_variance_ratio_


@pytest.mark.filterwarnings("ignore::dualpca.errors.SolverWarning")
def test_what_is_negative_is_a_share_of_all_even_where_all_is_rounding():
    rows = load_breast_cancer().data[:400]
    with pytest.warns(SpectrumWarning) as told:  # tanh is 1 for nearly all pairs of points
        KernelPCA(2, kernel="sigmoid").fit(rows / rows.std(axis=0))
    found = [re.search(r"(\S+)% of all", str(one.message)) for one in told]
    assert all(0 < float(share[1]) < 100 for share in found if share)


def test_shares_of_many_points_are_counted_by_probes():
    Y = np.random.default_rng(0).standard_normal((1600, 3))
    with pytest.warns(SpectrumWarning):
        model = KernelPCA(2, kernel="sigmoid").fit(Y)
    exact = np.linalg.eigvalsh(centred(Sigmoid(gamma=1 / 3)(Y, Y)))
    share = exact[::-1][:2] / exact[exact > 0].sum()
    np.testing.assert_allclose(model.explained_variance_ratio_, share, rtol=0.1)


def test_a_kernel_of_a_function_is_not_evaluated_again():
    calls = []

    def kernel(x, y):
        calls.append(1)
        return float(np.tanh(x @ y / 6))

    with pytest.warns(SpectrumWarning, match="sum to -"):
        model = KernelPCA(2, kernel=kernel).fit(X[:280])
    count = len(calls)
    assert model.explained_variance_ratio_.sum() < 1 and len(calls) == count


def test_one_tridiagonal_matrix_gives_pairs_and_all_eigenvalues():
    A = centred(Sigmoid(gamma=0.2, coef0=1.0)(X[:120], X[:120]))
    before, wanted = A.copy(), np.linalg.eigh(A)
    values, vectors, every = tridiagonal_pairs(A, 3)
    assert np.array_equal(A, before)
    assert_close(every, wanted[0], "eigenvalue")
    assert_close(values, wanted[0][-3:], "eigenvalue")
    assert_close(abs(vectors.T @ wanted[1][:, -3:]), np.eye(3), "vector")


def test_equal_eigenvalues_of_an_indefinite_matrix_are_all_found():
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((90, 90)))[0]
    values = np.concatenate([np.full(20, 2.0), np.linspace(0.1, 1, 60), np.full(10, -0.5)])
    K = (Q * values) @ Q.T
    with pytest.warns(SpectrumWarning, match="sum to -5,"):
        model = KernelPCA(15, kernel="precomputed", center=False).fit((K + K.T) / 2)
    assert_close(model.eigenvalues_, np.full(15, 2.0), "eigenvalue")
    E = model.eigenvectors_
    assert_close(E.T @ E, np.eye(15), "vector")


@pytest.mark.parametrize(("n", "columns"), [(300, 3), (1100, 50)])
def test_products_with_a_kernel_in_pieces_are_those_with_the_whole(n, columns):
    rng = np.random.default_rng(n)
    Y, V = rng.standard_normal((n, 4)), np.asfortranarray(rng.standard_normal((n, columns)))
    K = RBF(gamma=0.2)(Y, Y)
    for gram in (Gram(Y, RBF(gamma=0.2), stored=True), Given(K, Precomputed())):
        assert_close(gram.times(V), K @ V, "covariance")
    single = Gram(Y, RBF(gamma=0.2), stored=True, single=True)
    np.testing.assert_allclose(single.times(V), K @ V, atol=1e-4)
    np.testing.assert_allclose(single.times_in_double(V), K @ V, atol=1e-4)


@pytest.mark.parametrize("kernel", [Cosine(on=(0, 2, 3)), 2.0 * Linear()])
def test_many_new_points_are_projected_as_single_ones_are(kernel):
    model, new = KernelPCA(2, kernel=kernel).fit(X), RNG.standard_normal((50, 6))
    new[7] = 0
    rows = np.vstack([model.transform(row[None]) for row in new])
    assert_close(model.transform(new), rows, "vector")
    assert_close(model.novelty(new), [model.novelty(row[None])[0] for row in new], "covariance")


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_units_of_the_kernel_do_not_turn_lanczos_away(scale):
    found = [
        lanczos(dual_of(X, a * RBF(gamma=0.1)), 3, 0.0, np.random.default_rng(0))
        for a in (1.0, scale)
    ]
    assert_close(found[1].values / scale, found[0].values, "eigenvalue")


@pytest.mark.filterwarnings("ignore::dualpca.errors.SpectrumWarning")
def test_all_eigenvalues_of_a_given_matrix_say_how_much_is_negative():
    Q = np.linalg.qr(RNG.standard_normal((8, 8)))[0]
    values = np.array([5.0, 4.0, 3.0, 2.0, 1.0, 1e-17, -0.25, -0.5])
    K = (Q * values) @ Q.T
    for rank in (3, 8):  # with the others, and from all of them
        operator = Dual(Given((K + K.T) / 2, Precomputed()), center=False)
        found, _ = solve_kernel(operator, rank, KernelOptions("dense"))
        assert_close(found.negatives[:2], [0.75, 15.75], "eigenvalue")


def test_a_restarted_basis_still_holds_what_it_says():
    A = np.kron(X.T @ X, np.diag([1.0, 0.7, 0.4, 0.2, 0.1]))
    basis = Basis(np.linalg.qr(RNG.standard_normal((30, 2)))[0], 12)
    restarts = 0
    for _ in range(12):
        rest = basis.expand(A)
        Qt = basis.Qt[: basis.size]
        assert_close(Qt @ Qt.T, np.eye(basis.size), "exact")
        assert_close(basis.T[: basis.size, : basis.size], Qt @ A @ Qt.T, "covariance")
        values, weights = basis.ritz()
        before = basis.size
        assert basis.advance(rest, values, weights, 5)
        restarts += basis.size < before
    assert restarts >= 2


def test_a_start_sees_what_its_sketch_does_not():
    seen = np.diag(np.where(np.arange(50) < 20, 1.0, 0.0))
    A = SimpleNamespace(shape=(50, 50), like=X, pass_cost=1e9, sketch=lambda step: seen)
    start = start_block(A, 4, np.random.default_rng(0))
    assert_close(start.T @ start, np.eye(4), "exact")
    unseen = np.linalg.svd(start[20:], compute_uv=False)
    assert np.all((unseen > 1e-4) & (unseen < 0.1))


def test_a_solver_that_draws_nothing_makes_no_generator():
    assert_close(
        solve(Primal(X), 2, "dense", 0.0, "no seed").trace, 400 * X.var(axis=0).sum(), "eigenvalue"
    )
    with pytest.raises((TypeError, ValueError)):
        solve(Primal(X), 2, "krylov", 0.0, "no seed")
