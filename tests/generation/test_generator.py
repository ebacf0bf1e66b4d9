"""`Generator`: any model with a way to latents and back, as a source of new points."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dualpca import PCA, PPCA, DualPPCA, Generator, KernelPCA, MixturePPCA
from dualpca.errors import CopyWarning, DegenerateError
from dualpca.generation.densities import Gaussian, fit_gaussian, fit_kernel_density
from dualpca.preimages import Learned
from tests.tolerances import assert_close


@pytest.fixture(scope="module")
def ring():
    """Three hundred points near a circle, and two hundred to compare with."""
    rng = np.random.default_rng(0)
    t = rng.uniform(0, 2 * np.pi, 500)
    X = np.column_stack([np.cos(t), np.sin(t), 0 * t]) + 0.05 * rng.standard_normal((500, 3))
    return X[:300], X[300:]


MODELS = {
    "pca": PCA(2),
    "ppca": PPCA(2),
    "kernel": KernelPCA(4, kernel="rbf", gamma=1.0, preimage="learned"),
    "dual": DualPPCA(4, kernel="rbf", gamma=1.0, preimage="learned"),
    "pipeline": make_pipeline(StandardScaler(), PCA(2)),
}


@pytest.mark.grid(2)
@pytest.mark.parametrize("sampler", ["direct", "langevin", "mala"])
@pytest.mark.parametrize("density", ["kde", "gaussian", "mixture", "subspaces"])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_density_and_sampler_give_new_points(ring, name, density, sampler):
    X, held = ring
    options = {"density": density, "sampler": sampler, "n_steps": 20, "n_mixtures": 5}
    model = Generator(MODELS[name], **options).fit(X)
    new = model.sample(30, random_state=0)
    assert new.shape == (30, 3) and np.all(np.isfinite(new))
    np.testing.assert_array_equal(new, model.sample(30, random_state=0))
    assert model.nearest(new).distance.min() > 0
    assert np.abs(new).max() < 3
    found = model.quality(held, n_permutations=20, random_state=0)
    assert 0 <= found.precision <= 1 and 0 <= found.recall <= 1 and 0 < found.p_value <= 1


def test_kernel_density_keeps_the_ring_that_a_gaussian_fills(ring):
    X, held = ring
    linear = PCA(2)
    kde = Generator(linear).fit(X).quality(held, random_state=0)
    gaussian = Generator(linear, density="gaussian").fit(X).quality(held, random_state=0)
    assert kde.precision > 0.8 > gaussian.precision
    assert kde.mmd < gaussian.mmd and gaussian.p_value < 0.01


@pytest.mark.parametrize("sampler", ["direct", "mala"])
def test_latents_have_the_moments_of_the_training_latents(ring, sampler):
    model = Generator(PPCA(2), sampler=sampler, n_steps=40).fit(ring[0])
    Z = model.sample_latents(2000, random_state=0)
    ratio = Z.var(axis=0) / model.latents_.var(axis=0)
    np.testing.assert_allclose(ratio, 1, atol=0.1)
    np.testing.assert_allclose(Z.mean(axis=0), model.latents_.mean(axis=0), atol=0.1)


def test_unadjusted_bias_shrinks_with_the_step(ring):
    def excess(step):
        options = {"density": "gaussian", "sampler": "langevin", "n_steps": 100, "step": step}
        model = Generator(PPCA(2), **options).fit(ring[0])
        return (model.sample_latents(4000, 0).var(axis=0) / model.latents_.var(axis=0)).mean() - 1

    assert excess(1.0) == pytest.approx(1.0, abs=0.15)  # 1/(1 − τ/2)
    assert abs(excess(0.05)) < 0.08


def test_fitted_model_is_taken_as_it_is(ring):
    fitted = PCA(2).fit(ring[0][:100])
    model = Generator(FrozenEstimator(fitted)).fit(ring[0])
    np.testing.assert_array_equal(model.latents_, fitted.transform(ring[0]))
    untouched = PCA(2)
    Generator(untouched).fit(ring[0])
    assert not hasattr(untouched, "components_")


def test_density_of_your_own(ring):
    Z = PCA(2).fit(ring[0]).transform(ring[0])
    plain = fit_kernel_density(Z, 0.1, shrink=False)
    model = Generator(PCA(2), density=plain).fit(ring[0])
    assert model.density_.centres.shape == (300, 2)
    assert np.var(model.sample_latents(3000, 0)) > np.var(Z) * 0.95
    with pytest.raises(ValueError, match="a matrix of 3 columns"):
        Generator(PCA(2), density=Gaussian(np.zeros(3), np.eye(3))).fit(ring[0])


def test_decoder_is_any_pre_image(ring):
    kernel = KernelPCA(4, kernel="rbf", gamma=1.0)
    Z = kernel.fit(ring[0]).transform(ring[1][:5])
    for decoder in ("fixed-point", Learned(alpha=0.01)):
        model = Generator(kernel, decoder=decoder).fit(ring[0])
        expected = kernel.preimages(Z, decoder).points
        assert_close(model.decode(Z), expected, "vector")
    with pytest.raises(ValueError, match="an estimator with preimages"):
        Generator(PCA(2), decoder="learned").fit(ring[0])


def test_bandwidth_is_given_or_found(ring):
    found, given = (Generator(PCA(2), bandwidth=h).fit(ring[0]) for h in (None, 0.3))
    S = np.cov(given.latents_.T, bias=True)
    F = given.density_.factor
    assert_close(F @ F.T, 0.09 / 1.09 * S, "covariance")
    assert_close(found.density_.factor, fit_kernel_density(found.latents_).factor, "exact")


@pytest.mark.parametrize("h", [None, 0.3])
def test_the_plain_density_is_that_of_the_survey(ring, h):
    """Algorithm 2: π(z) = 1/n Σ_i N(z; z_i, σ²I), at the latents themselves; dense."""
    stretched = np.column_stack([5 * ring[0][:, 0], ring[0][:, 1], 0.2 * ring[0].sum(axis=1)])
    model = Generator(PCA(2), shrink=False, bandwidth=h).fit(stretched)
    Z, F = model.latents_, model.density_.factor
    sigma, unit = F[0, 0], np.sqrt(Z.var(axis=0).mean())
    np.testing.assert_array_equal(F, sigma * np.eye(2))
    np.testing.assert_array_equal(model.density_.centres, Z)
    at = Z[:20] + 0.1
    bumps = multivariate_normal([0, 0], sigma**2 * np.eye(2)).pdf(at[:, None] - Z)
    assert_close(model.density_.log_density(at), np.log(bumps.mean(axis=1)), "density")
    drawn = model.sample_latents(20_000, random_state=0)
    np.testing.assert_allclose(drawn.var(axis=0), Z.var(axis=0) + sigma**2, rtol=0.05)
    if h is not None:
        assert sigma == pytest.approx(h * unit)
        return
    D = np.sum((Z[:, None] - Z) ** 2, axis=2)

    def left_out(width):  # mean over i of ln 1/(n − 1) Σ_{j≠i} N(z_i; z_j, σ²I)
        bumps = np.exp(-0.5 * D / width**2) / (2 * np.pi * width**2)
        return np.mean(np.log((bumps.sum(axis=1) - np.diagonal(bumps)) / (len(Z) - 1)))

    tried = sigma * np.exp(np.linspace(-0.5, 1, 201))
    assert sigma == pytest.approx(tried[np.argmax([left_out(s) for s in tried])], rel=0.03)


def test_bumps_that_are_shrunk_have_the_shape_of_the_rows(ring):
    with pytest.raises(ValueError, match="shrink must be False with isotropic bumps"):
        fit_kernel_density(ring[0], isotropic=True)
    with pytest.raises(ValueError, match="shrink must be True or False"):
        Generator(PCA(2), shrink=None).fit(ring[0])


# --- classes and temperature ----------------------------------------------------------


@pytest.fixture(scope="module")
def pairs():
    """Three clouds in five dimensions, of 40, 60 and 100 rows, and their names."""
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], [40, 60, 100])
    middle = np.repeat(9 * rng.standard_normal((3, 5)), [40, 60, 100], axis=0)
    return middle + rng.standard_normal((200, 5)) * [1, 1, 1, 0.3, 0.3], y


def test_subspaces_are_a_mixture_of_ppca(pairs):
    X, _ = pairs
    model = Generator(PCA(4), density="subspaces", n_mixtures=3).fit(X)
    seed = int(np.random.default_rng(0).integers(2**31))
    peer = MixturePPCA(3, 3, random_state=seed).fit(model.latents_)
    assert_close(
        model.density_.log_density(model.latents_), peer.score_samples(model.latents_), "em"
    )
    assert len(model.density_.parts) == 3
    wide = Generator(PCA(5), density="subspaces", n_mixtures=1).fit(
        np.tile(X, 4) + X[::-1].repeat(4, 1)
    )
    C = wide.density_.factor @ wide.density_.factor.T
    assert np.linalg.eigvalsh(C)[0] > 0
    line = Generator(PCA(1), density="subspaces", n_mixtures=2).fit(X)
    assert line.sample(5, 0).shape == (5, 5)


@pytest.mark.parametrize("sampler", ["direct", "langevin", "mala"])
@pytest.mark.parametrize("density", ["kde", "gaussian", "mixture", "subspaces"])
def test_every_class_has_a_density_of_its_own(pairs, density, sampler):
    X, y = pairs
    options = {"density": density, "sampler": sampler, "n_mixtures": 2, "n_steps": 20}
    model = Generator(PCA(3), by_class=True, **options).fit(X, y)
    np.testing.assert_array_equal(model.classes_, ["a", "b", "c"])
    np.testing.assert_allclose(model.density_.weights, [0.2, 0.3, 0.5])
    for name in "abc":
        new = model.sample(30, random_state=0, label=name)
        assert np.mean(y[model.nearest(new).index] == name) == 1
    kinds = y[model.nearest(model.sample(1000, random_state=0)).index]
    shares = [np.mean(kinds == name) for name in "abc"]
    np.testing.assert_allclose(shares, [0.2, 0.3, 0.5], atol=0.06)


def test_chains_of_a_class_start_at_its_rows(pairs):
    X, y = pairs
    options = {"density": "gaussian", "sampler": "langevin", "n_steps": 1, "step": 1e-9}
    model = Generator(PCA(3), by_class=True, **options).fit(X, y)
    for name in "abc":
        Z = model.sample_latents(50, random_state=0, label=name)
        gaps = np.linalg.norm(Z[:, None] - model.latents_[y == name], axis=2).min(axis=1)
        assert gaps.max() < 1e-3


def test_density_of_a_class_is_that_of_its_rows(pairs):
    X, y = pairs
    model = Generator(PCA(3), density="gaussian", by_class=True).fit(X, y)
    for part, name in zip(model.density_.parts, "abc", strict=True):
        alone = fit_gaussian(model.latents_[y == name])
        assert_close(part.mean, alone.mean, "exact")
        assert_close(part.factor, alone.factor, "exact")


def test_classes_of_any_kind_and_library(pairs, backend):
    X, y = pairs
    codes = np.unique(y, return_inverse=True)[1]
    model = Generator(PCA(2), density="subspaces", n_mixtures=2, by_class=True)
    here, there = (
        clone(model).fit(X, codes),
        clone(model).fit(backend.asarray(X), backend.asarray(codes)),
    )
    new = there.sample(5, random_state=0, label=2)
    assert backend.owns(new)
    np.testing.assert_allclose(
        backend.numpy(new), here.sample(5, random_state=0, label=2), atol=1e-6
    )


def test_gaps_between_classes_stay_empty(pairs):
    X, y = pairs
    judge = KNeighborsClassifier(5).fit(X, y)

    def lonely(by_class):
        model = Generator(PCA(3), density="gaussian", by_class=by_class).fit(X, y)
        return np.median(model.nearest(model.sample(300, 0)).distance)

    assert lonely(True) < 0.5 * lonely(False)
    assert judge.score(X, y) == 1


@pytest.mark.parametrize("density", ["kde", "gaussian", "mixture", "subspaces"])
def test_cooler_samples_are_less_varied(ring, density):
    options = {"density": density, "n_mixtures": 3}
    warm, cool = (Generator(PCA(2), temperature=t, **options).fit(ring[0]) for t in (1.0, 0.25))
    assert_close(cool.density_.factor, warm.density_.factor / 2, "covariance")
    assert np.var(cool.sample_latents(4000, 0)) < np.var(warm.sample_latents(4000, 0))


def test_nonsense_classes_are_clear_errors(pairs):
    X, y = pairs
    model = Generator(PCA(3), by_class=True)
    numbers = np.unique(y, return_inverse=True)[1].astype(float)
    numbers[3] = np.nan
    rare = y.copy()
    rare[0] = "z"
    for wrong, message in (
        (None, "y must be 200 classes"),
        (y[:9], "y must be of shape"),
        (numbers, "y must be a class"),
        (rare, "two rows or more of every class"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(X, wrong)
    with pytest.raises(ValueError, match="density must be a name"):
        Generator(PCA(3), by_class=True, density=Gaussian(np.zeros(3), np.eye(3))).fit(X, y)
    fitted = model.fit(X, y)
    for label in ("d", 3, ["a", "b"]):
        with pytest.raises(ValueError, match="label must be one of"):
            fitted.sample(2, label=label)
    with pytest.raises(ValueError, match="by_class is False"):
        Generator(PCA(3)).fit(X, y).sample(2, label="a")
    with pytest.raises(DegenerateError, match=r"in class a .*subspaces"):
        Generator(PCA(4), by_class=True).fit(X, np.where(np.arange(200) < 4, "a", "b"))


def test_a_density_of_your_own_may_be_cooled(ring):
    own = Gaussian(np.zeros(2), np.eye(2))
    model = Generator(PCA(2), density=own, temperature=0.25).fit(ring[0])
    assert_close(model.density_.factor, np.eye(2) / 2, "exact")


# --- chains ---------------------------------------------------------------------------


def test_chains_say_how_they_went(ring):
    model = Generator(PPCA(2), density="gaussian", sampler="mala", n_steps=400).fit(ring[0])
    chain = model.chains(6, random_state=0)
    assert chain.draws.shape == (400, 6, 2)
    assert chain.acceptance == pytest.approx(0.574, abs=0.1)
    assert chain.r_hat().max() < 1.05 and chain.effective_sample_size().min() > 200
    with pytest.raises(ValueError, match="direct draws are independent"):
        Generator(PPCA(2)).fit(ring[0]).chains()


# --- paths ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["straight", "density"])
@pytest.mark.parametrize("name", MODELS)
def test_interpolation_goes_from_end_to_end(ring, name, path):
    model = Generator(MODELS[name]).fit(ring[0])
    a, b = ring[1][:2]
    line = model.interpolate(a, b[None, :], 7, path)
    ends = model.decode(model.estimator_.transform(ring[1][:2]))
    assert line.shape == (7, 3)
    assert_close(line[[0, -1]], ends, "vector")


def test_path_along_density_goes_around_the_hole(ring):
    model = Generator(PCA(2)).fit(ring[0])
    a, b = np.array([1.0, 0, 0]), np.array([-1.0, 0, 0])
    through, around = (model.interpolate(a, b, 15, path=p) for p in ("straight", "density"))
    assert np.hypot(*through[:, :2].T).min() < 0.1
    assert np.hypot(*around[:, :2].T).min() > 0.6


def test_traversal_moves_one_component(ring):
    model = Generator(PPCA(2)).fit(ring[0])
    for component in (0, 1):
        Z = model.estimator_.transform(model.traverse(component, 5, reach=1.5))
        other = model.estimator_.transform(model.traverse(component, 5, 1.5, at=ring[1][0]))
        assert np.ptp(Z[:, 1 - component]) < 1e-8 < np.ptp(Z[:, component])
        assert np.ptp(other[:, 1 - component]) < 1e-8
    line = Generator(PCA(2)).fit(ring[0])
    Z = line.estimator_.transform(line.traverse(0, 5, reach=1.5))
    sd = line.latents_.std(axis=0)
    assert_close(Z[:, 0] - line.latents_.mean(axis=0)[0], np.linspace(-1.5, 1.5, 5) * sd[0], "em")


# --- quality --------------------------------------------------------------------------


def test_copies_are_not_new(ring):
    X, held = ring
    with pytest.warns(CopyWarning, match="copies of training rows"):
        copies = Generator(PCA(3), bandwidth=1e-4).fit(X).quality(held, random_state=0)
    assert copies.novelty < 0.01 < 0.5 < Generator(PCA(3)).fit(X).quality(held).novelty
    with pytest.raises(ValueError, match="rows that were not used to fit"):
        Generator(PCA(3)).fit(X).quality(X)


@pytest.mark.parametrize("q", [2, 10])
def test_a_kernel_that_gives_training_rows_back_is_warned_of(q):
    X = 40 * np.random.default_rng(0).standard_normal((100, 5))
    narrow, wide = (KernelPCA(q, kernel="rbf", gamma=g) for g in (0.2, "median"))
    with pytest.warns(CopyWarning, match="gamma='median'"):
        Generator(narrow).fit(X).sample(50, random_state=0)
    Generator(wide).fit(X).sample(50, random_state=0)  # no warning


def test_nearest_training_point_of_a_training_point_is_itself(ring):
    found = Generator(PCA(2)).fit(ring[0]).nearest(ring[0][:10])
    np.testing.assert_array_equal(found.index, np.arange(10))
    assert found.distance.max() == 0


# --- contract -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pca", "ppca", "kernel"])
def test_generator_in_every_library(ring, name, backend):
    options = {"density": "mixture", "n_mixtures": 2, "sampler": "mala", "n_steps": 5}
    for kind in ({}, options):
        model = Generator(MODELS[name], **kind)
        here, there = clone(model).fit(ring[0]), clone(model).fit(backend.asarray(ring[0]))
        new = there.sample(4, random_state=0)
        assert backend.owns(new)
        np.testing.assert_allclose(backend.numpy(new), here.sample(4, random_state=0), atol=1e-6)
        path = there.interpolate(backend.asarray(ring[1][0]), backend.asarray(ring[1][1]), 4)
        assert backend.owns(path) and backend.owns(there.traverse(0))
        expected = here.interpolate(ring[1][0], ring[1][1], 4)
        np.testing.assert_allclose(backend.numpy(path), expected, atol=1e-6)
        found, same = (
            there.quality(backend.asarray(ring[1]), random_state=0),
            here.quality(ring[1], random_state=0),
        )
        np.testing.assert_allclose(found, same, atol=0.011)  # one point, or one permutation


@pytest.mark.parametrize("density", ["kde", "gaussian", "mixture"])
def test_generator_on_another_device(ring, density):
    xp = pytest.importorskip("array_api_strict", reason="stands for a device that is not the host")
    there = lambda x: xp.asarray(x, device=xp.Device("device1"))  # noqa: E731
    model = Generator(PPCA(2), density=density, n_mixtures=3, n_steps=5, sampler="mala")
    far, near = clone(model).fit(there(ring[0])), clone(model).fit(ring[0])
    outcomes = [
        lambda m, move: m.sample(4, random_state=0),
        lambda m, move: m.interpolate(move(ring[1][0]), move(ring[1][1]), 4, path="density"),
        lambda m, move: m.traverse(1, 4),
        lambda m, move: m.nearest(move(ring[1])).distance,
    ]
    for outcome in outcomes:
        found = outcome(far, there)
        assert found.device == xp.Device("device1")
        host = np.from_dlpack(xp.asarray(found, device=xp.Device("CPU_DEVICE")))
        np.testing.assert_allclose(host, outcome(near, np.asarray), atol=1e-4)
    found = far.quality(there(ring[1]), random_state=0)
    np.testing.assert_allclose(found, near.quality(ring[1], random_state=0), atol=0.011)
    assert np.all(far.chains(4, random_state=0).effective_sample_size() > 0)


def test_float32_comes_back_as_float32(ring):
    X = ring[0].astype(np.float32)
    model = Generator(PCA(2)).fit(X)
    for rows in (model.sample(3), model.traverse(0), model.interpolate(X[0], X[1], 3)):
        assert rows.dtype == np.float32


def test_nothing_is_changed(ring):
    X, held = ring[0].copy(), ring[1].copy()
    estimator = PCA(2)
    model = Generator(estimator).fit(X)
    model.quality(held), model.interpolate(held[0], held[1], path="density"), model.nearest(held)
    np.testing.assert_array_equal(X, ring[0])
    np.testing.assert_array_equal(held, ring[1])
    X[:] = 0
    assert model.nearest(ring[0]).distance.max() == 0


# --- bad input ------------------------------------------------------------------------


NONSENSE = {
    "density": ["nonsense", 3, None, Gaussian],
    "sampler": ["nonsense", None, 1],
    "bandwidth": [0, -1.0, np.nan, np.inf, "wide", True],
    "step": [0, -1.0, np.nan, np.inf, None, "long"],
    "n_steps": [0, 1.5, None, "many", True],
    "n_mixtures": [0, 1.5, None, "many"],
    "by_class": [None, "yes", 1],
    "temperature": [0, -1.0, np.nan, np.inf, None, "cold"],
    "random_state": ["seed", 1.5],
}


@pytest.mark.parametrize("name, value", [(k, v) for k, vs in NONSENSE.items() for v in vs])
def test_nonsense_parameters_are_clear_errors(ring, name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        Generator(PCA(2), **{name: value}).fit(ring[0])


@pytest.mark.parametrize("estimator", [None, "pca", PCA, StandardScaler, object()])
def test_estimator_without_a_way_back_is_a_clear_error(ring, estimator):
    with pytest.raises(ValueError, match="estimator must be an estimator with"):
        Generator(estimator).fit(ring[0])


@pytest.mark.parametrize("scale", [1e100, 1.0, 1e-100])
@pytest.mark.parametrize("n, d, q", [(6, 50, 2), (2, 3, 1), (40, 1, 1), (30, 3, 3)])
def test_odd_shapes_and_scales_are_finite(n, d, q, scale):
    X = np.random.default_rng(0).standard_normal((n, d))
    plain, model = (Generator(PCA(q)).fit(s * X) for s in (1.0, scale))
    new = model.sample(3, random_state=0)
    assert np.all(np.isfinite(new))
    assert_close(new / scale, plain.sample(3, random_state=0), "vector")


def test_a_constant_column_stays_constant(ring):
    X = np.column_stack([ring[0], np.full(300, 7.0)])
    np.testing.assert_allclose(Generator(PCA(2)).fit(X).sample(9, 0)[:, 3], 7, rtol=1e-12)


def test_latents_without_variance_are_a_clear_error():
    with pytest.raises(DegenerateError, match="4 of 5 directions"):
        Generator(PCA()).fit(np.random.default_rng(0).standard_normal((5, 20)))
    with pytest.raises(DegenerateError, match="0 of 1 directions"):
        Generator(PCA(1)).fit(np.ones((9, 3)))


def test_too_many_mixtures_and_missing_values_are_clear_errors(ring):
    with pytest.raises(ValueError, match="n_mixtures must be at most 5"):
        Generator(PCA(1), density="mixture").fit(ring[0][:5])
    X = ring[0].copy()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        Generator(PPCA(1)).fit(X)
    model = Generator(PPCA(1)).fit(ring[0])
    for method in (model.nearest, model.quality):
        with pytest.raises(ValueError, match="NaN"):
            method(X)


def test_calls_that_make_no_sense_are_clear_errors(ring):
    model = Generator(PCA(2)).fit(ring[0])
    a, b = ring[0][:2]
    calls = {
        "n_samples must be": [lambda: model.sample(0), lambda: model.sample(1.5)],
        "path must be": [lambda: model.interpolate(a, b, path="crooked")],
        "n must be": [lambda: model.interpolate(a, b, 1), lambda: model.traverse(0, 1)],
        "weight must be": [lambda: model.interpolate(a, b, weight=-1)],
        "a must be one point": [lambda: model.interpolate(ring[0], b)],
        "b must be one point": [lambda: model.interpolate(a, ring[0][:0])],
        "features": [lambda: model.interpolate(a[:2], b), lambda: model.nearest(ring[0][:, :2])],
        "component must be": [lambda: model.traverse(2), lambda: model.traverse(-1)],
        "reach must be": [lambda: model.traverse(0, reach=0), lambda: model.traverse(0, reach="a")],
        "at must be one point": [lambda: model.traverse(0, at=ring[0])],
        "k must be": [lambda: model.quality(ring[1], k=0)],
        "4 rows or more": [lambda: model.quality(ring[1][:3])],
        "random_state": [lambda: model.sample(3, random_state="x")],
    }
    for message, given in calls.items():
        for call in given:
            with pytest.raises(ValueError, match=message):
                call()


@pytest.mark.parametrize("name", ["sample", "chains", "decode", "nearest", "quality", "traverse"])
def test_unfitted_generator_says_so(ring, name):
    argument = {"decode": ring[0][:, :2], "nearest": ring[0], "quality": ring[0], "traverse": 0}
    with pytest.raises(NotFittedError):
        getattr(Generator(PCA(2)), name)(*([argument[name]] if name in argument else []))


# --- S2, section 7 --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["langevin", "mala"])
def test_digits_of_section_7(shared_data, sampler):
    """15 components, KDE, Langevin: below linear PCA, latents as wide as the training ones."""
    with np.load(shared_data("mnist10k.npz")) as data:
        images, labels = data["images"].reshape(10000, -1) / 255, data["labels"]
    rows = np.random.default_rng(0).permutation(10000)
    X, held = images[rows[:1500]], images[rows[-500:]]
    kernel = KernelPCA(15, kernel="rbf", gamma="median", preimage=Learned(alpha=0.01))
    model = Generator(kernel, sampler=sampler, n_steps=50).fit(X)
    back = model.decode(model.estimator_.transform(held))
    error = np.mean(np.sum((back - held) ** 2, axis=1))
    linear = np.mean(np.sum((PCA(15).fit(X).reconstruct(held) - held) ** 2, axis=1))
    assert error < min(22, linear)
    Z = model.sample_latents(1000, random_state=0)
    ratio = Z.var(axis=0) / model.latents_.var(axis=0)
    assert 0.9 < ratio.mean() < 1.1
    assert np.all((0.75 < ratio) & (ratio < 1.25))  # four standard errors of a variance
    new = model.decode(Z)
    assert np.min(model.nearest(new[:100]).distance) > 0.5  # no copy of a training image
    # digits that others recognise: ten neighbours among other images, eight of one kind
    judge = KNeighborsClassifier(10).fit(images[rows[4000:7000]], labels[rows[4000:7000]])
    agreed = lambda X: np.mean(judge.predict_proba(X).max(axis=1) >= 0.8)  # noqa: E731
    assert agreed(new) > 0.8 * agreed(held)
    blurred = Generator(FrozenEstimator(model.estimator_), density="gaussian").fit(X)
    assert agreed(blurred.sample(500, random_state=0)) < 0.6 * agreed(held)
