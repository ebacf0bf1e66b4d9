"""What must not matter does not: rotation, origin, units, order, multiplicity, chunks, memory."""

from functools import cache
from inspect import signature

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from dualpca import PCA, PPCA, BayesianPCA, FactorAnalysis, MixturePPCA, RobustPPCA
from dualpca.kernels import RBF
from dualpca.operators.dual import Dual
from dualpca.operators.primal import Primal
from dualpca.solvers import solve
from dualpca.solvers.base import SOLVERS
from tests import oracles
from tests.conftest import rest_slow
from tests.spectra import basis, cases, geometric, harmonic, make_case
from tests.tolerances import assert_close, assert_log_density

# Cases are drawn by their spectrum: a column may happen to have hardly a share in it.
pytestmark = pytest.mark.filterwarnings("ignore::dualpca.errors.ScaleWarning")

ESTIMATORS = pytest.mark.parametrize("estimator", [PCA, PPCA])


def fit(estimator, X, q, **fit_params):
    return estimator(n_components=q).fit(X, **fit_params)


def assert_same_model(a, b, X, what="covariance", dtype=np.float64):
    """Assert that two fitted models are the same: parameters and densities."""
    assert_close(a.mean_, b.mean_, what, dtype, scale=np.max(np.abs(X)))
    assert_close(a.get_covariance(), b.get_covariance(), what, dtype)
    assert_close(
        a.noise_variance_, b.noise_variance_, what, dtype, scale=np.max(b.explained_variance_)
    )
    assert_close(a.explained_variance_, b.explained_variance_, what, dtype)
    assert_close(a.explained_variance_ratio_, b.explained_variance_ratio_, what, dtype)
    assert_log_density(a.score_samples(X), b.score_samples(X), X.shape[1], dtype)


# --- space ----------------------------------------------------------------------------

ANSWERS = {
    # answer to the powers of the unit in what it returns, and whether the first moves with X
    "transform": ("transform", {}, (0,), False),
    "posterior": ("posterior", {}, (0, 0), False),
    "posterior, fixed": ("posterior", {"parameters": "fixed"}, (0, 0), False),
    "posterior, estimated": ("posterior", {"parameters": "estimated"}, (0, 0), False),
    "reconstruct": ("reconstruct", {"return_std": True, "parameters": "fixed"}, (1, 1), True),
    "reconstruct, estimated": (
        "reconstruct",
        {"return_std": True, "parameters": "estimated"},
        (1, 1),
        True,
    ),
    "impute": ("impute", {"return_std": True, "parameters": "fixed"}, (1, 1), True),
    "impute, bootstrap": ("impute", {"return_std": True, "parameters": "bootstrap"}, (1, 1), True),
}
SHIFT = 1e2 * np.random.default_rng(1).normal(size=6)
ANSWERING = {
    "PCA": (PCA(2), 0.0),
    "PPCA": (PPCA(2), 0.0),
    "PPCA, missing": (PPCA(2, tol=1e-10, max_iter=5000), 0.15),
    "FactorAnalysis": (FactorAnalysis(2, tol=1e-10, max_iter=5000), 0.0),
    "FactorAnalysis, missing": (FactorAnalysis(2, tol=1e-10, max_iter=5000), 0.15),
    "BayesianPCA": (BayesianPCA(2), 0.0),
    "BayesianPCA, missing": (BayesianPCA(2, tol=1e-10, max_iter=5000), 0.15),
    "RobustPPCA, missing": (RobustPPCA(2, tol=1e-10, max_iter=5000), 0.15),
}


@cache
def rows_and_fit(name, unit):
    """Return rows moved and in another unit, and a fit to them."""
    estimator, share = ANSWERING[name]
    rng = np.random.default_rng(0)
    noise = rng.uniform(0.7, 1.3, 6) * rng.normal(size=(120, 6))
    X = rng.normal(size=(120, 2)) @ rng.uniform(-2, 2, (2, 6)) + noise
    X[rng.random(X.shape) < share] = np.nan
    X = X if unit == 1 else (X + SHIFT) * unit
    return X, clone(estimator).fit(X)


def accepts(estimator, method, options):
    """Return True if an estimator has a method with such options."""
    call = getattr(estimator, method, None)
    return call is not None and set(options) <= set(signature(call).parameters)


