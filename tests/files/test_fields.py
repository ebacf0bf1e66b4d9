"""Forged values: what a file says is checked when it is read, and nothing is computed for it."""

import inspect
import json
import pickle
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import pytest

import dualpca as dp
from dualpca import kernels
from dualpca.errors import DegenerateError, ModelFileError, PickleVersionWarning, SpectrumWarning
from dualpca.estimators import saving
from dualpca.estimators._streaming import Streaming
from dualpca.estimators.saving import kind_of
from dualpca.files import fields
from dualpca.models.kernel import KernelModel
from tests.files import hostile, mutations
from tests.files.forged import saved
from tests.files.saved_models import HOLES, MODELS, X, chunks

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning"),
    pytest.mark.filterwarnings("ignore::dualpca.errors.CollapseWarning"),
    pytest.mark.filterwarnings("ignore::dualpca.errors.SelectionWarning"),
]


# --- arrays --------------------------------------------------------------------------------------

MAY_BE_NAN = {
    *("ratios", "points", "rows", "values", "init", "p_values"),
    *("q2", "q2_error", "loglikelihood", "loglikelihood_error", "loglikelihoods", "bounds"),
}
"""Last part of the names of arrays in which NaN means something."""


@pytest.mark.parametrize(
    "name",
    [
        *("pca stream", "ppca nan", "ppca stream nan", "factors", "bayesian", "robust", "cca"),
        *("kernel nystrom", "kernel stream", "dual auto", "probabilistic kernel", "twin"),
        *("mixture", "mixture stream", "chain", "classes", "generator kde", "pipeline", "copula"),
    ],
)
def test_no_array_may_be_nan_unless_that_means_something(name, tmp_path):
    path, loaded = tmp_path / "m.dpca", []
    good = saved(name, path)
    for key, array in good.arrays.items():
        if array.dtype.kind != "f" or not array.size or key.split(".")[-1] in MAY_BE_NAN:
            continue
        for value in (np.nan, np.inf):
            changed = array.copy()
            changed.reshape(-1)[-1] = value
            path.write_bytes(_with(good, key, changed))
            try:
                dp.load(path)
                loaded.append((key, value))
            except ModelFileError:
                pass
    allowed = {"margins", "relevance"}  # unbounded intervals, and directions switched off
    assert [one for one in loaded if not allowed & set(one[0].split("."))] == []


def _with(file, key, array):
    arrays = dict(file.arrays)
    file.arrays = arrays | {key: array}
    data = file.bytes()
    file.arrays = arrays
    return data


