"""Experiments: every one runs, writes all its files, and gives the reference numbers."""

import json
import re
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from dualpca.app import datasets
from dualpca.app.experiments import EXPERIMENTS, readme
from dualpca.app.experiments.canvas import Canvas
from dualpca.app.experiments.running import FORMATS, reproduce
from tests.conftest import rest_slow

NAMES = list(EXPERIMENTS)
QUICK = ("s0-figure-1", "s0-figure-4", "s1-real-world", "s2-figure-4", "s3-figure-1", "s4-hinton")
SOME = rest_slow(NAMES, (*QUICK, "readme-picture"))
ON_MNIST = {"s0-figure-4", "s4-digits", *(f"s2-figure-{k}" for k in (5, 7, 8, 9, 10))}
"""Experiments whose document has MNIST."""


def run_quickly(name, folder):
    """Run one experiment as from a plain clone: with the package's files, and no network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "folders", lambda: [datasets.SHIPPED])
        patch.setattr("sklearn.datasets.fetch_openml", None)
        [record] = reproduce([name], folder, quick=True)
    if "optuna" in record.problem:
        pytest.skip(record.problem)
    assert not record.problem
    return record


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a function from an experiment to the folder of its quick run, made once."""
    folders = {}

    def folder_of(name):
        if name not in folders:
            folder = tmp_path_factory.mktemp(name)
            run_quickly(name, folder)
            folders[name] = folder
        return folders[name]

    return folder_of


def read(folder, name):
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_an_experiment_writes_all_its_files(name, made):
    folder = made(name)
    record = read(folder, name)
    figures = record["figures"]
    stems = [name] if len(figures) == 1 else [figure["png"][: -len(".png")] for figure in figures]
    expected = {f"{stem}.{ending}" for stem in stems for ending in FORMATS}
    assert {path.name for path in folder.iterdir()} == expected | {f"{name}.json", "index.html"}
    assert all(stem.startswith(name) for stem in stems) and len(set(stems)) == len(figures) > 0
    assert all((folder / file).stat().st_size > 1000 for file in expected)
    assert record["quick"] and record["seed"] == 0 and record["seconds"] > 0
    assert set(record["versions"]) >= {"dualpca", "python", "numpy", "matplotlib"}


@pytest.mark.parametrize("name", SOME)
@pytest.mark.slow
def test_an_experiment_says_what_it_shows_agrees_and_differs(name, made):
    record = read(made(name), name)
    for key in ("title", "caption", "agrees", "differs"):
        assert len(record[key]) > 15, key
    assert len(record["data"]) > 5 and (name in ON_MNIST) == ("not MNIST" in record["data"])
    for key in ("caption", "agrees", "differs"):
        assert record[key].endswith("."), key
        assert "  " not in record[key] and "nan" not in record[key], key
    assert record["numbers"]
    if name != "readme-picture":
        assert re.fullmatch(r"S[0-4] \S.*", record["source"])
        assert name.startswith(record["source"][:2].lower())


def test_figures_of_mnist_say_so(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (700, 784)).astype(np.uint8)
    np.savez(folder / "mnist10k.npz", images=images, labels=np.arange(700) % 10)
    reproduce(["s2-figure-5"], tmp_path / "out", quick=True, data=folder)
    assert read(tmp_path / "out", "s2-figure-5")["data"] == "MNIST (700 images, 28 × 28)"