@pytest.mark.parametrize("unit", [1e-4, rest_slow([1e3], [])[0]])
@pytest.mark.parametrize(
    ("name", "answer"),
    [
        (name, answer)
        for name, (estimator, _) in ANSWERING.items()
        for answer, (method, options, *_) in ANSWERS.items()
        if accepts(estimator, method, options)
    ],
)
def test_answers_follow_the_origin_and_the_unit_of_the_rows(name, answer, unit):
    """What is published of a row in other units is the same in these units, deviations included."""
    method, options, powers, moves = ANSWERS[answer]
    (X, model), (moved_rows, moved) = rows_and_fit(name, 1), rows_and_fit(name, unit)
    if name == "PCA":
        powers = (1,)  # coordinates, not latents
    expected, found = (
        getattr(model, method)(X, **options),
        getattr(moved, method)(moved_rows, **options),
    )
    one = not isinstance(expected, tuple)
    expected, found = ([expected], [found]) if one else (list(expected), list(found))
    if moves:
        expected[0] = expected[0] + SHIFT
    assert len(found) == len(powers)
    for before, after, power in zip(expected, found, powers, strict=True):
        scale = np.abs(before).max()
        np.testing.assert_allclose(after / unit**power, before, rtol=1e-4, atol=1e-5 * scale)


@ESTIMATORS
@given(case=cases(gapped=True))
def test_rotation_rotates_the_model(estimator, case):
    Q = basis(case.d, case.d, np.random.default_rng(5))
    a, b = fit(estimator, case.X, case.q), fit(estimator, case.X @ Q, case.q)
    assert_close(b.explained_variance_, a.explained_variance_, "covariance")
    if case.ell[case.q - 1] - case.ell[case.q] > 0.01 * case.ell[case.q - 1]:
        assert_close(b.get_covariance(), Q.T @ a.get_covariance() @ Q, "vector")
        assert_close(b.reconstruct(case.X @ Q), a.reconstruct(case.X) @ Q, "vector")
        assert_log_density(b.score_samples(case.X @ Q), a.score_samples(case.X), case.d)


@ESTIMATORS
@pytest.mark.parametrize("shape", ["tall", "wide", "square"])
@pytest.mark.parametrize("offset", [1.0, 1e3, 1e6])
def test_translation_moves_only_the_mean(estimator, shape, offset):
    case = make_case(shape, geometric, q=3, mean=0.0)
    shift = offset * np.random.default_rng(1).standard_normal(case.d)
    a, b = fit(estimator, case.X, 3), fit(estimator, case.X + shift, 3)
    assert_close(b.mean_, a.mean_ + shift, "covariance")
    assert_close(b.get_covariance(), a.get_covariance(), "offset")
    assert_close(b.noise_variance_, a.noise_variance_, "offset")
    assert_close(b.transform(case.X + shift), a.transform(case.X), "offset")
    moved, expected = b.score_samples(case.X + shift), a.score_samples(case.X)
    assert_close(moved, expected, "offset", scale=np.max(np.abs(expected)) + case.d)


@pytest.mark.parametrize("solver", sorted(SOLVERS))
@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_every_solver_survives_a_large_offset(shape, solver):
    case = make_case(shape, geometric, q=3, mean=0.0)
    spectrum = solve(Primal(case.X + 1e6), 3, solver=solver, random_state=0)
    assert_close(spectrum.values, case.n * case.ell[:3], "offset")
    assert_close(spectrum.trace, case.n * case.ell.sum(), "offset")


@ESTIMATORS
@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_float32_survives_an_offset_of_a_thousand_deviations(estimator, shape):
    # the dense reference sees the same rounded data: that rounding is not the library's fault
    X = (make_case(shape, geometric, q=3, mean=0.0).X + 1e3).astype(np.float32)
    ell = oracles.eigh_descending(oracles.covariance(X))[0]
    model = fit(estimator, X, 3)
    n = len(X) if estimator is PPCA else len(X) - 1
    assert_close(model.explained_variance_, ell[:3] * len(X) / n, "density", np.float32)