NEGATIVE = {
    "mixture": ("weights", "noises", "variances"),
    "mixture stream": ("weights", "noises"),
    "kernel stream fourier": ("first.1",),
    "factors": ("noise",),
    "bayesian": ("variances", "relevance"),
    "chain": ("shares", "noises", "visits", "transitions"),
    "classes": ("priors",),
    "pca whitened": ("scale", "variances"),
    "robust": ("row_weights",),
    "copula": ("psi", "cumulative"),
    "probabilistic kernel diagonal": ("psi",),
    "pipeline": ("scale", "var"),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_weights_and_variances_are_not_negative(name, tmp_path):
    path = tmp_path / "m.dpca"
    good = saved(name, path)
    for last in NEGATIVE[name]:
        parts = [key for key in good.arrays if f".{last}." in f".{key}."]
        assert parts, last
        for key in parts:
            changed = good.arrays[key].copy()
            changed.reshape(-1)[0] -= 1 + 2 * abs(changed).max()
            path.write_bytes(_with(good, key, changed))
            with pytest.raises(ModelFileError, match=r"in the file|impossible"):
                dp.load(path)


@pytest.mark.parametrize(
    "name, field, value",
    [
        ("ppca", "noise", -1.0),
        ("ppca", "noise", {"float": "nan"}),
        ("ppca", "n_rows", -1),
        ("ppca", "n_rows", 2**70),
        ("robust", "dof", 0.0),
        ("twin", "grand_mean", {"float": "inf"}),
        ("kernel dense", "n_rows", 1.5),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(name, field, value, tmp_path):
    path = tmp_path / "m.dpca"
    good = saved(name, path)
    mutations.fields(good.text)[field] = value
    path.write_bytes(good.bytes())
    with pytest.raises(ModelFileError, match=f"{field} of "):
        dp.load(path)


def test_conditions_of_annotations():
    good = fields.within
    assert good(np.array([0.5, np.nan]), ">= 0, or nan", {})
    assert not good(np.array([0.5, np.nan]), ">= 0, or inf", {})
    assert not good(np.array([-0.5, np.nan]), ">= 0, or nan", {})
    assert good(np.inf, "> 0, or inf", {}) and not good(-np.inf, "> 0, or inf", {})
    assert good(np.array([[0.5, 0.5], [0, 1]]), "sum 1", {}) and not good(np.ones(2), "sum 1", {})
    assert not good(np.ones(0), "sum 1", {})
    assert good(3, "< d", {"d": 4}) and not good(4, "< d", {"d": 4}) and good(9, "< d", {})
    assert good(4, "== d", {"d": 4}) and not good(3, "== d", {"d": 4})
    assert good(2**63 - 1, "", {}) and not good(2**63, "", {})
    assert good(0, "<= 0", {}) and not good(1, "<= 0", {}) and not good(0, "> 0", {})


@pytest.mark.parametrize("psi", [0.0, 5e-324, 1e-300, 1e-30])
def test_a_monitor_of_a_sensor_without_noise_says_so(psi, tmp_path):
    """Each value is possible by itself; beside the others it leaves rows without a density."""
    path, key = tmp_path / "m.dpca", "model.plan.baseline.factors.psi"
    file = saved("monitor learning", path)
    file.arrays[key] = np.append(file.arrays[key][:-1], psi)
    path.write_bytes(file.bytes())
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        with pytest.raises(DegenerateError, match="noise of a sensor is nothing"):
            dp.load(path).partial_fit(X)


def test_a_seed_may_be_as_long_as_numpys(tmp_path):
    seed = 2**127 + 12345
    dp.PPCA(2, random_state=seed).fit(X).save(tmp_path / "m.dpca")
    assert dp.load(tmp_path / "m.dpca").random_state == seed


def test_what_a_file_says_is_shown_short_and_plain(tmp_path, inside):
    path = tmp_path / "m.dpca"
    names = ["a\x1b[31mred", "b" * 100_000, *"cdef"]
    model = dp.PPCA(2).fit(X)
    model.feature_names_in_ = np.array(names, dtype=object)
    table = {"columns": names, "identifier": "\x07bell"}
    model.save(path, metadata={"table": table, "\r\x1b[2K": 1})
    status, printed, _ = inside("inspect", "m.dpca", cwd=tmp_path)
    assert status == 0 and len(printed) < 3000
    assert printed.replace("\n", "").isprintable()
    assert "a\\x1b[31mred" in printed and "\\x07bell" in printed and "bbb…" in printed
    file = hostile.File(path.read_bytes())
    for params in ({"n_components": ["\x1b" * 400_000]}, {"x" * 400_000: 1}):
        file.text["model"]["params"] = params
        path.write_bytes(file.bytes())
        status, printed, said = inside("inspect", "m.dpca", cwd=tmp_path)
        assert (status, printed) == (4, "") and len(said) < 500
        assert said.replace("\n", "").isprintable()


# --- streams -------------------------------------------------------------------------------------


def test_inspect_does_not_count_the_shares_of_an_indefinite_kernel(tmp_path, inside, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(300, 3))
    with pytest.warns(SpectrumWarning):
        model = dp.KernelPCA(2, kernel="sigmoid").fit(rows)
    dp.save(model, tmp_path / "m.dpca")

    def counted(self, how):
        raise AssertionError("computed")

    monkeypatch.setattr(KernelModel, "counted", counted)
    status, printed, _ = inside("inspect", "m.dpca", cwd=tmp_path)
    assert status == 0 and "n components = 2" in printed.replace("_", " ")
    assert "explained variance ratio" not in printed


@pytest.mark.filterwarnings("ignore::dualpca.errors.SolverWarning")
def test_shares_that_cannot_be_counted_are_refused():
    model = MODELS["kernel cholesky"]()
    with pytest.raises(ValueError, match="shares of the variance"):
        replace(model._model, ratios=None)


@pytest.mark.parametrize("name", ["pca stream", "ppca stream nan", "kernel stream waiting"])
def test_inspect_computes_nothing_and_says_so(name, tmp_path, inside, monkeypatch):
    dp.save(MODELS[name](), tmp_path / "m.dpca")

    def computed(*args):
        raise AssertionError("the fit was finished")

    monkeypatch.setattr(Streaming, "solve", computed)
    status, printed, said = inside("inspect", "m.dpca", cwd=tmp_path)
    assert status == 0, said
    assert "computed when it is first used" in printed and "rows: 60" in printed
    assert "features: 6" in printed


@pytest.mark.parametrize("q", [7, 30_000_000])
def test_a_stream_has_no_more_components_than_columns(q, tmp_path):
    path = tmp_path / "m.dpca"
    chunks(dp.PPCA(2), HOLES).save(path)
    file = hostile.File(path.read_bytes())
    stream = file.text["model"]["stream"]["tuple"][0]["fields"]
    assert stream["q"] == 2
    stream["q"] = q
    path.write_bytes(file.bytes())
    with pytest.raises(ModelFileError, match=r"q of Stream in the file must be .*<= d"):
        dp.load(path)
    stream["q"], file.text["model"]["params"]["n_components"] = 2, q
    path.write_bytes(file.bytes())
    with pytest.raises(ModelFileError, match=r"n_components of PPCA .* at most 6"):
        dp.load(path)


@pytest.mark.parametrize("q", [30_000_000, [1, 7]])
def test_components_of_a_mixture_have_no_more_directions_than_columns(q, tmp_path):
    path = tmp_path / "m.dpca"
    good = saved("mixture stream waiting", path)
    good.text["model"]["params"]["n_components"] = q
    path.write_bytes(good.bytes())
    with pytest.raises(ModelFileError, match=r"n_components of MixturePPCA .* at most 6"):
        dp.load(path)


def test_a_stream_that_would_never_end_is_read_at_once(tmp_path, inside):
    model = chunks(dp.PPCA(2, tol=0.0, max_iter=10**9), HOLES)
    model.save(tmp_path / "m.dpca")
    begun = time.process_time()
    assert inside("inspect", "m.dpca", cwd=tmp_path)[0] == 0
    assert time.process_time() - begun < 60  # a billion steps would take hours


def test_a_stream_is_finished_as_its_parameters_say(tmp_path):
    """Not as they were when it began: whoever reads a file can bound the work."""
    chunks(dp.PPCA(2, tol=0.0, max_iter=10**9), HOLES).save(tmp_path / "m.dpca")
    model = dp.load(tmp_path / "m.dpca").set_params(max_iter=3)
    model.transform(HOLES)
    assert model.n_iter_ <= 4


@pytest.mark.parametrize("name", ["mixture stream", "mixture stream waiting", "kernel stream"])
def test_parts_of_a_stream_are_there_together(name, tmp_path):
    path = tmp_path / "m.dpca"
    good = saved(name, path)
    stream = good.text["model"]["stream"]["fields"]
    for field in [k for k, v in stream.items() if k not in ("K", "like", "n", "density", "kernel")]:
        kept = stream.pop(field)
        path.write_bytes(good.bytes())
        with pytest.raises(ModelFileError):
            dp.load(path)
        stream[field] = kept
    path.write_bytes(good.bytes())
    dp.load(path)


# --- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, params",
    [
        ("ppca", {"n_components": [1]}),
        ("ppca", {"n_components": -1}),
        ("ppca", {"n_components": "many"}),
        ("ppca", {"solver": 0.0}),
        ("ppca", {"random_state": -1}),
        ("pca", {"svd_solver": "fast"}),
        ("pca", {"device": "toaster"}),
        ("factors", {"rotation": []}),
        ("cca", {"regularization": -1.0}),
        ("kernel dense", {"eigen_solver": []}),
        ("kernel dense", {"kernel": "nothing"}),
        ("kernel dense", {"gamma": -1.0}),
        ("mixture", {"n_mixtures": 0}),
        ("chain", {"topology": "knot"}),
        ("classes", {"priors": "luck"}),
        ("imputer", {"method": "guess"}),
        ("imputer", {"bounds": "wide"}),
        ("generator kde", {"sampler": 1}),
        ("copula", {"noise": None}),
        ("pipeline", {"verbose": "loud"}),
    ],
)
def test_parameters_that_no_fit_accepts_are_refused_by_name(name, params, tmp_path):
    path = tmp_path / "m.dpca"
    good = saved(name, path)
    good.text["model"]["params"] |= params
    path.write_bytes(good.bytes())
    with pytest.raises(ModelFileError, match=next(iter(params))):
        dp.load(path)


def test_parameters_that_no_fit_accepts_are_not_saved(tmp_path):
    model = dp.PPCA(2).fit(X).set_params(solver="fast")
    with pytest.raises(ModelFileError, match=r"solver must be .*set_params"):
        model.save(tmp_path / "m.dpca")
    assert list(tmp_path.iterdir()) == []


def test_parameters_as_people_write_them_are_saved(tmp_path):
    model = dp.PPCA(np.int64(2), tol=1, verbose=0, max_iter=np.int32(50)).fit(X)
    model.save(tmp_path / "m.dpca")
    assert dp.load(tmp_path / "m.dpca").get_params() == model.get_params()


# --- numbers of kernels ----------------------------------------------------------------------


ROWS = np.abs(np.random.default_rng(0).normal(size=(20, 3)))
WITH_NUMBERS = {
    "rbf": kernels.RBF(gamma=0.5),
    "rbf width": kernels.RBF(length_scale=2.0),
    "rbf widths": kernels.RBF(length_scale=[1.0, 2.0, 3.0]),
    "periodic": kernels.Periodic(on=[0]),
    "scaled": 2.0 * kernels.RBF(gamma=0.5),
    "power": (kernels.Linear() + 1.5) ** 2,
    **{
        name: cls(**({"gamma": 0.3} if "gamma" in kernels.base.parameter_names(cls) else {}))
        for name, cls in kernels.KERNELS.items()
        if name not in ("rbf", "periodic", "constant")
    },
}


def numbers_in(tree):
    """Yield the fields of every kernel in JSON, and the name of one that is a number."""
    if isinstance(tree, dict) and str(tree.get("type", "")).startswith("kernels."):
        hints = fields.hints_of(TYPES[tree["type"]])
        yield from ((tree["fields"], k) for k, h in hints.items() if "Annotated" in repr(h))
    for part in tree.values() if isinstance(tree, dict) else tree if type(tree) is list else ():
        yield from numbers_in(part)


def saved_kernel(kernel, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpectrumWarning)  # some are indefinite
        dp.KernelPCA(2, kernel=kernel).fit(ROWS).save(path)
    return hostile.File(path.read_bytes())


BEYOND = (5e-324, 1e-310, 1e-200, 1e155, 1e200, 1e300, 1e308, -1e300, 10**3, 10**9, 10**18)


@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_numbers_of_kernels_that_would_overflow_are_refused_at_load(name, tmp_path):
    """What loads gives answers of numbers, or says that the result overflows: nothing else."""
    path, refused = tmp_path / "m.dpca", set()
    file = saved_kernel(WITH_NUMBERS[name], path)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for params, field in [*numbers_in(file.text["model"])]:
            kept = dict(params)
            if field in ("gamma", "length_scale") and {"gamma", "length_scale"} - {field} & {*kept}:
                continue  # of an RBF, one or the other
            for value in BEYOND:
                params[field] = value
                path.write_bytes(file.bytes())
                try:
                    model = dp.load(path)
                except ModelFileError as error:
                    refused.add(field)
                    assert field in str(error), error
                    continue
                try:
                    Z = model.transform(ROWS)
                except ValueError as error:
                    assert "overflow" in str(error), (field, value)
                else:
                    assert np.isfinite(Z).all(), (field, value)
            params.clear()
            params.update(kept)
    assert refused or name in ("linear", "cosine", "additive_chi2", "arc_cosine")


@pytest.mark.parametrize(
    "kernel, params",
    [
        ("rbf", {"gamma": 1e308}),
        ("poly", {"degree": 10**9}),
        ("poly", {"coef0": 1e300}),
        ("matern", {"kernel_params": {"dict": {"length_scale": 1e-200}}}),
        ("rational_quadratic", {"kernel_params": {"dict": {"alpha": 1e308}}}),
    ],
)
def test_numbers_beside_the_name_of_a_kernel_are_refused_too(kernel, params, tmp_path):
    path = tmp_path / "m.dpca"
    file = saved_kernel(kernel, path)
    field = next(iter(params.get("kernel_params", {"dict": params})["dict"]))
    file.text["model"]["params"] |= params
    path.write_bytes(file.bytes())
    with pytest.raises(
        ModelFileError, match=rf"{field} of \w+ in the file must be .* 1e[-+]?\d|<="
    ):
        dp.load(path)


@pytest.mark.parametrize("scale", [1e-150, 1e-100, 1e-9, 1.0, 1e9, 1e100, 1e150])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly", "sigmoid"])
def test_kernels_of_rows_of_any_scale_are_loaded(kernel, scale, tmp_path):
    path = tmp_path / "m.dpca"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = dp.KernelPCA(2, kernel=kernel, gamma="scale").fit(scale * ROWS)
    model.save(path)
    assert dp.load(path).kernel_ == model.kernel_


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.Polynomial(degree=np.int64(100), gamma=1e-3, coef0=0),
        kernels.RationalQuadratic(alpha=1e12, length_scale=np.float64(1e-12)),
        kernels.RBF(length_scale=np.array([1e-20, 1.0, 1e20])),
        kernels.Periodic(periodicity=365, length_scale=1, on=[1]),
    ],
    ids=repr,
)
def test_ordinary_and_unusual_kernels_are_loaded(kernel, tmp_path):
    model = dp.KernelPCA(2, kernel=kernel).fit(ROWS)
    model.save(tmp_path / "m.dpca")
    again = dp.load(tmp_path / "m.dpca")
    assert again.kernel_ == model.kernel_
    np.testing.assert_array_equal(again.transform(ROWS), model.transform(ROWS))


