"""Checkpoints when things go wrong: the keyboard, full disks, files of other kinds, other data."""

import os
import warnings
from contextlib import suppress

import numpy as np
import pytest

import dualpca.models.bayesian
import dualpca.models.hidden_markov
import dualpca.models.mixture
from dualpca import PPCA, Batches, Checkpoint, FactorAnalysis
from dualpca.errors import (
    CheckpointError,
    CheckpointWarning,
    DualPCAError,
    InterruptWarning,
    ModelFileError,
)
from dualpca.files.checkpoints import _same
from dualpca.gaussian.observed import Incomplete
from tests.conftest import rest_slow
from tests.data.test_parts import same, table
from tests.files import hostile
from tests.files.test_checkpoints import NAMES, fitted, interrupted, model_of

STEPS = {
    "ppca": (Incomplete, "expectations"),
    "factor": (Incomplete, "expectations"),
    "ard": (Incomplete, "expectations"),
    "variational": (dualpca.models.bayesian.Updates, "step"),
    "mixture": (dualpca.models.mixture.MixtureSteps, "step"),
    "chain": (dualpca.models.hidden_markov.BaumWelch, "step"),
}


def pressed(monkeypatch, owner, name, when):
    """Let the keyboard interrupt the call with this number."""
    calls, plain = [], getattr(owner, name)

    def call(*args, **options):
        calls.append(1)
        if len(calls) == when:
            raise KeyboardInterrupt
        return plain(*args, **options)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.grid
@pytest.mark.parametrize("when", [3, 4, 9, 18])  # first and second half of a cycle; starts
@pytest.mark.parametrize("kind", list(STEPS))
def test_whatever_the_keyboard_stops_goes_on_to_the_same_end(kind, when, tmp_path, monkeypatch):
    path = tmp_path / "c"
    model, X = model_of(kind, Checkpoint(path, seconds=1e6 if when == 3 else 0))
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt), warnings.catch_warnings():
        warnings.simplefilter("ignore", InterruptWarning)  # raised where there is no result yet
        pressed(patch, *STEPS[kind], when)
        fitted(model, X)
    resumed, fresh = (fitted(model_of(kind, one)[0], X) for one in (path, None))
    same(resumed, fresh, 0.0, NAMES[kind])
    assert resumed.n_iter_ == fresh.n_iter_
    assert resumed.loglikelihoods_ == fresh.loglikelihoods_


def test_the_keyboard_stops_a_mixture_in_parts_while_it_starts(tmp_path, monkeypatch):
    path = tmp_path / "c"
    model, X = model_of("mixture", Checkpoint(path, seconds=0))
    monkeypatch.setattr("dualpca.models.emissions.START_ROWS", 100)
    rows = Batches(np.array_split(X, 3))
    with monkeypatch.context() as patch, pytest.warns(InterruptWarning):
        pressed(patch, *STEPS["mixture"], 5)
        model.fit(rows)
    assert model.n_iter_ <= 10 and not path.exists()


def test_a_full_disk_ends_no_fit(tmp_path, monkeypatch):
    X = table(n=200, holes=0.2)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dualpca.files.checkpoints.write_container", full)
    watched = PPCA(2, checkpoint=Checkpoint(tmp_path / "c", seconds=0))
    with pytest.warns(CheckpointWarning, match=r"c .*No space left.*goes on") as told:
        watched.fit(X)
    assert {os.path.basename(one.filename) for one in told} == {os.path.basename(__file__)}
    same(watched, PPCA(2).fit(X), 0.0)


def test_a_folder_that_cannot_be_written_is_found_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match=r"folder of .*c"):
        PPCA(2, checkpoint=tmp_path / "c").fit(table(n=50, holes=0.2))


def test_files_that_are_no_checkpoints_are_named_and_left_alone(tmp_path):
    X, path = table(n=200, holes=0.2), tmp_path / "c"
    interrupted(PPCA(2, checkpoint=Checkpoint(path, seconds=0)), X, 2)
    whole = path.read_bytes()
    for bad in (whole[:200], whole[:-1], whole[:-3] + b"abc", b"", b"a text"):
        path.write_bytes(bad)
        with pytest.raises(ModelFileError, match=r"c cannot be resumed: .*Remove it"):
            PPCA(2, checkpoint=path).fit(X)
        assert path.read_bytes() == bad
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileExistsError, match=r"folder is not a file"):
        PPCA(2, checkpoint=tmp_path / "folder").fit(X)


def test_a_checkpoint_of_another_version_is_refused(tmp_path, monkeypatch):
    X, path = table(n=200, holes=0.2), tmp_path / "c"
    with monkeypatch.context() as patch:
        patch.setattr("dualpca.files.checkpoints.STATE_FORMAT", 0)
        interrupted(PPCA(2, checkpoint=Checkpoint(path, seconds=0)), X, 2)
    with pytest.raises(CheckpointError, match="another version"):
        PPCA(2, checkpoint=path).fit(X)