@ESTIMATORS
@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1e8, 1e30])
def test_scale_scales_the_model(estimator, scale):
    case = make_case("tall", geometric, q=2, mean=2.0)
    a, b = fit(estimator, case.X, 2), fit(estimator, case.X * scale, 2)
    assert_close(b.components_, a.components_, "vector")
    assert_close(np.asarray(b.explained_variance_) / scale**2, a.explained_variance_, "covariance")
    assert_close(float(b.noise_variance_) / scale**2, float(a.noise_variance_), "covariance")
    assert_close(b.explained_variance_ratio_, a.explained_variance_ratio_, "covariance")
    assert_log_density(
        b.score_samples(case.X * scale),
        np.asarray(a.score_samples(case.X)) - case.d * np.log(scale),
        case.d,
    )


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**-20, 2.0**20, 2.0**100])
def test_units_do_not_change_the_course_of_em(scale):
    # powers of two scale without rounding: a stopping rule that asks |loglikelihood| would show
    case = make_case("tall", geometric, q=2, mean=2.0)
    options = {"n_components": 2, "method": "em", "random_state": 0}
    a, b = PPCA(**options).fit(case.X), PPCA(**options).fit(case.X * scale)
    assert b.n_iter_ == a.n_iter_
    assert_close(b.get_covariance() / scale**2, a.get_covariance(), "vector")


@ESTIMATORS
@given(case=cases(gapped=True), seed=st.integers(0, 100))
def test_row_order_does_not_matter(estimator, case, seed):
    order = np.random.default_rng(seed).permutation(case.n)
    assert_same_model_where_unique(estimator, case, case.X[order], np.arange(case.d))


@ESTIMATORS
@given(case=cases(gapped=True), seed=st.integers(0, 100))
def test_column_order_only_renames(estimator, case, seed):
    order = np.random.default_rng(seed).permutation(case.d)
    assert_same_model_where_unique(estimator, case, case.X[:, order], order)


def assert_same_model_where_unique(estimator, case, X, columns):
    """Compare the fit to ``X`` with the fit to case.X, its columns in the order ``columns``."""
    a, b = fit(estimator, case.X, case.q), fit(estimator, X, case.q)
    assert_close(b.mean_, a.mean_[columns], "covariance", scale=np.max(np.abs(X)))
    assert_close(b.explained_variance_, a.explained_variance_, "covariance")
    assert_close(
        np.sum(b.score_samples(X)), np.sum(a.score_samples(case.X)), "density", scale=X.size * 10.0
    )
    if case.ell[case.q - 1] - case.ell[case.q] > 0.01 * case.ell[case.q - 1]:
        assert_close(b.get_covariance(), a.get_covariance()[np.ix_(columns, columns)], "vector")


# --- multiplicity ---------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["tall", "wide", "square"])
def test_integer_weights_are_repeated_rows_for_ppca(shape):
    case = make_case(shape, geometric, q=2, mean=2.0)
    counts = np.random.default_rng(2).integers(1, 4, case.n)
    repeated = oracles.repeat(case.X, counts)
    a = PPCA(n_components=2).fit(case.X, sample_weight=counts)
    b = PPCA(n_components=2).fit(repeated)
    assert_same_model(a, b, case.X)
    assert_close(a.loglikelihood_, b.loglikelihood_, "density")


@pytest.mark.parametrize("shape", ["tall", "wide", "square"])
def test_integer_weights_are_repeated_rows_for_pca(shape):
    # frequency weights: the divisor is sum(w) - 1
    case = make_case(shape, geometric, q=2, mean=2.0)
    counts = np.random.default_rng(2).integers(1, 4, case.n)
    a = PCA(n_components=2).fit(case.X, sample_weight=counts)
    b = PCA(n_components=2).fit(oracles.repeat(case.X, counts))
    assert_same_model(a, b, case.X)
    assert_close(a.components_, b.components_, "vector")


@ESTIMATORS
@pytest.mark.parametrize("shape", ["tall", "wide", "square"])
def test_zero_weight_is_an_absent_row(estimator, shape):
    case = make_case(shape, geometric, mean=2.0)
    w = np.ones(case.n)
    w[::4] = 0.0
    X = case.X.copy()
    X[::4] += 1e3  # whatever stands there
    a = fit(estimator, X, 2, sample_weight=w)
    assert_same_model(a, fit(estimator, case.X[w > 0], 2), case.X)


@ESTIMATORS
@pytest.mark.parametrize("shape", ["tall", "wide", "square"])
def test_unit_weights_are_no_weights(estimator, shape):
    case = make_case(shape, geometric, mean=2.0)
    a = fit(estimator, case.X, 2, sample_weight=np.ones(case.n))
    assert_same_model(a, fit(estimator, case.X, 2), case.X)