def test_a_kernel_that_could_not_be_loaded_is_not_saved(tmp_path):
    model = dp.KernelPCA(2, kernel=kernels.Polynomial(degree=150, gamma=0.01)).fit(ROWS)
    with pytest.raises(ModelFileError, match=r"degree of Polynomial .* <= 100, got 150"):
        model.save(tmp_path / "m.dpca")


def test_conditions_hold_for_every_number_of_a_sequence():
    hint = Sequence[Annotated[float, "> 0, <= 9"]]
    for good in ([1.0, 9.0], np.array([1.0, 9.0]), (2, 3)):
        assert fields.fits(good, hint, {})
    for bad in ([1.0, 10.0], np.array([1.0, 10.0]), np.array([0.0]), [np.nan], np.array([np.inf])):
        assert not fields.fits(bad, hint, {})


# --- other versions ------------------------------------------------------------------------------


def test_parameters_at_their_defaults_are_not_written(tmp_path):
    path = tmp_path / "m.dpca"
    for model in (dp.PPCA(2), dp.KernelPCA(2, kernel=dp.kernels.RBF(gamma=0.5))):
        model.fit(X).save(path)
        _, text, _ = mutations.parts(path.read_bytes())
        assert set(text["model"]["params"]) <= {"n_components", "kernel"}
        assert dp.load(path).get_params() == model.get_params()
    assert text["model"]["params"]["kernel"]["fields"] == {"gamma": 0.5}