def attacked(kind, count, tmp_path):
    """Resume from forged checkpoints of a fit; return the errors that are not the library's own."""
    path, rng, odd = tmp_path / "c", np.random.default_rng(0), []
    model, X = model_of(kind, Checkpoint(path, seconds=0))
    interrupted(model, X, 6)
    good = hostile.File(path.read_bytes())
    for data, _ in zip(hostile.checkpoints(good, rng), range(count), strict=False):
        path.write_bytes(data)
        again = model_of(kind, Checkpoint(path, seconds=1e6))[0].set_params(max_iter=20)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                fitted(again, X)
            except DualPCAError as error:
                if len(str(error)) > 1000 or not str(error).isprintable():
                    odd.append(str(error)[:200])
            except Exception as error:
                odd.append(repr(error)[:200])
    return odd


@pytest.mark.parametrize("kind", rest_slow(STEPS, ("ppca", "factor", "mixture")))
def test_forged_checkpoints_are_refused_or_resumed(kind, tmp_path):
    assert attacked(kind, 25, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(STEPS))
def test_many_forged_checkpoints_are_refused_or_resumed(kind, tmp_path):
    assert attacked(kind, 300, tmp_path) == []


def test_a_state_of_another_size_names_the_file(tmp_path):
    X, path = table(n=200, holes=0.2), tmp_path / "c"
    interrupted(PPCA(2, checkpoint=Checkpoint(path, seconds=0)), X, 2)
    file = hostile.File(path.read_bytes())
    file.arrays["state.theta"] = file.arrays["state.theta"][:5]
    path.write_bytes(file.bytes())
    with pytest.raises(CheckpointError, match=r"c cannot be resumed: .*state of this fit.*Remove"):
        PPCA(2, checkpoint=path).fit(X)
    file.arrays["state.theta"] = file.arrays["state.image"] * np.nan
    path.write_bytes(file.bytes())
    with pytest.raises(CheckpointError, match="theta in it is not finite"):
        PPCA(2, checkpoint=path).fit(X)


def test_a_small_feature_beside_a_large_one_tells_other_data():
    mean, variance = np.array([1.6e9, 0.0, 5.0]), np.array([1e14, 1e-6, 1.0])
    assert _same((mean, variance), (mean * (1 + 1e-12), variance * (1 + 1e-12)))
    assert _same((mean, variance), (mean + 1e-12, variance))
    for shift in ([1.0, 0, 0], [0, 1e-4, 0], [0, 0, 0.1]):
        assert not _same((mean, variance), (mean + np.array(shift), variance))
    assert not _same((mean, variance), (mean, variance * [1, 1, 1.01]))
    assert not _same((mean, variance), (mean[:2], variance[:2]))
    far = (np.array([1e9]), np.array([1e-3]))  # all that is left of such a variance is rounding
    assert _same(far, (far[0], far[1] * 1.01))


@pytest.mark.filterwarnings("ignore::dualpca.errors.ScaleWarning")
def test_other_data_of_small_features_are_refused(tmp_path):
    X, path = table(n=200, holes=0.2), tmp_path / "c"
    X[:, 0] *= 1e9
    interrupted(PPCA(2, checkpoint=Checkpoint(path, seconds=0)), X, 2)
    other = X.copy()
    other[:, 3] += 0.05
    with pytest.raises(CheckpointError, match="other data"):
        PPCA(2, checkpoint=path).fit(other)


@pytest.mark.parametrize(
    "mine,theirs",
    [
        ({"n_components": np.int64(2)}, {"n_components": 2}),
        ({"random_state": np.random.RandomState(0)}, {"random_state": np.random.RandomState(1)}),
        ({"tol": np.float64(1e-6)}, {"tol": 1e-6}),
    ],
    ids=["integer", "generator", "number"],
)
def test_the_same_parameters_in_other_words(mine, theirs, tmp_path):
    X, path = table(n=200, holes=0.2), tmp_path / "c"
    options = {"n_components": 2}
    interrupted(PPCA(**options | mine, checkpoint=Checkpoint(path, seconds=0)), X, 2)
    PPCA(**options | theirs, checkpoint=path).fit(X)
    assert not path.exists()


def test_a_long_start_is_compared_to_its_last_number(tmp_path):
    X, path = table(n=60, d=1200, holes=0.02), tmp_path / "c"
    start = np.linspace(0.1, 3, 1200)
    asked = {"tol": 1e-2, "max_iter": 3, "noise_variance_init": start}
    interrupted(FactorAnalysis(1, **asked, checkpoint=Checkpoint(path, seconds=0)), X, 1)
    start = start.copy()
    start[600] = 1.0
    with pytest.raises(CheckpointError, match="noise_variance_init"):
        FactorAnalysis(1, **asked | {"noise_variance_init": start}, checkpoint=path).fit(X)


def test_times_are_numbers():
    for seconds in ("soon", None, float("nan"), True):
        with pytest.raises(ValueError, match="seconds must be a number"):
            Checkpoint("a", seconds=seconds)