@pytest.mark.parametrize("shape", ["tall", "wide", "square"])
@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_every_solver_honours_weights(shape, solver):
    case = make_case(shape, geometric, mean=2.0)
    w = np.random.default_rng(2).uniform(0, 3, case.n)
    expected = w.sum() * oracles.eigh_descending(oracles.covariance(case.X, w))[0]
    spectrum = solve(Primal(case.X, w), 3, solver=solver, random_state=0)
    assert_close(spectrum.values, expected[:3], "eigenvalue")
    assert_close(spectrum.trace, expected.sum(), "eigenvalue")


@pytest.mark.parametrize("factor", [1e-200, 1e-3, 1e3, 1e150])
def test_weights_scaled_by_a_constant_give_the_same_ppca(factor):
    case = make_case("tall", geometric, q=2, mean=2.0)
    w = np.random.default_rng(2).uniform(0.1, 3, case.n)
    a = PPCA(n_components=2).fit(case.X, sample_weight=w)
    b = PPCA(n_components=2).fit(case.X, sample_weight=factor * w)
    assert_same_model(a, b, case.X)


@pytest.mark.parametrize("shape", ["tall", "wide", "square"])
def test_standardised_pca_does_not_see_units(shape):
    case = make_case(shape, geometric, mean=2.0)
    units = np.geomspace(1e-6, 1e6, case.d)
    a = PCA(n_components=3, standardize=True).fit(case.X)
    b = PCA(n_components=3, standardize=True).fit(case.X * units)
    assert_close(b.explained_variance_, a.explained_variance_, "covariance")
    assert_close(b.transform(case.X * units), a.transform(case.X), "vector")
    assert_close(b.reconstruct(case.X * units) / units, a.reconstruct(case.X), "vector")
    jacobian = np.log(units).sum()
    assert_log_density(b.score_samples(case.X * units) + jacobian, a.score_samples(case.X), case.d)
    plain = PCA(n_components=3).fit((case.X - case.X.mean(0)) / case.X.std(0))
    assert_close(a.components_, plain.components_, "vector")
    assert_close(a.explained_variance_, plain.explained_variance_, "vector")


def test_standardised_density_and_samples_are_in_the_units_of_the_data():
    case = make_case("tall", geometric, mean=2.0)
    X = case.X * np.array([1.0, 10.0, 0.1, 1.0, 5.0, 2.0])
    model = PCA(n_components=2, standardize=True).fit(X)
    expected = oracles.log_density(X, X.mean(0), model.get_covariance())
    assert_log_density(model.score_samples(X), expected, case.d)
    samples, C = np.asarray(model.sample(20_000, random_state=0)), model.get_covariance()
    error = np.abs(np.cov(samples.T) - C)
    assert np.all(error <= 5 * np.sqrt((np.outer(np.diag(C), np.diag(C)) + C**2) / 20_000))
    half = PCA(n_components=2, standardize=True).partial_fit(X[:15]).partial_fit(X[15:])
    assert_close(half.get_covariance(), C, "covariance")


# --- chunks ---------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097, 8192, 8193])
@pytest.mark.parametrize("weighted", [False, True])
def test_block_seams_leave_no_trace(n, weighted):
    # block sizes are the library's own affair: these counts straddle the plausible ones
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n + 1, 3)) * [3, 2, 1] + 100.0
    w = rng.uniform(0, 2, n + 1) if weighted else None
    rep, spectrum = Primal(X, w), solve(Primal(X, w), 2)
    S = rep.n * oracles.covariance(X, w)
    assert_close(rep.dense(), S, "covariance")
    y, residual = rep.frame.project(spectrum.vectors, X)
    xc, V = X - oracles.mean(X, w), np.asarray(spectrum.vectors)
    assert_close(y, xc @ V, "covariance")
    expected = ((xc - xc @ V @ V.T) ** 2).sum(1)
    assert_close(residual, expected, "covariance", scale=np.max(xc**2))


@pytest.mark.parametrize("n", [511, 513, 1025])
def test_kernel_block_seams_leave_no_trace(n):
    X = np.random.default_rng(n).standard_normal((n, 3))
    rep = Dual(X, RBF(gamma=0.5))
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(-1))
    Kc = K - K.mean(0) - K.mean(1)[:, None] + K.mean()
    V = np.random.default_rng(0).standard_normal((n, 2))
    assert_close(rep @ V, Kc @ V, "eigenvalue")
    assert_close(rep.trace, np.trace(Kc), "eigenvalue")


def chunks(X, cuts):
    return [c for c in np.split(np.arange(len(X)), sorted(cuts)) if len(c)]


