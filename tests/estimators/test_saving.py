"""Model files: what is saved comes back to the last bit, and nothing else is let in."""

import base64
import dataclasses
import json
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import kernels as gp
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import dualpca as dp
from dualpca.errors import ModelFileError
from dualpca.estimators.saving import kind_of
from tests.conftest import rest_slow
from tests.files import hostile, mutations, saved_models, stored
from tests.files.saved_models import MODELS, NEW, outputs, same
from tests.tolerances import assert_close

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning"),
    pytest.mark.filterwarnings("ignore::dualpca.errors.CollapseWarning"),
    pytest.mark.filterwarnings("ignore::dualpca.errors.SpectrumWarning"),
    pytest.mark.filterwarnings("ignore::dualpca.errors.SelectionWarning"),
    pytest.mark.filterwarnings("ignore::dualpca.errors.SolverWarning"),
]


KINDS = (
    "batches",
    *("pca stream", "ppca", "ppca stream nan", "factors", "bayesian", "robust"),
    *("cca nan", "imputer", "monitor", "monitor learning"),
    *("kernel sparse", "dual auto", "probabilistic kernel", "twin", "mixture stream nan"),
    *("chain kernel nan", "classes", "generator mixture", "pipeline", "copula mixed"),
    *("cca kernel", "hierarchy"),
)
"""A file of every class, damaged and forged below."""

STORED = Path(__file__).parents[1] / "files" / "stored_models"


@pytest.mark.parametrize("name", rest_slow(MODELS, KINDS))
def test_a_loaded_model_gives_the_same_bits(name, tmp_path):
    model, rows = MODELS[name](), saved_models.inputs(name)
    dp.save(model, tmp_path / "m.dpca")
    again = dp.load(tmp_path / "m.dpca")
    assert type(again) is type(model)
    assert repr(again) == repr(model)
    found, wanted = outputs(again, rows), outputs(model, rows)
    main = next(wanted[key] for key in saved_models.MAIN if key in wanted)
    assert not isinstance(main, str), main
    assert found.keys() == wanted.keys()
    different = [key for key in wanted if not same(found[key], wanted[key])]
    assert different == []


STREAMS = [name for name in MODELS if "stream" in name and "fourier" not in name]


@pytest.mark.parametrize("name", STREAMS)
def test_a_loaded_stream_goes_on(name, tmp_path):
    model = MODELS[name]()
    model.save(tmp_path / "m.dpca")
    again = dp.load(tmp_path / "m.dpca")
    for one in (model, again):
        one.partial_fit(saved_models.X + 1)
    assert again.n_samples_seen_ == model.n_samples_seen_ >= 120
    assert same(again.transform(NEW), model.transform(NEW))


def test_a_stream_that_was_read_before_it_is_saved_comes_back_read(tmp_path):
    model = MODELS["ppca stream"]()
    wanted = model.transform(NEW)
    model.save(tmp_path / "m.dpca")
    again = dp.load(tmp_path / "m.dpca")
    assert "_model" in vars(again)
    assert same(again.transform(NEW), wanted)


LIBRARIES = ["ppca", "kernel nystrom", "dual auto", "cca nan", "mixture", "mixture kernel"]


@pytest.mark.parametrize("name", LIBRARIES)
def test_models_of_any_library_are_saved_as_numpy(name, backend, tmp_path):
    X = backend.asarray(saved_models.X)
    make = {
        "ppca": lambda: dp.PPCA(2).fit(X),
        "kernel nystrom": lambda: dp.KernelPCA(2, kernel="rbf", eigen_solver="nystrom").fit(X),
        "dual auto": lambda: dp.DualPPCA(2).fit(X),
        "mixture": lambda: dp.MixturePPCA(2, [1, 2]).fit(X),
        "mixture kernel": lambda: dp.MixturePPCA(2, 1, kernel="rbf", n_directions=5).fit(X),
        "cca nan": lambda: dp.CCA(1).fit(
            backend.asarray(saved_models.HOLES[:, :3]), backend.asarray(saved_models.Y)
        ),
    }
    model = make[name]()
    model.save(tmp_path / "m.dpca")
    again = dp.load(tmp_path / "m.dpca")
    rows = saved_models.inputs(name)
    found = again.transform(rows)
    assert type(found) is np.ndarray
    assert_close(found, backend.numpy(model.transform(backend.asarray(rows))), "vector")


def test_chains_and_generators_of_any_library_are_saved_as_numpy(backend, tmp_path):
    X, new = backend.asarray(saved_models.X), backend.asarray(NEW)
    chain = dp.HiddenMarkovPCA(2, 1, kernel="rbf", n_directions=5).fit(X)
    chain.save(tmp_path / "chain")
    found = dp.load(tmp_path / "chain").predict_proba(NEW)
    assert type(found) is np.ndarray
    assert_close(found, backend.numpy(chain.predict_proba(new)), "vector")
    made = dp.Generator(dp.PPCA(2)).fit(X)
    made.save(tmp_path / "made")
    found = dp.load(tmp_path / "made").sample(3, random_state=0)
    assert type(found) is np.ndarray
    assert_close(found, backend.numpy(made.sample(3, random_state=0)), "vector")


