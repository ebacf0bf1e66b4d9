"""Whatever comes in: a clear error or the right answer, never NaN, never a changed input."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from dualpca import (
    PCA,
    PPCA,
    Batches,
    BayesianPCA,
    KernelPCA,
    MixturePPCA,
    ProbabilisticKernelPCA,
)
from dualpca.gaussian.rules import given_noise, maximum_likelihood
from dualpca.kernels import RBF
from dualpca.operators.primal import Primal
from dualpca.preimages import FixedPoint, Span
from dualpca.solvers import solve
from tests.bad_input_cases import ATTRIBUTES, BOTH, assert_same_fit, table
from tests.spectra import geometric, make_case
from tests.tolerances import assert_close

# twenty rows of noise hold nothing relevant, and BayesianPCA says so
pytestmark = pytest.mark.filterwarnings("ignore::dualpca.errors.SelectionWarning")


ALL = pytest.mark.parametrize("estimator", [PCA, PPCA, BayesianPCA, KernelPCA])


EVERY = pytest.mark.parametrize("estimator", [PCA, PPCA, BayesianPCA, KernelPCA, MixturePPCA])


def assert_no_nan(model, X=None):
    """Assert that no fitted attribute and no outcome holds NaN or infinity."""
    names = [*ATTRIBUTES, "loadings_", "loglikelihood_"] if isinstance(model, PPCA) else ATTRIBUTES
    for name in names:
        assert np.all(np.isfinite(np.asarray(getattr(model, name), dtype=float))), name
    if X is not None:
        for name in ("transform", "reconstruct", "score_samples"):
            assert np.all(np.isfinite(np.asarray(getattr(model, name)(X), dtype=float))), name


def assert_density_or_refusal(model, X):
    """Assert that a model without noise has a density without NaN, or says that it has none."""
    try:
        density = model.score_samples(X)
    except ValueError as error:
        assert "density" in str(error) or "noise" in str(error)
    else:
        assert not np.any(np.isnan(density))


def error_or_finite(estimator, X, match, **options):
    """Fit; return the model, or None after an error whose message matches."""
    try:
        model = estimator(**options).fit(X)
    except (ValueError, TypeError) as error:
        assert any(word in str(error).lower() for word in match), f"unclear: {error}"
        return None
    assert_no_nan(model)
    return model


# --- not a table of finite numbers ----------------------------------------------------

WRONG = {
    "text": ([["a", "b"], ["c", "d"], ["e", "f"]], "convert|numeric|string|dtype"),
    "text array": (np.array([["a", "b"], ["c", "d"]]), "convert|numeric|string|dtype"),
    "mixed": ([[1.0, "two"], [3.0, 4.0]], "convert|numeric|string|dtype"),
    "empty": (np.empty((0, 3)), r"0 sample|minimum|at least|empty"),
    "no columns": (np.empty((5, 0)), r"0 feature|minimum|at least|empty"),
    "empty list": ([], "2D|1D|empty|sample"),
    "one dimension": (np.arange(5.0), "2D|1D|dimension"),
    "scalar": (3.0, "2D|0D|scalar|array"),
    "three dimensions": (np.ones((3, 4, 5)), "dim"),
    "infinity": (np.where(np.eye(6, 4) > 0, np.inf, 1.0), "[Ii]nf"),
    "complex": (np.eye(6, 4) * 1j + np.arange(4), "[Cc]omplex"),
    "None": (None, "None|array|X"),
    "dictionary": ({"a": [1.0, 2.0]}, "dict|array|number|float|2D|0D|scalar"),
    "ragged": ([[1.0, 2.0], [3.0]], "inhomogeneous|sequence|shape|ragged"),
}


@EVERY
@pytest.mark.parametrize("name", WRONG)
def test_not_a_table_is_a_clear_error(estimator, name):
    X, message = WRONG[name]
    with pytest.raises((ValueError, TypeError), match=message):
        estimator(n_components=1).fit(X)


@pytest.mark.parametrize(
    "name", ["text", "infinity", "complex", "one dimension", "three dimensions"]
)
@BOTH
@pytest.mark.parametrize("method", ["transform", "score_samples", "reconstruct", "partial_fit"])
def test_not_a_table_is_a_clear_error_after_fit_too(estimator, method, name):
    X, message = WRONG[name]
    model = estimator(n_components=1).partial_fit(table(d=4))
    with pytest.raises((ValueError, TypeError), match=message):
        getattr(model, method)(X)


def test_nan_is_an_error_that_says_what_else_to_use():
    X = table()
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN") as caught:
        PCA(n_components=2).fit(X)
    if error_or_finite(PPCA, X, ["nan"], n_components=2) is not None:
        assert "PPCA" in str(caught.value)  # where PPCA takes NaN, PCA says so


@BOTH
def test_nan_in_new_points_is_an_error_or_finite(estimator):
    model, new = estimator(n_components=2).fit(table()), table(n=4)
    new[0, 0] = np.nan
    for name in ("transform", "score_samples", "reconstruct"):
        try:
            outcome = getattr(model, name)(new)
        except ValueError as error:
            assert "NaN" in str(error)
        else:
            assert np.all(np.isfinite(outcome)), name


@BOTH
def test_one_row_is_an_error_or_finite(estimator):
    error_or_finite(estimator, table(n=1), ["sample", "row", "component"], n_components=1)


@BOTH
def test_all_constant_is_an_error_or_finite(estimator):
    X = np.full((8, 3), 7.0)
    error_or_finite(estimator, X, ["constant", "varia", "rank", "zero"], n_components=1)


@pytest.mark.parametrize(
    "rule",
    ["evidence", "bic", "parallel", "white-noise", "gavish-donoho", "cv", "cv-rows", 0.9, None],
)
@pytest.mark.filterwarnings("ignore::dualpca.errors.SelectionWarning")  # that nothing was found
def test_choosing_on_constant_data_is_an_error_or_finite(rule):
    X = np.full((8, 3), 7.0)
    error_or_finite(PPCA, X, ["constant", "varia", "rank", "zero"], n_components=rule)


@BOTH
def test_one_column_is_an_error_or_right(estimator):
    X = table(d=1)
    model = error_or_finite(estimator, X, ["component", "rank", "feature"], n_components=1)
    if model is not None:
        divisor = len(X) if estimator is PPCA else len(X) - 1
        assert_close(model.get_covariance(), [[X.var() * len(X) / divisor]], "covariance")


# --- extreme scales -------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("scale", [1e200, 1e100, 1e-100, 1e-200])
def test_extreme_scale_is_an_error_or_right(estimator, scale):
    # variances of 1e400 and 1e-400 are beyond float64: only the scale-free part can be right
    X = table()
    words = [
        "overflow",
        "underflow",
        "scale",
        "large",
        "small",
        "range",
        "finite",
        "varia",
        "magnitude",
    ]
    model = error_or_finite(estimator, X * scale, words, n_components=2)
    if model is None:
        assert scale in (1e200, 1e-200), "variances of 1e200 and 1e-200 fit into float64"
        return
    plain = estimator(n_components=2).fit(X)
    assert_close(model.components_, plain.components_, "vector")
    assert_close(model.explained_variance_ratio_, plain.explained_variance_ratio_, "vector")
    assert np.all(np.isfinite(model.transform(X * scale)))
    if scale in (1e100, 1e-100):
        assert_no_nan(model, X * scale)
        expected = np.asarray(plain.score_samples(X)) - X.shape[1] * np.log(scale)
        assert_close(model.score_samples(X * scale), expected, "density")


@BOTH
def test_float32_extreme_scale_is_an_error_or_right(estimator):
    # 1e25 squared is beyond float32
    X = (table() * 1e25).astype(np.float32)
    words = ["overflow", "scale", "large", "range", "finite", "magnitude"]
    model = error_or_finite(estimator, X, words, n_components=2)
    if model is not None:
        plain = estimator(n_components=2).fit(table())
        assert_close(model.components_, plain.components_, "vector", np.float32)


@BOTH
@pytest.mark.filterwarnings("ignore::dualpca.errors.ScaleWarning")
def test_columns_of_very_different_scales_are_an_error_or_finite(estimator):
    # noise 1e-17 times the first variance: it may be called zero, not NaN
    X = table() * np.array([1e8, 1e4, 1.0, 1e-4, 1e-8])
    model = error_or_finite(estimator, X, ["rank", "noise"], n_components=2)
    if model is not None:
        assert_density_or_refusal(model, X)
        assert_close(model.explained_variance_ratio_[0], 1.0, "residual")


# --- arrays beside the table ----------------------------------------------------------

SPAN = Span(table(), RBF(gamma=0.1), np.eye(20)[:, :2], np.zeros(20))
VALUES = RBF(gamma=0.1)(table(4), SPAN.points)


def begun(B):
    return ProbabilisticKernelPCA(2, gamma=0.1, method="em", init=B, max_iter=1).fit(table())


BESIDE = {
    "coordinates to start from": (table(20, 2, 1), begun),
    "loadings to start from": (
        table(5, 2, 1),
        lambda W: PPCA(2, method="em", init=(W, 1.0), max_iter=1).fit(table()),
    ),
    "latent coordinates": (table(4, 2), lambda Y: FixedPoint().find(SPAN, Y)),
    "kernel values": (VALUES, lambda K: FixedPoint().find_values(SPAN, K)),
    "start of latents": (table(4), lambda X: FixedPoint().find(SPAN, table(4, 2), X)),
    "start of values": (table(4), lambda X: FixedPoint().find_values(SPAN, VALUES, X)),
}
"""Arrays that are given beside rows, with a call that accepts each."""

ANY_ROWS = {"latent coordinates", "kernel values"}
SPOILT = {
    **{
        str(v): lambda A, v=v: np.where(np.arange(A.size).reshape(A.shape) == 1, v, A)
        for v in (np.nan, np.inf, -np.inf)
    },
    "a row more": lambda A: np.vstack([A, A[:1]]),
    "a row less": lambda A: A[:-1],
    "a column more": lambda A: np.hstack([A, A[:, :1]]),
    "a column less": lambda A: A[:, :-1],
    "one dimension": lambda A: A[0],
    "three dimensions": lambda A: A[None],
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("name", BESIDE)
def test_one_wrong_entry_or_size_of_an_array_beside_the_table_is_refused(name, how):
    given, call = BESIDE[name]
    call(given)
    if how in ("a row more", "a row less") and name in ANY_ROWS:
        call(SPOILT[how](given))
    else:
        with pytest.raises(ValueError, match=r"must be|expected|shape|finite"):
            call(SPOILT[how](given))


# --- n_components and noise_variance --------------------------------------------------


@ALL
@pytest.mark.parametrize(
    "q", [-1, 1.5, -0.2, "nonsense", [2], {}, float("nan"), float("inf"), True, (1, 2), 2j]
)
def test_nonsense_n_components_is_a_clear_error(estimator, q):
    with pytest.raises((ValueError, TypeError), match="n_components"):
        estimator(n_components=q).fit(table())


@BOTH
@pytest.mark.parametrize("size", [(20, 5), (5, 20)])
def test_more_components_than_the_table_has_is_an_error(estimator, size):
    with pytest.raises(ValueError, match="n_components") as caught:
        estimator(n_components=6).fit(table(*size))
    assert "6" in str(caught.value) and "5" in str(caught.value)


def in_chunks(model, X):
    return model.partial_fit(X[:12]).partial_fit(X[12:])


WAYS = {
    "weights": lambda model, X: model.fit(X, sample_weight=np.ones(20)),
    "chunks": lambda model, X: model.fit(Batches([X[:12], X[12:]])),
    "a stream": in_chunks,
}


@pytest.mark.parametrize("estimator", [PCA, PPCA])
@pytest.mark.parametrize("q", [-1, 6, 1.5, "nonsense", [2], float("nan"), True])
@pytest.mark.parametrize("way", WAYS)
def test_impossible_n_components_is_a_clear_error_however_rows_come(way, q, estimator):
    with pytest.raises((ValueError, TypeError), match="n_components"):
        _ = WAYS[way](estimator(n_components=q), table()).components_


@pytest.mark.parametrize("estimator", [PCA, PPCA])
@pytest.mark.parametrize("rule", ["cv", "cv-rows", "cv-entries"])
def test_a_stream_refuses_rules_that_need_its_rows(rule, estimator):
    with pytest.raises(ValueError, match="needs dense rows, and partial_fit keeps none"):
        _ = in_chunks(estimator(n_components=rule), table()).components_


@BOTH
@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_more_components_than_the_rank_is_an_error_or_right(estimator, shape):
    case = make_case(shape, geometric, deficient=True)
    rank = np.count_nonzero(case.ell)
    model = error_or_finite(estimator, case.X, ["rank", "noise"], n_components=rank + 1)
    if model is not None:
        assert_close(model.reconstruct(case.X), case.X, "vector")
        assert_density_or_refusal(model, case.X)
        gram = np.asarray(model.components_) @ np.asarray(model.components_).T
        assert_close(gram, np.eye(rank + 1), "orthonormal")


@pytest.mark.parametrize("method", ["closed", "em"])
@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_as_many_components_as_the_rank_is_an_error_or_right(shape, method):
    # the likelihood has no maximum there: noise of 1e-15 is rounding error, not an estimate
    case = make_case(shape, geometric, deficient=True)
    options = {"n_components": np.count_nonzero(case.ell), "method": method, "random_state": 0}
    model = error_or_finite(PPCA, case.X, ["rank", "noise"], **options)
    if model is not None:
        assert float(model.noise_variance_) == 0
        assert_close(model.reconstruct(case.X), case.X, "vector")
        assert_density_or_refusal(model, case.X)


@pytest.mark.parametrize("noise", [-1.0, float("nan"), float("inf"), "small", True, [0.1], 1j])
@pytest.mark.parametrize("q", [None, 2])
def test_nonsense_noise_variance_is_a_clear_error(noise, q):
    with pytest.raises((ValueError, TypeError), match="noise_variance"):
        PPCA(n_components=q, noise_variance=noise).fit(table())


@pytest.mark.parametrize("q", [None, 2])
def test_noise_above_every_variance_is_an_error_or_isotropic(q):
    try:
        model = PPCA(n_components=q, noise_variance=1e3).fit(table())
    except ValueError as error:
        assert "noise_variance" in str(error) and "1000" in str(error).replace("1e+03", "1000")
    else:
        assert_close(model.get_covariance(), 1e3 * np.eye(5), "covariance")
        assert_no_nan(model, table())


def test_given_noise_between_two_requested_components_is_an_error_or_truncated():
    X = table()
    spectrum = solve(Primal(X), 5)
    ell = np.asarray(spectrum.values) / len(X)
    noise = float((ell[1] + ell[2]) / 2)
    try:
        gaussian = given_noise(spectrum, len(X), noise, q=4)
    except ValueError as error:
        assert "noise" in str(error)
    else:
        assert np.all(np.asarray(gaussian.values) >= noise)


@pytest.mark.parametrize("noise", [-1.0, float("nan")])
def test_given_noise_rejects_nonsense(noise):
    with pytest.raises(ValueError, match="noise"):
        given_noise(solve(Primal(table()), 5), 20, noise)


@pytest.mark.parametrize("q", [-1, 6])
def test_maximum_likelihood_rejects_impossible_q(q):
    with pytest.raises(ValueError):
        maximum_likelihood(solve(Primal(table()), 5), 20, q)


@pytest.mark.parametrize(
    "option", [{"method": "nonsense"}, {"solver": "nonsense"}, {"max_iter": 0}, {"tol": -1.0}]
)
def test_nonsense_options_of_ppca_are_named(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        PPCA(n_components=2, **option).fit(table())


# --- new points of the wrong kind -----------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    "name", ["transform", "score_samples", "score", "reconstruct", "partial_fit"]
)
def test_wrong_width_states_both_widths(estimator, name):
    model = estimator(n_components=2).partial_fit(table())
    with pytest.raises(ValueError, match=r"7.*5|5.*7"):
        getattr(model, name)(table(d=7))


@ALL
def test_wrong_width_of_latent_points_is_a_clear_error(estimator):
    model = estimator(n_components=2).fit(table())
    with pytest.raises(ValueError):
        model.inverse_transform(np.ones((4, 3)))


@BOTH
@pytest.mark.parametrize("n", [0, -1, 2.5, "many"])
def test_impossible_sample_counts_are_errors(estimator, n):
    model = estimator(n_components=2).fit(table())
    with pytest.raises((ValueError, TypeError), match="n_samples"):
        model.sample(n)


DIAGNOSTICS = ("hotelling_t2", "spe", "contributions", "outliers")


METHODS = {
    PCA: ["transform", "reconstruct", "score_samples", "score", "inverse_transform", *DIAGNOSTICS],
    PPCA: [
        *DIAGNOSTICS,
        "transform",
        "reconstruct",
        "score_samples",
        "score",
        "inverse_transform",
        "posterior",
        "posterior_predictive",
    ],
}


@pytest.mark.parametrize("estimator, name", [(e, m) for e, names in METHODS.items() for m in names])
def test_before_fit_is_not_fitted(estimator, name):
    with pytest.raises(NotFittedError):
        getattr(estimator(n_components=2), name)(table())


@BOTH
@pytest.mark.parametrize(
    "name",
    ["sample", "get_covariance", "get_precision", "get_feature_names_out", "t2_limit", "spe_limit"],
)
def test_before_fit_without_data_is_not_fitted(estimator, name):
    with pytest.raises(NotFittedError):
        getattr(estimator(n_components=2), name)()


# --- weights --------------------------------------------------------------------------

WEIGHTS = {
    "negative": np.r_[-1.0, np.ones(19)],
    "NaN": np.r_[np.nan, np.ones(19)],
    "infinite": np.r_[np.inf, np.ones(19)],
    "too few": np.ones(7),
    "too many": np.ones(21),
    "all zero": np.zeros(20),
    "a column": np.ones((20, 2)),
    "text": np.array(["heavy"] * 20),
    "complex": np.ones(20) * 1j,
}


@EVERY
@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_nonsense_weights_are_a_clear_error(estimator, method, name):
    with pytest.raises((ValueError, TypeError), match=r"[Ww]eight|string|[Cc]omplex"):
        getattr(estimator(n_components=2), method)(table(), sample_weight=WEIGHTS[name])


@BOTH
def test_one_positive_weight_is_an_error_or_finite(estimator):
    w = np.zeros(20)
    w[3] = 1.0
    try:
        model = estimator(n_components=1).fit(table(), sample_weight=w)
    except ValueError as error:
        assert any(word in str(error).lower() for word in ("weight", "rank", "varia", "constant"))
    else:
        assert_no_nan(model)


@BOTH
def test_a_single_number_is_everybodys_weight_or_an_error(estimator):
    try:
        model = estimator(n_components=2).fit(table(), sample_weight=2.0)
    except (ValueError, TypeError) as error:
        assert "weight" in str(error).lower()
    else:
        doubled = estimator(n_components=2).fit(table(), sample_weight=np.full(20, 2.0))
        assert_same_fit(model, doubled)


# --- unusual containers, right answers ------------------------------------------------


def memory_map(X, tmp_path):
    path = tmp_path / "table.dat"
    stored = np.memmap(path, dtype=X.dtype, mode="w+", shape=X.shape)
    stored[:] = X
    stored.flush()
    return np.memmap(path, dtype=X.dtype, mode="r", shape=X.shape)


def read_only(X, tmp_path):
    X = X.copy()
    X.setflags(write=False)
    return X


CONTAINERS = {
    "read-only": read_only,
    "list of lists": lambda X, _: X.tolist(),
    "list of arrays": lambda X, _: list(X),
    "tuple": lambda X, _: tuple(map(tuple, X)),
    "memory map": memory_map,
    "every other row": lambda X, _: np.repeat(X, 2, axis=0)[::2],
    "every other column": lambda X, _: np.repeat(X, 2, axis=1)[:, ::2],
    "reversed": lambda X, _: X[::-1, ::-1].copy()[::-1, ::-1],
    "Fortran order": lambda X, _: np.asfortranarray(X),
    "big-endian": lambda X, _: X.astype(">f8"),
    "little-endian": lambda X, _: X.astype("<f8"),
    "object": lambda X, _: X.astype(object),
    "extended precision": lambda X, _: X.astype(np.longdouble),
    "matrix-like subclass": lambda X, _: np.ma.array(X),
}


@BOTH
@pytest.mark.parametrize("name", CONTAINERS)
def test_container_does_not_matter(estimator, name, tmp_path):
    X = table()
    unusual = CONTAINERS[name](X, tmp_path)
    model, expected = estimator(n_components=2).fit(unusual), estimator(n_components=2).fit(X)
    assert_same_fit(model, expected)
    for method in ("transform", "score_samples", "reconstruct"):
        assert_close(getattr(model, method)(unusual), getattr(expected, method)(X), "vector")
    assert np.asarray(model.transform(unusual)).dtype == np.float64


@BOTH
@pytest.mark.parametrize(
    "dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint64, np.bool_, np.float16]
)
def test_integers_are_numbers(estimator, dtype):
    X = np.abs(table()) > 2 if dtype == np.bool_ else (np.abs(table()) * 20).astype(dtype)
    model = estimator(n_components=2).fit(X)
    expected = estimator(n_components=2).fit(X.astype(np.float64))
    for name in ATTRIBUTES:
        dtype_out = np.float32 if dtype == np.float16 else np.float64
        assert_close(getattr(model, name), getattr(expected, name), "vector", dtype_out)
    assert np.asarray(model.transform(X)).dtype.kind == "f"


@BOTH
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_keep_their_names(estimator, library):
    frames = pytest.importorskip(
        library, reason=f"{library} is not installed: its frames are not tested"
    )
    X, names = table(), list("abcde")
    frame = frames.DataFrame({name: X[:, j] for j, name in enumerate(names)})
    model, expected = estimator(n_components=2).fit(frame), estimator(n_components=2).fit(X)
    assert_same_fit(model, expected)
    assert list(model.feature_names_in_) == names
    prefix = estimator.__name__.lower()
    names_out = [f"{prefix}{j}" for j in range(model.n_components_)]
    assert list(model.get_feature_names_out()) == names_out
    assert_close(model.transform(frame), expected.transform(X), "vector")
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame[list("edcba")])
    with pytest.raises(ValueError, match="feature names"):
        model.transform(
            frame.rename({"a": "z"}) if library == "polars" else frame.rename(columns={"a": "z"})
        )


@BOTH
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_output_can_be_a_frame(estimator, library):
    frames = pytest.importorskip(
        library, reason=f"{library} is not installed: its frames are not tested"
    )
    frame = frames.DataFrame({name: table()[:, j] for j, name in enumerate("abcde")})
    model = estimator(n_components=2).set_output(transform=library).fit(frame)
    out, prefix = model.transform(frame), estimator.__name__.lower()
    assert isinstance(out, frames.DataFrame)
    assert list(out.columns) == [f"{prefix}{j}" for j in range(model.n_components_)]


@BOTH
def test_text_column_of_a_frame_is_a_clear_error(estimator):
    pandas = pytest.importorskip(
        "pandas", reason="pandas is not installed: its frames are not tested"
    )
    frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "z"]})
    with pytest.raises((ValueError, TypeError), match=r"convert|string|numeric|'x'|dtype"):
        estimator(n_components=1).fit(frame)


# --- the caller's arrays are the caller's ---------------------------------------------


@BOTH
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [(20, 5), (5, 20)])
def test_input_is_never_changed(estimator, order, dtype, size):
    X = np.array(table(*size), dtype=dtype, order=order)
    w = np.random.default_rng(0).uniform(0, 2, len(X)).astype(dtype)
    before = X.tobytes(), w.tobytes()
    model = estimator(n_components=2).partial_fit(X, sample_weight=w)
    model.partial_fit(X, sample_weight=w)
    model.fit(X, sample_weight=w)
    model.fit_transform(X)
    Z = np.asarray(model.transform(X)).copy()
    Z_before = Z.tobytes()
    model.inverse_transform(Z)
    for name in ("reconstruct", "score_samples", "score"):
        getattr(model, name)(X)
    if estimator is PPCA:
        model.posterior(X)
        model.posterior_predictive(X)
        PPCA(n_components=2, method="em", random_state=0).fit(X, sample_weight=w)
    assert (X.tobytes(), w.tobytes()) == before
    assert Z.tobytes() == Z_before


def test_torch_input_is_never_changed():
    torch = pytest.importorskip(
        "torch", reason="torch is not installed: this backend is not tested"
    )
    X = torch.asarray(table())
    before = X.numpy().tobytes()
    for estimator in (PCA, PPCA):
        model = estimator(n_components=2).fit(X)
        model.reconstruct(X), model.score_samples(X)
    assert X.numpy().tobytes() == before


@BOTH
def test_partial_fit_after_fit_continues_or_says_that_it_does_not(estimator):
    X = table(40)
    model = estimator(n_components=2).fit(X[:20])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.partial_fit(X[20:])
    rows = X[20:] if any("partial_fit" in str(w.message) for w in said) else X
    assert_same_fit(model, estimator(n_components=2).fit(rows))


@BOTH
def test_fitted_model_does_not_follow_later_changes_of_the_data(estimator):
    X = table()
    model = estimator(n_components=2).fit(X)
    expected = np.array(model.transform(table()))
    X[:] = 0.0
    assert np.array_equal(model.transform(table()), expected)


@BOTH
def test_results_do_not_share_memory_with_the_model(estimator):
    model = estimator(n_components=2).fit(table())
    before = np.array(model.get_covariance()), np.array(model.mean_)
    for outcome in (model.get_covariance(), model.transform(table()), model.reconstruct(table())):
        np.asarray(outcome)[:] = -1.0
    assert np.array_equal(model.get_covariance(), before[0])
    assert np.array_equal(model.mean_, before[1])