@ESTIMATORS
@pytest.mark.parametrize("weighted", [False, True])
@given(case=cases(gapped=True, shapes=("tall", "wide", "square")), data=st.data())
def test_partial_fit_over_any_chunks_is_fit(estimator, weighted, case, data):
    cuts = data.draw(st.lists(st.integers(0, case.n), max_size=5))
    w = np.random.default_rng(0).uniform(0.5, 2, case.n) if weighted else None
    model = estimator(n_components=case.q)
    for rows in chunks(case.X, cuts):
        model.partial_fit(case.X[rows], sample_weight=None if w is None else w[rows])
    whole = estimator(n_components=case.q).fit(case.X, sample_weight=w)
    scale = np.max(np.abs(case.X)) + np.max(whole.explained_variance_)
    assert_close(model.mean_, whole.mean_, "covariance", scale=np.max(np.abs(case.X)))
    assert_close(model.explained_variance_, whole.explained_variance_, "covariance", scale=scale)
    total = np.sum(model.score_samples(case.X)), np.sum(whole.score_samples(case.X))
    assert_close(total[0], total[1], "density", scale=abs(total[1]) + case.X.size)


@ESTIMATORS
def test_partial_fit_row_by_row_is_fit(estimator):
    case = make_case("tall", geometric, q=3, mean=2.0)
    model = estimator(n_components=3)
    for i in range(case.n):
        model.partial_fit(case.X[i : i + 1])
    assert_same_model(model, fit(estimator, case.X, 3), case.X)
    assert_close(model.transform(case.X), fit(estimator, case.X, 3).transform(case.X), "vector")


@ESTIMATORS
def test_partial_fit_survives_a_large_offset(estimator):
    case = make_case("tall", geometric, q=2, mean=0.0)
    model = estimator(n_components=2)
    for rows in np.array_split(case.X + 1e6, 7):
        model.partial_fit(rows)
    assert_close(model.explained_variance_, fit(estimator, case.X, 2).explained_variance_, "offset")


@ESTIMATORS
def test_partial_fit_survives_a_drifting_mean(estimator):
    # every chunk has its own mean, far from the first one's: a provisional shift ages badly
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((20, 4)) + 300.0 * k for k in range(6)])
    model = estimator(n_components=2)
    for rows in np.split(X, 6):
        model.partial_fit(rows)
    assert_same_model(model, fit(estimator, X, 2), X)


@ESTIMATORS
def test_fit_forgets_what_partial_fit_saw(estimator):
    case = make_case("tall", geometric, q=2)
    model = estimator(n_components=2).partial_fit(case.X + 7).fit(case.X)
    assert_same_model(model, fit(estimator, case.X, 2), case.X, "exact")


@ESTIMATORS
def test_fit_transform_is_fit_then_transform(estimator):
    case = make_case("tall", geometric, q=2)
    for whiten in [False, True] if estimator is PCA else [None]:
        options = {} if whiten is None else {"whiten": whiten}
        model = estimator(n_components=2, **options)
        Z = model.fit_transform(case.X)
        assert_close(model.transform(case.X), Z, "exact")


# --- repeatability --------------------------------------------------------------------


@pytest.mark.parametrize("solver", sorted(SOLVERS))
@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_same_seed_same_bits(solver, shape):
    X = make_case(shape, harmonic).X
    a, b = (solve(Primal(X), 3, solver=solver, random_state=7) for _ in range(2))
    assert np.array_equal(a.values, b.values) and np.array_equal(a.vectors, b.vectors)


def test_same_seed_same_em():
    X = make_case("tall", geometric).X
    a, b = (PPCA(n_components=2, method="em", random_state=3).fit(X) for _ in range(2))
    assert np.array_equal(a.loglikelihoods_, b.loglikelihoods_)
    assert np.array_equal(a.components_, b.components_)


def test_fitting_does_not_touch_the_global_generator():
    X = make_case("wide", geometric).X
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    PCA(n_components=2, svd_solver="krylov", random_state=0).fit(X)
    PPCA(n_components=2, method="em", random_state=0).fit(X).sample(3, random_state=0)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@ESTIMATORS
@pytest.mark.parametrize("shape", ["tall", "wide", "square"])
def test_largest_entry_of_every_component_is_positive(estimator, shape):
    case = make_case(shape, geometric, mean=1.0)
    for X in (case.X, -case.X):
        components = np.asarray(fit(estimator, X, 3).components_)
        largest = components[np.arange(3), np.argmax(np.abs(components), axis=1)]
        assert np.all(largest > 0)


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_every_solver_gives_the_same_signs(solver):
    X = make_case("wide", geometric).X
    expected = solve(Primal(X), 3, solver="dense").vectors
    spectrum = solve(Primal(X), 3, solver=solver, random_state=1)
    assert_close(spectrum.vectors, expected, "vector")


