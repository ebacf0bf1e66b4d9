"""Every route gives the same answer: solvers, dtypes, array libraries, EM and the closed form."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from sklearn.exceptions import ConvergenceWarning

from dualpca import PCA, PPCA
from dualpca.errors import SolverWarning
from dualpca.gaussian.rules import maximum_likelihood
from dualpca.kernels import RBF, Linear
from dualpca.operators.dual import Dual
from dualpca.operators.primal import Primal
from dualpca.solvers import solve
from dualpca.solvers.base import SOLVERS
from tests import oracles
from tests.representations import projected
from tests.spectra import (
    BENIGN,
    KINDS,
    cases,
    gaps,
    geometric,
    harmonic,
    huge,
    make_case,
    with_spectrum,
)
from tests.tolerances import assert_close, tolerance

SOLVER_NAMES = sorted(SOLVERS)
SHAPES = ("tall", "wide", "square")


def projector(V):
    V = np.asarray(V, dtype=float)
    return V @ V.T


# --- solvers --------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [*SOLVER_NAMES, "auto"])
@given(case=cases(kinds=KINDS))
def test_solver_finds_the_leading_eigenvalues(case, solver):
    spectrum = solve(Primal(case.X), case.q, solver=solver, random_state=0)
    assert_close(
        spectrum.values,
        case.n * case.ell[: case.q],
        "eigenvalue",
        scale=case.n * case.ell[0],
    )
    assert_close(spectrum.trace, case.n * case.ell.sum(), "eigenvalue")


@pytest.mark.parametrize("solver", SOLVER_NAMES)
@given(case=cases(kinds=KINDS))
def test_eigenvectors_are_orthonormal_and_satisfy_the_eigenvalue_equation(case, solver):
    rep = Primal(case.X)
    spectrum = solve(rep, case.q, solver=solver, random_state=0)
    V, lam = np.asarray(spectrum.vectors), np.asarray(spectrum.values)
    assert_close(V.T @ V, np.eye(case.q), "orthonormal")
    A = case.n * oracles.covariance(case.X)
    residual = np.linalg.norm(A @ V - V * lam, axis=0)
    assert residual.max() <= tolerance("residual") * case.n * case.ell[0]


@pytest.mark.parametrize("solver", SOLVER_NAMES)
@given(case=cases(gapped=True))
def test_solver_finds_the_leading_subspace(case, solver):
    if case.q not in gaps(case.ell):
        return  # a flat spectrum has no leading subspace
    spectrum = solve(Primal(case.X), case.q, solver=solver, random_state=0)
    _, V = oracles.eigh_descending(oracles.covariance(case.X))
    assert_close(projector(spectrum.vectors), projector(V[:, : case.q]), "vector")


@pytest.mark.parametrize("solver", SOLVER_NAMES)
@pytest.mark.parametrize("deficient", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_solvers_agree_in_both_precisions(dtype, shape, deficient, solver):
    case = make_case(shape, geometric, mean=3.0, deficient=deficient)
    X = case.X.astype(dtype)
    ell, V = oracles.eigh_descending(oracles.covariance(X))  # of the rounded data, in float64
    spectrum = solve(Primal(X), case.q, solver=solver, random_state=0)
    assert_close(np.asarray(spectrum.values) / case.n, ell[: case.q], "eigenvalue", dtype)
    assert_close(projector(spectrum.vectors), projector(V[:, : case.q]), "vector", dtype)
    assert_close(
        np.asarray(spectrum.vectors).T @ np.asarray(spectrum.vectors),
        np.eye(case.q),
        "orthonormal",
        dtype,
    )


@pytest.mark.parametrize("solver", SOLVER_NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_solver_can_return_the_whole_spectrum(shape, solver):
    case = make_case(shape, geometric)
    q = min(case.n - 1, case.d)
    spectrum = solve(Primal(case.X), q, solver=solver, random_state=0)
    assert_close(spectrum.values, case.n * case.ell[:q], "eigenvalue")
    assert_close(np.sum(np.asarray(spectrum.values)), spectrum.trace, "eigenvalue")


@pytest.mark.parametrize("solver", SOLVER_NAMES)
@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_small_eigenvalues_keep_orthonormal_vectors(shape, solver):
    # dividing by sqrt(lambda) amplifies rounding: ratios of 1e14 show who forgot to orthonormalise
    case = make_case(shape, huge)
    q = min(case.n - 1, case.d)
    V = np.asarray(solve(Primal(case.X), q, solver=solver, random_state=0).vectors)
    assert_close(V.T @ V, np.eye(q), "orthonormal")


@pytest.mark.parametrize("solver", ["dense", "krylov", "auto"])
@pytest.mark.parametrize("kernel", [Linear(), RBF(gamma=0.5)], ids=["linear", "rbf"])
def test_solvers_agree_on_kernels(kernel, solver):
    X = make_case("tall", harmonic).X
    K = np.asarray(kernel(X, X))
    expected, E = oracles.eigh_descending(oracles.centred_kernel(K))
    spectrum = solve(Dual(X, kernel), 3, solver=solver, random_state=0)
    assert_close(spectrum.values, expected[:3], "eigenvalue")
    assert_close(projector(spectrum.vectors), projector(E[:, :3]), "vector")


def test_auto_is_one_of_the_solvers_answers():
    case = make_case("wide", geometric)
    auto = solve(Primal(case.X), 3, random_state=0)
    named = [solve(Primal(case.X), 3, solver=s, random_state=0) for s in SOLVER_NAMES]
    assert any(np.array_equal(auto.values, s.values) for s in named)


def test_unknown_solver_names_the_known_ones():
    with pytest.raises(ValueError, match="krylov"):
        solve(Primal(make_case("tall", geometric).X), 2, solver="nonsense")


# --- krylov's tolerance ---------------------------------------------------------------

K = 150  # eigenvalues in each of the spectra below; q = 10 are asked for


def clustered(k):
    """A cluster of eleven nearly equal eigenvalues across position 10."""
    ell = 1.0 / np.arange(1, k + 1)
    ell[5:16] = ell[5] * (1 - 1e-6 * np.arange(11))
    return ell


HARD = {
    "harmonic": harmonic,
    "geometric": lambda k: 0.9 ** np.arange(k),
    "cluster across q": clustered,
    "flat": np.ones,
    "nearly flat": lambda k: 1 - 0.1 * np.arange(k) / k,
    "square root": lambda k: np.arange(1, k + 1) ** -0.5,
    "spikes on noise": lambda k: np.concatenate(
        [np.linspace(3, 2, 9), np.linspace(1.0, 0.5, k - 9)]
    ),
    "huge ratio": lambda k: np.geomspace(1, 1e-9, k),
    "many equal spikes": lambda k: np.concatenate(
        [np.full(30, 5.0), np.linspace(1.0, 0.1, k - 30)]
    ),
}


@pytest.mark.grid(2)
@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-8])
@pytest.mark.parametrize("name", HARD)
def test_krylov_keeps_its_promise_of_relative_error(name, tol):
    ell = np.sort(HARD[name](K))[::-1]
    X = with_spectrum(400, 200, ell, mean=1.0, seed=3)
    for seed in range(3):
        spectrum = solve(Primal(X), 10, solver="krylov", tol=tol, random_state=seed)
        error = np.abs(np.asarray(spectrum.values) / 400 - ell[:10]) / ell[:10]
        assert error.max() <= tol, f"relative error {error.max():.1e} with seed {seed}"


@pytest.mark.parametrize("shape", [(400, 200), (160, 900)])
def test_krylov_finds_every_copy_of_a_repeated_eigenvalue(shape):
    # more copies than any reasonable block, and directions beyond them
    ell = np.concatenate([np.full(40, 5.0), np.linspace(1.0, 0.1, 100)])
    X = with_spectrum(*shape, ell, seed=4)
    spectrum = solve(Primal(X), 45, solver="krylov", tol=1e-8, random_state=0)
    assert np.max(np.abs(np.asarray(spectrum.values) / shape[0] / ell[:45] - 1)) <= 1e-8


def test_krylov_out_of_passes_warns_and_returns_what_it_has():
    n, ell = 420, np.linspace(1.0, 0.9, 400)  # nearly flat, and more than the basis holds
    rep = Primal(with_spectrum(n, 400, ell, seed=3))
    for passes in (1, 2, 11, 12, 13, 14, 20):  # before, at and after the restarts
        solver = SOLVERS["krylov"](tol=1e-12, max_passes=passes)
        with pytest.warns(SolverWarning, match=f"{passes} pass"):
            spectrum = solver.solve(rep, 10, np.random.default_rng(0))
        V, lam = np.asarray(spectrum.vectors), np.asarray(spectrum.values)
        assert_close(V.T @ V, np.eye(10), "orthonormal")
        assert np.all(lam <= n * ell[:10] * (1 + 1e-12))  # Ritz values come from below
        assert_close(np.sum(V * (rep @ V), axis=0), lam, "vector")  # of these very vectors


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 0.0])
@pytest.mark.parametrize("spread", [1e-2, 1e-4, 0.0])
def test_a_loose_tolerance_never_makes_a_model_impossible(spread, tol):
    # Ritz values come from below: with nearly equal variances the last may fall under their mean
    X = with_spectrum(400, 150, np.linspace(1.0, 1.0 - spread, 150), seed=1)
    model = PCA(n_components=10, svd_solver="krylov", tol=tol, random_state=0).fit(X)
    n_ratio = 400 / 399
    assert float(model.noise_variance_) == pytest.approx(n_ratio, rel=2 * spread + 1e-9)
    assert np.all(np.isfinite(model.score_samples(X)))
    gaussian = maximum_likelihood(solve(Primal(X), 10, solver="krylov", tol=tol), 400, 10)
    assert gaussian.noise <= float(gaussian.values[-1])


def test_krylov_finds_a_direction_that_few_rows_see():
    # one row alone carries the leading direction
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 200))
    X[7, 11] += 300.0
    spectrum = solve(Primal(X), 3, solver="krylov", tol=1e-8, random_state=0)
    expected = oracles.eigh_descending(oracles.covariance(X))[0][:3]
    assert np.max(np.abs(np.asarray(spectrum.values) / 400 / expected - 1)) <= 1e-8


# --- array libraries ------------------------------------------------------------------


@pytest.mark.parametrize("solver", [*SOLVER_NAMES, "auto"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_spectrum_is_the_same_in_every_library(backend, dtype, shape, solver):
    X = make_case(shape, geometric, mean=2.0).X.astype(dtype)
    expected = solve(Primal(X), 3, solver=solver, random_state=0)
    rep = Primal(backend.asarray(X))
    spectrum = solve(rep, 3, solver=solver, random_state=0)
    assert_close(backend.numpy(spectrum.values), expected.values, "eigenvalue", dtype)
    assert_close(backend.numpy(spectrum.vectors), expected.vectors, "vector", dtype)
    y, residual = projected(rep, spectrum, backend.asarray(X))
    y0, residual0 = projected(Primal(X), expected, X)
    assert_close(backend.numpy(y), y0, "vector", dtype)
    assert_close(backend.numpy(residual), residual0, "vector", dtype, scale=float(np.max(y0**2)))


@pytest.mark.parametrize("kernel", [Linear(), RBF(gamma=0.5)], ids=["linear", "rbf"])
def test_dual_is_the_same_in_every_library(backend, kernel):
    X = make_case("tall", geometric).X
    expected = solve(Dual(X, kernel), 3, random_state=0)
    rep = Dual(backend.asarray(X), kernel)
    spectrum = solve(rep, 3, random_state=0)
    assert_close(backend.numpy(spectrum.values), expected.values, "eigenvalue")
    y = projected(rep, spectrum, backend.asarray(X)).coordinates
    assert_close(backend.numpy(y), projected(Dual(X, kernel), expected, X).coordinates, "vector")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("model", [PCA(n_components=3), PPCA(n_components=3)], ids=["PCA", "PPCA"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_estimator_is_the_same_in_every_library(backend, dtype, shape, model, weighted):
    from sklearn.base import clone

    X = make_case(shape, geometric, mean=2.0).X.astype(dtype)
    w = np.random.default_rng(0).uniform(0.5, 2, len(X)).astype(dtype) if weighted else None
    expected = clone(model).fit(X, sample_weight=w)
    fitted = clone(model).fit(
        backend.asarray(X), sample_weight=None if w is None else backend.asarray(w)
    )
    new = X[:4] + dtype(0.5)
    for name in ("transform", "reconstruct", "score_samples"):
        ours = getattr(fitted, name)(backend.asarray(new))
        theirs = getattr(expected, name)(new)
        assert backend.owns(ours), f"{name} returned {type(ours)}"
        if name != "score_samples":  # a density may well be more precise than the point
            assert backend.numpy(ours).dtype == dtype, f"{name}: {backend.numpy(ours).dtype}"
        assert_close(backend.numpy(ours), theirs, "density", dtype)
    for name in ("mean_", "components_", "explained_variance_", "explained_variance_ratio_"):
        ours = getattr(fitted, name)
        assert backend.owns(ours), f"{name} is {type(ours)}"
        assert_close(backend.numpy(ours), getattr(expected, name), "vector", dtype)
    assert float(fitted.noise_variance_) == pytest.approx(
        float(expected.noise_variance_), rel=1e-4 if dtype == np.float32 else 1e-10
    )
    back = fitted.inverse_transform(fitted.transform(backend.asarray(new)))
    assert backend.owns(back)
    assert_close(
        backend.numpy(back), expected.inverse_transform(expected.transform(new)), "density", dtype
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_ppca_is_the_dense_model(shape, dtype):
    case = make_case(shape, geometric, mean=2.0)
    X = case.X.astype(dtype)
    expected = oracles.ppca(X, case.q)
    model = PPCA(n_components=case.q).fit(X)
    C = expected.covariance
    assert_close(model.mean_, expected.mean, "covariance", dtype)
    assert_close(model.get_covariance(), C, "covariance", dtype)
    assert_close(model.get_precision() @ C, np.eye(case.d), "vector", dtype)
    assert_close(
        model.loadings_ @ model.loadings_.T, expected.W @ expected.W.T, "covariance", dtype
    )
    assert_close(model.noise_variance_, expected.sigma2, "covariance", dtype, scale=case.ell[0])
    new = X[:5] + dtype(0.3)
    assert_close(model.reconstruct(new), oracles.reconstruction(new, expected), "vector", dtype)
    mean, cov = (
        oracles.predictive_covariance(new, expected),
        model.posterior_predictive(new, parameters="fixed")[1],
    )
    assert_close(cov, mean, "covariance", dtype)
    assert_close(
        model.posterior_predictive(new)[0],
        oracles.reconstruction(new, expected),
        "vector",
        dtype,
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_posterior_is_the_dense_posterior(shape):
    case = make_case(shape, geometric, mean=2.0)
    model = PPCA(n_components=case.q).fit(case.X)
    own = oracles.Model(model.mean_, model.loadings_, float(model.noise_variance_))
    new = case.X[:5] + 0.3
    mean, cov = model.posterior(new, parameters="fixed")
    expected_mean, expected_cov = oracles.posterior(new, own)
    assert_close(mean, expected_mean, "covariance")
    assert np.shape(cov) == (5, case.q, case.q)
    for i in range(5):
        assert_close(cov[i], expected_cov, "covariance")
    assert_close(model.transform(new), expected_mean, "covariance")
    assert_close(model.inverse_transform(mean), mean @ own.W.T + own.mean, "covariance")


@pytest.mark.parametrize("shape", SHAPES)
def test_reconstruction_std_is_that_of_the_noise_free_signal(shape):
    case = make_case(shape, geometric)
    model = PPCA(n_components=case.q).fit(case.X)
    own = oracles.ppca(case.X, case.q)
    fill, std = model.reconstruct(case.X[:4], return_std=True, parameters="fixed")
    assert_close(fill, model.reconstruct(case.X[:4]), "exact")
    expected = np.sqrt(np.diag(oracles.signal_covariance(case.X, own)))
    assert_close(
        np.broadcast_to(std, (4, case.d)), np.broadcast_to(expected, (4, case.d)), "vector"
    )


# --- scikit-learn ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "solver",
    ["auto", "full", "covariance_eigh", "arpack", "randomized", *SOLVER_NAMES],
)
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_pca_is_scikit_learns_full_pca(shape, whiten, solver):
    from sklearn.decomposition import PCA as Reference

    X = make_case(shape, geometric, mean=2.0).X
    ours = PCA(n_components=3, whiten=whiten, svd_solver=solver, random_state=0).fit(X)
    theirs = Reference(n_components=3, whiten=whiten, svd_solver="full").fit(X)
    for name in (
        "components_",
        "explained_variance_",
        "explained_variance_ratio_",
        "singular_values_",
    ):
        assert_close(getattr(ours, name), getattr(theirs, name), "vector")
    assert_close(ours.transform(X), theirs.transform(X), "vector")
    assert_close(
        ours.inverse_transform(ours.transform(X)),
        theirs.inverse_transform(theirs.transform(X)),
        "vector",
    )


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_pca_density_is_the_dense_one_whether_whitened_or_not(shape, whiten):
    # scikit-learn averages the noise over min(n, d) - q, and lets `whiten` change the covariance
    case = make_case(shape, geometric, mean=2.0)
    model = PCA(n_components=3, whiten=whiten).fit(case.X)
    S = oracles.covariance(case.X) * case.n / (case.n - 1)
    ell, V = oracles.eigh_descending(S)
    sigma2 = ell[3:].mean()
    C = (V[:, :3] * (ell[:3] - sigma2)) @ V[:, :3].T + sigma2 * np.eye(case.d)
    assert_close(model.noise_variance_, sigma2, "covariance")
    assert_close(model.get_covariance(), C, "covariance")
    assert_close(model.get_precision() @ C, np.eye(case.d), "vector")
    new = case.X[:6] + 0.2
    assert_close(model.score_samples(new), oracles.log_density(new, case.X.mean(0), C), "density")
    assert model.score(new) == pytest.approx(np.mean(model.score_samples(new)))


# --- EM -------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", [geometric, harmonic, BENIGN[4]], ids=lambda k: k.__name__)
def test_em_at_convergence_is_the_closed_form(shape, kind):
    case = make_case(shape, kind, q=2, mean=1.0)
    closed = PPCA(n_components=2).fit(case.X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # tol=0 asks for all it can give
        em = PPCA(n_components=2, method="em", tol=0.0, max_iter=3000, random_state=0).fit(case.X)
    W, W_em = np.asarray(closed.loadings_), np.asarray(em.loadings_)
    assert_close(W_em @ W_em.T, W @ W.T, "em")
    assert_close(em.noise_variance_, closed.noise_variance_, "em")
    assert_close(em.explained_variance_, closed.explained_variance_, "em")
    assert_close(em.loglikelihood_, closed.loglikelihood_, "em")
    C = np.asarray(em.components_) @ np.asarray(em.components_).T
    assert_close(C, np.eye(2), "orthonormal")


def test_em_with_weights_is_the_weighted_closed_form():
    case = make_case("tall", geometric, q=2)
    w = np.random.default_rng(0).uniform(0, 3, case.n)
    closed = PPCA(n_components=2).fit(case.X, sample_weight=w)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        em = PPCA(n_components=2, method="em", tol=0.0, max_iter=3000, random_state=0)
        em.fit(case.X, sample_weight=w)
    assert_close(em.get_covariance(), closed.get_covariance(), "em")
    assert_close(em.loglikelihood_, closed.loglikelihood_, "em")


@pytest.mark.slow
def test_em_from_every_seed_reaches_the_same_maximum():
    X = make_case("tall", geometric, q=2).X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = [
            PPCA(n_components=2, method="em", tol=0.0, max_iter=3000, random_state=s).fit(X)
            for s in range(4)
        ]
    for fit in fits[1:]:
        assert_close(fit.get_covariance(), fits[0].get_covariance(), "em")