def test_a_pipeline_with_a_step_that_files_do_not_know_is_refused(tmp_path):
    model = make_pipeline(MinMaxScaler(), dp.PPCA(1)).fit(saved_models.X)
    with pytest.raises(ModelFileError, match="MinMaxScaler"):
        dp.save(model, tmp_path / "m.dpca")
    with pytest.raises(NotFittedError):
        dp.save(make_pipeline(dp.PPCA(1)), tmp_path / "m.dpca")
    assert list(tmp_path.iterdir()) == []


def test_feature_names_and_output_frames_come_back(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(saved_models.HOLES, columns=[*"abcde", "σ² \u2028"])
    for model in (dp.PPCA(2), dp.Imputer(2, add_indicator=True)):
        model.fit(frame).set_output(transform="pandas")
        model.save(tmp_path / "m.dpca")
        again = dp.load(tmp_path / "m.dpca")
        pd.testing.assert_frame_equal(again.transform(frame), model.transform(frame), rtol=0)
        assert list(again.get_feature_names_out()) == list(model.get_feature_names_out())
        with pytest.raises(ValueError, match="feature names"):
            again.transform(frame.rename(columns={"a": "z"}))


@pytest.mark.slow
def test_a_long_history_is_kept_beside_the_header(tmp_path):
    model = dp.PPCA(2).fit(saved_models.X)
    values = (*np.random.default_rng(0).normal(size=300_000).tolist(), np.inf)
    history = dataclasses.replace(model._model.history, loglikelihoods=values)
    model._model = dataclasses.replace(model._model, history=history)
    model.save(tmp_path / "m.dpca")
    assert dp.load(tmp_path / "m.dpca").loglikelihoods_ == model.loglikelihoods_


def test_names_that_are_too_long_are_refused(tmp_path):
    model = dp.PPCA(2).fit(saved_models.X)
    model.feature_names_in_ = np.array([*"abcde", "f" * 5_000_000], dtype=object)
    with pytest.raises(ModelFileError, match="shorter feature names"):
        model.save(tmp_path / "m.dpca")


AROUND = {"FrozenEstimator", "Pipeline", "StandardScaler"}
"""What scikit-learn puts around models, and files know too."""


def test_every_estimator_can_be_saved():
    public = {name for name in dp.__all__ if hasattr(getattr(dp, name), "fit")}
    assert all(hasattr(getattr(dp, name), "save") for name in public)
    public.remove("KernelSearch")  # what it saves is the model it found
    assert all(kind_of(name) for name in public | AROUND)
    assert not any(kind_of(name) for name in ("KernelSearch", "Batches", "save", "object"))
    assert public < {type(make()).__name__ for make in MODELS.values()}


def shared_letters(a, b):
    return float(len(set(a) & set(b)))


UNSAVABLE = {
    "a function": (lambda: dp.KernelPCA(1, kernel=np.dot).fit(saved_models.X), "is code"),
    "items": (lambda: dp.KernelPCA(1, kernel=shared_letters).fit(["ab", "bc", "d"]), "is code"),
    "a metric": (
        lambda: dp.ProbabilisticKernelPCA(1, metric=lambda a, b: abs(a - b).sum()).fit(
            saved_models.X
        ),
        "is code",
    ),
    "scikit-learn's kernel": (
        lambda: dp.KernelPCA(1, kernel=gp.RBF(2.0)).fit(saved_models.X),
        "dualpca.kernels.translate",
    ),
    "a generator": (
        lambda: dp.PPCA(1, random_state=np.random.default_rng(0)).fit(saved_models.X),
        "set_params\\(random_state=0\\)",
    ),
    "one's own class": (lambda: Own(1).fit(saved_models.X), "something that can be saved"),
}


class Own(dp.PCA):
    """A class that files know nothing of."""

    def __init__(self, n_components=None):
        super().__init__(n_components)


@pytest.mark.parametrize("make, words", UNSAVABLE.values(), ids=UNSAVABLE)
def test_what_cannot_be_saved_is_refused_and_leaves_no_file(make, words, tmp_path):
    model = make()
    with pytest.raises(ModelFileError, match=words):
        model.save(tmp_path / "m.dpca")
    assert list(tmp_path.iterdir()) == []


def test_an_unfitted_model_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        dp.PPCA(1).save(tmp_path / "m.dpca")


def test_a_translated_kernel_can_be_saved(tmp_path):
    kernel = dp.kernels.translate(2.0 * gp.RBF(0.5) + gp.WhiteKernel())
    dp.KernelPCA(1, kernel=kernel).fit(saved_models.X).save(tmp_path / "m.dpca")
    assert dp.load(tmp_path / "m.dpca").kernel == kernel


def test_saving_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "m.dpca"
    dp.PCA(1).fit(saved_models.X).save(path)
    before = path.read_bytes()

    def interrupted(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dp.PCA(2).fit(saved_models.X).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_saving_says_why_it_cannot(tmp_path):
    model = dp.PCA(1).fit(saved_models.X)
    with pytest.raises(FileNotFoundError, match="create it first"):
        model.save(tmp_path / "nowhere" / "m.dpca")
    with pytest.raises(FileExistsError, match="not a file"):
        model.save(tmp_path)
    with pytest.raises(FileNotFoundError):
        dp.load(tmp_path / "nothing.dpca")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ModelFileError, match="not a regular file"):
        dp.load(pipe)


def test_saving_follows_links_and_twice_is_the_same(tmp_path):
    model, path, link = dp.PPCA(2).fit(saved_models.X), tmp_path / "m.dpca", tmp_path / "link"
    model.save(path)
    before = path.read_bytes()
    link.symlink_to(path)
    model.save(link)
    assert link.is_symlink()
    assert path.read_bytes() == before
    dp.load(path).save(link)
    assert path.read_bytes() == before


def test_the_same_array_is_stored_once(tmp_path):
    model = dp.KernelPCA(2, kernel="rbf").fit(saved_models.X)
    model.save(tmp_path / "m.dpca")
    header, _, _ = mutations.parts((tmp_path / "m.dpca").read_bytes())
    places = [k for k, v in header.items() if v.get("shape") == list(saved_models.X.shape)]
    assert len(places) == 1
    again = dp.load(tmp_path / "m.dpca")
    assert again._model.subspace.points is again.X_fit_


@pytest.fixture(scope="module")
def good_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in KINDS:
            metadata = {"table": {"means": [0.5] * 6}} if name == "ppca" else None
            dp.save(MODELS[name](), folder / name, metadata=metadata)
    return [path.read_bytes() for path in sorted(folder.iterdir())]


WATCHED = """
import json, os, resource, sys, tracemalloc, warnings
import numpy as np
import dualpca as dp
from dualpca.errors import ModelFileError
import array_api_compat.numpy, sklearn.impute  # which the library imports when first needed

seen, folder, count = [], sys.argv[1], int(sys.argv[2])
FORBIDDEN = ("exec", "compile", "import", "pickle.find_class", "os.system", "subprocess.Popen",
             "os.exec", "os.posix_spawn", "marshal.loads", "ctypes.dlopen", "socket.connect")
good = dp.load(f"{folder}/good")
# modules and annotations of the library itself, which are read when first needed
from dualpca.estimators.saving import _parameter_hints, kind_of, parameter_types
from dualpca.files import fields
kinds = [kind for kind in map(kind_of, (*dp.__all__, "StandardScaler", "Pipeline")) if kind]
hints = [hint for kind in kinds for hint in kind.hints.values()]
known = [cls for hint in hints for cls in fields.allowed(hint).values()]
for cls in (*known, *parameter_types().values()):
    fields.hints_of(cls)
for kind in kinds:
    _parameter_hints(kind.cls)
sys.addaudithook(lambda event, args: seen.append(event) if event in FORBIDDEN else None)
def highest():  # of this program; a peak of its parent would count in ru_maxrss
    if not os.path.exists("/proc/self/status"):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(s.split()[1]) for s in open("/proc/self/status") if s.startswith("VmHWM"))
before = highest()
answers = []
tracemalloc.start()
for i in range(count):
    try:
        dp.load(f"{folder}/{i}")
        answers.append(f"{i} was loaded")
    except ModelFileError as error:
        if len(str(error)) > 1000:
            answers.append(f"{i}: endless words")
    except BaseException as error:
        answers.append(f"{i}: {error!r}")
grown = highest() - before
found = {"answers": answers, "seen": sorted(set(seen)), "kilobytes": grown}
print(json.dumps(found | {"peak": tracemalloc.get_traced_memory()[1]}))
"""


@pytest.mark.slow
def test_damaged_and_forged_files_are_refused_and_nothing_runs(good_files, tmp_path):
    files = mutations.every(good_files)
    assert len(files) > 700
    for i, data in enumerate(files):
        (tmp_path / str(i)).write_bytes(data)
    (tmp_path / "good").write_bytes(good_files[0])
    run = subprocess.run(
        [sys.executable, "-c", WATCHED, str(tmp_path), str(len(files))],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    found = json.loads(run.stdout)
    assert found["answers"] == []
    assert found["seen"] == []
    assert found["kilobytes"] < 200_000
    assert 1_000_000 < found["peak"] < 200_000_000
    assert not (tmp_path / "executed").exists()


def test_every_class_is_among_the_files_that_are_forged():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {type(MODELS[name]()).__name__ for name in KINDS}
    public = {name for name in dp.__all__ if hasattr(getattr(dp, name), "fit")}
    assert found >= (public | {"Pipeline"}) - {"KernelSearch"}


def test_forgeries_are_made_of_good_files(good_files, tmp_path):
    """Taken apart and signed again without a change, a file is loaded: mutations are to blame."""
    for data in good_files:
        (tmp_path / "m.dpca").write_bytes(mutations.signed(*mutations.parts(data)))
        dp.load(tmp_path / "m.dpca")


@pytest.mark.parametrize("name", rest_slow(MODELS, KINDS))
def test_no_array_may_be_flat_or_turned(name, tmp_path):
    dp.save(MODELS[name](), tmp_path / "m.dpca")
    header, text, body = mutations.parts((tmp_path / "m.dpca").read_bytes())
    loaded = []
    for key, entry in header.items():
        if key in (
            "__metadata__",
            "init",
            "n_components",
        ):  # a parameter is checked by the fit that uses it
            continue
        shape = entry["shape"]
        for other in ([1, *shape], [int(np.prod(shape))], shape[::-1]):
            if other == shape:
                continue
            forged = mutations.signed({**header, key: {**entry, "shape": other}}, text, body)
            (tmp_path / "m.dpca").write_bytes(forged)
            try:
                dp.load(tmp_path / "m.dpca")
                loaded.append((key, shape, other))
            except ModelFileError:
                pass
    assert loaded == []


@pytest.mark.parametrize(
    "data, words",
    [
        (pickle.dumps([1.0]), "never loads pickles"),
        (b"PK\x03\x04" + b"a" * 99, "zip archive"),
        (b"\x1f\x8b" + b"a" * 99, "gzip"),
        (b"", "0 bytes"),
    ],
)
def test_what_else_it_is_is_said(data, words, tmp_path):
    (tmp_path / "m.dpca").write_bytes(data)
    with pytest.raises(ModelFileError, match=words):
        dp.load(tmp_path / "m.dpca")


def test_a_sparse_matrix_that_points_outside_is_refused(tmp_path):
    """SciPy's compiled loops trust indices: they are checked before."""
    MODELS["kernel sparse"]().save(tmp_path / "m.dpca")
    header, text, body = mutations.parts((tmp_path / "m.dpca").read_bytes())
    begin, _ = header["model.subspace.points.indices"]["data_offsets"]
    forged = body[:begin] + (2**30).to_bytes(4, "little") + body[begin + 4 :]
    (tmp_path / "m.dpca").write_bytes(mutations.signed(header, text, forged))
    with pytest.raises(ModelFileError, match="impossible sparse matrix"):
        dp.load(tmp_path / "m.dpca")


def test_a_sparse_matrix_whose_rows_end_before_they_begin_is_refused(tmp_path):
    """SciPy checks nothing where the last row ends at a negative place."""
    MODELS["kernel sparse"]().save(tmp_path / "m.dpca")
    file = hostile.File((tmp_path / "m.dpca").read_bytes())
    file.arrays["model.subspace.points.indptr"] = -file.arrays["model.subspace.points.indptr"]
    (tmp_path / "m.dpca").write_bytes(file.bytes())
    with pytest.raises(ModelFileError, match="impossible sparse matrix"):
        dp.load(tmp_path / "m.dpca")


def test_files_of_a_newer_format_name_the_remedy(good_files, tmp_path):
    header, text, body = mutations.parts(good_files[0])
    (tmp_path / "m.dpca").write_bytes(mutations.signed(header, text | {"format": 2}, body))
    with pytest.raises(ModelFileError, match="Install the version"):
        dp.load(tmp_path / "m.dpca")


@pytest.mark.parametrize("path", sorted(STORED.glob("*.txt")), ids=lambda path: path.stem)
def test_files_of_every_release_are_read(path, tmp_path):
    """Stored models of a release, as text: base64 of the file, then what it says of a row."""
    *lines, answer = path.read_text().split()
    (tmp_path / "m.dpca").write_bytes(base64.b64decode("".join(lines)))
    model, metadata = dp.load(tmp_path / "m.dpca", return_metadata=True)
    _, _, kind = path.stem.partition("-")
    assert_close(stored.ANSWERS[kind](model), float(answer), "vector")
    assert metadata == stored.METADATA


def test_the_stored_models_of_this_release_are_there():
    found = {path.stem for path in STORED.glob(f"{dp.__version__}*.txt")}
    assert found == {f"{dp.__version__}-{kind}" for kind in stored.MAKE}