@ESTIMATORS
def test_rows_are_transformed_one_by_one_as_together(estimator):
    case = make_case("tall", geometric, q=2)
    model = fit(estimator, case.X, 2)
    for name in ("transform", "score_samples", "reconstruct"):
        together = np.asarray(getattr(model, name)(case.X))
        alone = np.concatenate([getattr(model, name)(case.X[i : i + 1]) for i in range(case.n)])
        assert_close(alone, together, "covariance")


def test_a_fitted_attribute_that_is_set_changes_the_model():
    X = np.random.default_rng(0).normal(size=(30, 4)) * [4.0, 3.0, 2.0, 1.0]
    model = PCA(2).fit(X)
    wanted = -model.transform(X)
    model.components_ = -model.components_
    np.testing.assert_allclose(model.transform(X), wanted)
    with pytest.raises(AttributeError, match="cannot be set"):
        model.n_components_ = 3


def test_steps_of_a_stream_with_missing_values_add_up():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5)) * [3, 2, 1, 1, 1]
    X[rng.random(X.shape) < 0.1] = np.nan
    model, counts = PPCA(2), []
    for rows in np.array_split(X, 4):
        model.partial_fit(rows)
        counts.append(model.n_iter_)
    assert counts[0] >= 1 and np.all(np.diff(counts) >= 1)


# --- order, where a fit draws its start -----------------------------------------------

DRAWN = {
    "factors": (FactorAnalysis(2), 1e-6),
    "ppca": (PPCA(2, tol=1e-9, max_iter=9000), 1e-6),
    "bayesian": (BayesianPCA(3, tol=1e-8, max_iter=9000), 1e-4),
    "mixture": (MixturePPCA(3, 1), 1e-9),
    "mixture of planes": (MixturePPCA(2, 2, random_state=1), 1e-9),
}


def overlapping(share, n=90, d=6):
    """Return rows of three groups that overlap, with gaps: the likelihood has several maxima."""
    rng = np.random.default_rng(3)
    loadings = rng.normal(size=(3, 2, d))
    centre, group = 1.5 * rng.normal(size=(3, d)), rng.integers(3, size=n)
    X = np.einsum("nk,nkd->nd", rng.normal(size=(n, 2)), loadings[group]) + centre[group]
    X = X + rng.normal(size=(n, d)) * np.linspace(0.2, 1.0, d)
    X[rng.random(X.shape) < share] = np.nan
    return X[~np.isnan(X).all(axis=1)]


@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")
@pytest.mark.parametrize("share", [0.0, 0.15], ids=["complete", "missing"])
@pytest.mark.parametrize("name", DRAWN)
def test_order_of_columns_and_rows_does_not_matter(name, share):
    (model, within), X = DRAWN[name], overlapping(share)
    rng, density = np.random.default_rng(0), model.fit(X).score_samples(X)
    columns, rows = rng.permutation(X.shape[1]), rng.permutation(len(X))
    found = model.fit(X[:, columns]).score_samples(X[:, columns])
    np.testing.assert_allclose(found, density, atol=within)
    np.testing.assert_allclose(model.fit(X[rows]).score_samples(X), density, atol=within)


@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")
def test_scores_of_factors_do_not_depend_on_the_number_of_threads():
    X, found = overlapping(0.2, n=300, d=9), []
    for threads in (1, 2):
        with threadpool_limits(threads):
            found.append(FactorAnalysis(2).fit(X).transform(X))
    np.testing.assert_allclose(*found, atol=3e-6)


def test_slow_factors_are_followed_to_their_maximum():
    # two columns that share a factor with hardly any other: EM crawls along a flat ridge
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3))
    X[:, 1] += 0.3 * X[:, 0]
    X[rng.random(X.shape) < 0.1] = np.nan
    X = X[~np.isnan(X).all(axis=1)]
    loose, tight = FactorAnalysis(1).fit(X), FactorAnalysis(1, tol=1e-6, max_iter=9000).fit(X)
    assert tight.loglikelihood_ - loose.loglikelihood_ < 1e-6
    np.testing.assert_allclose(loose.get_covariance(), tight.get_covariance(), atol=1e-4)