def test_a_parameter_of_a_newer_version_is_named_with_the_version(tmp_path):
    path = tmp_path / "m.dpca"
    good = saved("ppca", path)
    good.text["model"]["params"]["shrinkage"] = 0.5
    good.text["version"] = "7.3.0"
    path.write_bytes(good.bytes())
    with pytest.raises(ModelFileError, match=r"no parameter shrinkage.*dualpca 7\.3\.0 wrote it"):
        dp.load(path)


def test_pickles_of_another_version_warn(monkeypatch):
    model = dp.PPCA(2).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pickle.loads(pickle.dumps(model))
    assert vars(again).keys() == vars(model).keys()
    with monkeypatch.context() as patch:
        patch.setattr(saving, "own_version", lambda: "0.0.7")
        written = pickle.dumps(model)
    with pytest.warns(PickleVersionWarning, match=r"PPCA was written by dualpca 0\.0\.7") as told:
        again = pickle.loads(written)
    assert told[0].filename == __file__
    assert np.array_equal(again.transform(X), model.transform(X))
    older = dp.PPCA.__new__(dp.PPCA)
    with pytest.warns(PickleVersionWarning, match="older version"):
        older.__setstate__(vars(model))


# --- drawn at random -----------------------------------------------------------------------------


def findings(folder, names, count, seed):
    """Return what hostile files of these models do that they must not, and what became of all."""
    good = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            dp.save(MODELS[name](), folder / "good")
            good[name] = (folder / "good").read_bytes()
    hostile.lay_out(folder, good, count, seed)
    run = subprocess.run(
        [sys.executable, "-m", "tests.files.hostile", str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    *found, counts = map(json.loads, run.stdout.splitlines())
    assert sum(counts.values()) == count
    return found, counts


@pytest.mark.slow
def test_hostile_files_are_refused_or_answer(tmp_path):
    found, counts = findings(tmp_path, [*MODELS][::3], 100, seed=20)
    assert found == []
    assert counts["refused"] > 50 and counts["answered"] > 5


@pytest.mark.slow
def test_two_thousand_hostile_files_are_refused_or_answer(tmp_path):
    found, counts = findings(tmp_path, MODELS, 2000, seed=0)
    assert found == []
    assert counts["refused"] > 1200 and counts["answered"] > 100


def types_in_files():
    """Return every type that some model file may hold, by its name there."""
    names = {name for name in dp.__all__ if hasattr(getattr(dp, name), "fit")} - {"KernelSearch"}
    hints = [hint for name in sorted(names) for hint in kind_of(name).hints.values()]
    return {k: v for hint in hints for k, v in fields.allowed(hint).items()}


TYPES = types_in_files()


@pytest.mark.parametrize("cls", TYPES.values(), ids=TYPES)
def test_annotations_say_what_files_hold(cls):
    """Every array has a shape in its annotation: a file is checked by it."""
    assert set(fields.hints_of(cls)) == set(inspect.signature(cls).parameters)
    own = cls.__module__.startswith(("dualpca.kernels", "dualpca.preimages"))
    loose = [name for name, hint in fields.hints_of(cls).items() if hint is Any]
    assert own or set(loose) <= {"all_n", "loglikelihood"}  # scalars of either kind


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (int, "an integer"),
        (float, "a finite number"),
        (str | None, "str or None"),
        (bool | Literal["auto", "median"], "bool or one of ['auto', 'median']"),
        (Annotated[int, "> 0"], "an integer > 0"),
        (Annotated[float, "or nan"] | None, "a number or nan or None"),
        (Annotated[np.ndarray, "m d=p"], "an array (m, d=p) of finite numbers"),
        (Annotated[np.ndarray, "n", ">= 0"], "an array (n) of finite numbers >= 0"),
        (Annotated[np.ndarray, "n", "or nan"], "an array (n) of numbers or nan"),
    ],
)
def test_annotations_in_words(hint, words):
    assert fields.in_words(hint) == words


@pytest.mark.parametrize("cls", TYPES.values(), ids=TYPES)
def test_every_annotation_has_words(cls):
    for name, hint in fields.hints_of(cls).items():
        words = fields.in_words(hint)
        assert words and not re.search(r"Annotated|Literal|Union|typing\.|<class|\[\]", words), (
            name,
            words,
        )