REPEATED = ("s0-figure-2", "s1-mixtures", "s3-figure-1", "s4-em-steps")
"""Experiments made twice in the ordinary tests; the others are made twice in the slow ones."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in REPEATED else [pytest.mark.slow])
        for name in NAMES
        if not EXPERIMENTS[name].timed
    ],
)
def test_the_same_seed_gives_the_same_bytes(name, made, tmp_path):
    first = made(name)
    run_quickly(name, tmp_path)
    for path in tmp_path.iterdir():
        if path.suffix in (".png", ".svg"):
            assert path.read_bytes() == (first / path.name).read_bytes(), path.name
    old, new = (read(folder, name) for folder in (first, tmp_path))
    assert old | {"seconds": 0} == new | {"seconds": 0}


# --- reference numbers ----------------------------------------------------------------


def numbers_of(name, quick=False):
    try:
        return EXPERIMENTS[name].run(Canvas(quick=quick)).numbers
    except ModuleNotFoundError as error:  # of the extra `search`
        pytest.skip(str(error))


def test_s0_figure_1_both_ways_round_agree():
    found = numbers_of("s0-figure-1")
    for key in ("W_is_Phi_A", "latents", "reconstructions", "latents_of_the_library"):
        assert found[key] < 1e-12, key


def test_s0_figure_2_samples_as_the_model_says():
    found = numbers_of("s0-figure-2")
    assert found["directions_reached_by_dual_ppca"] == 19
    assert found["directions_reached_by_kernel_pca"] == 3
    assert found["variance_off_components_of_kernel_pca"] < 1e-20 < 0.01
    assert found["variance_off_components"] > 0.01
    assert found["noise_variance"] == pytest.approx(0.010482, abs=1e-6)
    # a variance of 5000 draws has a relative standard error of 0.02; the worst of 19
    assert found["largest_relative_error_of_a_variance"] < 0.08


def test_s0_figure_3_what_holds_of_its_text():
    """σ² falls and the two models draw together; samples hardly spread wider once centred."""
    found = numbers_of("s0-figure-3", quick=True)
    assert found["explained_q3_uncentred"] == pytest.approx(0.707875, abs=1e-6)
    assert found["noise_variance_q3_uncentred"] == pytest.approx(0.017184, abs=1e-6)
    assert found["explained_q3_centred"] == pytest.approx(0.753663, abs=1e-6)
    assert found["noise_variance_q3_centred"] == pytest.approx(0.010482, abs=1e-6)
    for name in ("uncentred, linear", "centred, linear"):
        noise = [found[name][q]["noise_variance"] for q in ("1", "3", "10")]
        assert noise[0] > noise[1] > noise[2]
        gaps = np.array(found["by_components"][name]["gap"])
        assert np.all(np.diff(gaps[1:]) < 0) and gaps[1] > 0.2  # seen beside a sine of height 1
        for draws in found["over_draws"][name].values():
            assert draws["noise_falls_each_time"] == 1
    plain, linear = (
        np.array(found["by_components"][f"uncentred, {name}"]["gap"][1:6])
        for name in ("Eq. 19", "linear")
    )
    assert np.all(plain < 0.3 * linear)  # its denominator hides the difference
    spread = np.array(found["by_components"]["centred, linear"]["spread"])
    assert 1.01 < spread.max() / spread[0] < 1.02 and not np.all(np.diff(spread[:4]) > 0)
    wide = np.array(found["by_components"]["uncentred, linear"]["spread"])
    assert wide[1] > 2 * wide[0] and wide[2] < wide[1]


@pytest.mark.slow
def test_s0_figure_3_spread_over_draws_of_the_points():
    found = numbers_of("s0-figure-3")["over_draws"]
    for n in ("20", "50"):
        centred, uncentred = (found[f"{name}, linear"][n] for name in ("centred", "uncentred"))
        assert 0 < centred["spread_gained"] < 0.1 < uncentred["spread_gained"]
        assert centred["spread_gained"] < centred["spread_between_draws"]
        assert centred["spread_grows_each_time"] < 1  # not even then at every step


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("q", [1, 3, 10])
def test_s0_figure_3_is_that_of_the_formulas(q, center):
    """Dense: k̂ = Σ_p≤q (1 − σ²/ℓ_p) ε_pε_pᵀk, kernel PCA without the factor, samples by B."""
    module = sys.modules[EXPERIMENTS["s0-figure-3"].run.__module__]
    X = module.wave()
    n, K = len(X), np.exp(-np.sum((X[:, None] - X) ** 2, axis=2) / 8)
    H = np.eye(n) - (1 / n if center else 0)
    lam, E = np.linalg.eigh(H @ K @ H)
    lam, E = np.maximum(lam[::-1], 0), E[:, ::-1]
    noise, kept = lam[q:].sum() / (n * (n - q)), E[:, :q]
    theirs, ours = kept * lam[:q] @ kept.T, kept * (lam[:q] - n * noise) @ kept.T
    variance = np.append(lam[:q] ** 2 / n, noise * lam[q:])
    divisor = K.sum() / n
    found = module._fitted(X, q, center, linear=True)
    np.testing.assert_allclose(found.ours, ours @ X / divisor, atol=1e-8)
    np.testing.assert_allclose(found.theirs, theirs @ X / divisor, atol=1e-8)
    expected = np.sqrt(np.sum((X.T @ E) ** 2 * variance)) / divisor
    assert found.spread == pytest.approx(expected, rel=1e-6)
    if not center:
        plain = module._fitted(X, q, center, linear=False)
        np.testing.assert_allclose(plain.ours, ours @ X / ours.sum(axis=1)[:, None], atol=1e-7)


def test_s0_figure_3_can_only_be_of_fifty_points():
    found = numbers_of("s0-figure-3", quick=True)
    q, explained, noise = 3, found["explained_published"], found["noise_variance_published"]
    assert round((1 - explained) / noise + q) == 50
    ours = found["uncentred, linear"]["3"]  # the same identity, with its true N
    assert (1 - ours["explained"]) / ours["noise_variance"] + q == pytest.approx(20)


@pytest.mark.slow
def test_s0_figure_4_what_the_published_numbers_determine():
    """Not the split, which is not published: what holds over all of them."""
    found = numbers_of("s0-figure-4")
    assert found["difference_of_opposite_latents"] < 1e-8  # Eq. 19 cannot tell u from −u
    assert 0 < found["share_out_of_range"] < 0.5
    assert found["zeros_still_nearer_to_zeros_centred"] > 0.9
    splits, q = found["splits"], 2
    uncentred, centred = (
        {key: np.asarray(value) for key, value in splits[name].items()}
        for name in ("uncentred", "centred")
    )
    # of a unit diagonal σ² follows from the explained variance; centred the trace is smaller
    noise = (1 - uncentred["explained"]) / (splits["points"] - q)
    np.testing.assert_allclose(uncentred["noise_variance"], noise, rtol=1e-6)
    noise = (1 - centred["explained"]) / (splits["points"] - q)
    assert np.all(centred["noise_variance"] < 0.99 * noise)
    explained, printed = found["explained_published"], found["noise_variance_published"]
    assert round((1 - explained) / (500 - q), 4) == printed
    if not datasets.handwriting().is_mnist:
        return
    mean = uncentred["explained"].mean(axis=1)
    assert np.all(np.diff(mean) > 0) and mean[0] < explained < mean[-1]
    assert centred["explained"].max() < explained
    # REFERENCE 'S0 Fig. 4': the prototype's 300 ones and 200 zeros
    assert mean[splits["ones"].index(300)] == pytest.approx(0.277, abs=0.007)


def test_s0_figure_4_literal_images_are_those_of_the_formulas():
    """Dense: k̂c = Kc A h (Eq. 17), x̂ ∝ Σ k̂ᵢxᵢ (Eq. 19), each image in its own range."""
    module = sys.modules[EXPERIMENTS["s0-figure-4"].run.__module__]
    X, q = np.random.default_rng(0).uniform(size=(30, 9)), 2
    model = module.DualPPCA(q, gamma=0.3).fit(X)
    n, h = len(X), np.array([[0.5, -1.0], [1.5, 0.2]])
    H = np.eye(n) - 1 / n
    K = H @ np.exp(-0.3 * np.sum((X[:, None] - X) ** 2, axis=2)) @ H
    made = h @ (K @ model.coefficients_).T @ X
    low, high = made.min(axis=1, keepdims=True), made.max(axis=1, keepdims=True)
    np.testing.assert_allclose(module._literal(model, h), (made - low) / (high - low), atol=1e-9)


def test_s1_closed_form_and_em_agree():
    found = numbers_of("s1-analytical-em", quick=True)
    for key in ("noise_variance", "noise_variance_em"):
        assert found[key] == pytest.approx(0.0885690, rel=1e-5)
    for key in ("loglikelihood", "loglikelihood_em"):
        assert found[key] == pytest.approx(-4732.617, rel=1e-5)
    assert found["largest_difference_of_wwt"] < 1e-8
    assert found["largest_gap"]["EM"] < 1e-9
    plain = [gap for name in "ndq" for gap in found[name]["gap"]["EM, plain"]]
    assert -1e-9 < min(plain) and max(plain) < 1e-2


def test_s1_plain_em_forms_nothing_as_large_as_a_covariance():
    """Its arrays stay far below d×d numbers (theory 3: S is never formed)."""
    module = sys.modules[EXPERIMENTS["s1-analytical-em"].run.__module__]
    X = module._data(30, 2000, 2, seed=1)
    tracemalloc.start()
    module._plain(X, 2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.25 * 8 * 2000**2


def test_s1_mixtures_reach_the_reference():
    found = numbers_of("s1-mixtures", quick=True)
    # 306.77 from k-means (test_reference_s1_mixture), which the other starts leave behind
    assert found["loglikelihood_three_planes"] == pytest.approx(2929.37, abs=0.05)
    assert np.all(np.diff(found["training_nats_per_row"]) > 0)
    assert found["spiral_nats_per_point"] > found["spiral_nats_per_point_one_line"] + 1


@pytest.mark.slow
def test_s1_em_climbs_to_the_closed_form():
    found = numbers_of("s1-kernel-em")
    for name, top in (("iris", 385.865091), ("oil", 438.436424)):
        assert found[name]["loglikelihood"] == pytest.approx(top, abs=1e-6)
        for way in found[name]["ways"].values():
            assert way["distance"] < 1e-8 and way["largest_fall"] < 1e-9 * top
        ways = found[name]["ways"]
        assert 3 * ways["accelerated"]["steps"] < ways["from linear PCA"]["steps"]


def test_s1_a_table_is_filled_in_and_its_errors_found():
    found = numbers_of("s1-real-world", quick=True)
    assert found["missing_entries"] == 44
    assert found["rmse"]["PPCA"] < found["rmse"]["column means"]
    assert 0.8 < found["coverage_of_90_percent_intervals"] < 0.97
    assert found["wrong_entries"] == 6
    assert found["wrong_entries_found"] >= 5  # one of them is near the limit
    assert found["other_days_flagged"] < 0.05 * found["other_days"]


@pytest.mark.slow
def test_s1_states_remember_what_a_mixture_cannot():
    found = numbers_of("s1-through-time")
    assert found["rand_index_states"] > 0.8 > 0.5 > found["rand_index_mixture"]
    assert found["vowels_linear"] > 0.95 and found["vowels_kernel"] > 0.95
    assert found["ring_or_disc_kernel"] > 0.95 > 0.65 > found["ring_or_disc_linear"]


@pytest.mark.slow
def test_s1_searching_beats_the_rule_of_thumb():
    found = numbers_of("s1-kernel-search")
    best = found["accuracy_on_new_readings"]
    assert best > found["accuracy_on_new_readings_median_heuristic"] + 0.03
    assert best > found["accuracy_on_new_readings_linear_kernel"] + 0.02


def test_s3_figure_1_has_the_reference_numbers():
    found = numbers_of("s3-figure-1")
    iris, oil = found["iris"], found["oil"]
    assert iris["noise_variance"] == pytest.approx(0.00201762, rel=1e-6, abs=5e-9)
    assert iris["loglikelihood"] == pytest.approx(385.865091, abs=1e-6)
    np.testing.assert_allclose(iris["eigenvalues"], [0.28011, 0.13618], atol=5e-6)
    assert iris["explained_ratio"] == pytest.approx(0.5823, abs=5e-5)
    assert iris["angle_degrees"] < 0.01
    assert iris["loglikelihood_em"] == pytest.approx(381.7190, abs=5e-5)
    assert iris["distance_converged"] < 1e-8
    assert oil["noise_variance"] == pytest.approx(0.00448638, rel=1e-6)
    assert oil["loglikelihood"] == pytest.approx(438.436424, abs=1e-6)
    assert oil["explained_ratio"] == pytest.approx(0.0871, abs=5e-5)
    assert oil["angle_degrees"] < 0.05


def test_the_picture_of_the_readme_says_what_it_shows():
    found = numbers_of("readme-picture", quick=True)
    assert found["filled_numbers"] > 50
    assert 0.8 < found["share_of_90_percent_intervals_that_hold"] < 0.97


def test_the_table_of_the_readme_is_the_file_among_the_examples():
    path = Path(__file__).parents[2] / "examples/water.csv"
    assert path.read_text("utf-8") == readme.written(readme.water()[0])
