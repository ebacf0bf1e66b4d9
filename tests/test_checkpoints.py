"""Checkpoints: a killed fit goes on where it was and ends with the same parameters."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from dualpca import PPCA, Batches, Checkpoint, MixturePPCA, load
from dualpca.errors import CheckpointError, ModelFileError
from dualpca.missing import Incomplete
from tests.test_parts import same, table
from tests.test_parts_models import MIXTURE, groups

LINEAR = ("mean_", "components_", "explained_variance_", "noise_variance_", "loglikelihood_")

FIT = """
import sys, time
import numpy as np
from dualpca import PPCA, Batches, Checkpoint, MixturePPCA
from tests.test_checkpoints import model_of, slow
kind, in_parts, path = sys.argv[1], sys.argv[2] == "parts", sys.argv[3]
model, X = model_of(kind, Checkpoint(path, seconds=0))
if in_parts:
    model.fit(slow(X))
else:
    import dualpca.missing as missing, dualpca.mixture_em as mixture_em
    plain = missing.Incomplete.sums
    def sums(*args, **options):
        time.sleep(0.01)
        return plain(*args, **options)
    missing.Incomplete.sums = sums
    step = mixture_em.Climb.step
    def later(self):
        time.sleep(0.05)
        step(self)
    mixture_em.Climb.step = later
    model.fit(X)
"""


def model_of(kind, checkpoint):
    if kind == "ppca":
        X = table(n=300, holes=0.3)
        return PPCA(2, tol=1e-10, checkpoint=checkpoint), X
    X = groups(n=400, holes=0.1, seed=5)
    X -= 0.8 * X.round(-1)  # close together, so that EM takes its time
    return MixturePPCA(3, 1, tol=1e-11, checkpoint=checkpoint), X


def slow(X):
    def batches():
        for rows in np.array_split(X, 3):
            time.sleep(0.005)
            yield rows

    return Batches(batches)


@pytest.mark.parametrize("kind", ["ppca", "mixture"])
@pytest.mark.parametrize("where", ["memory", "parts"])
def test_a_killed_fit_goes_on_and_ends_the_same(kind, where, tmp_path):
    path = tmp_path / "fit.checkpoint"
    code = [sys.executable, "-c", FIT, kind, where, str(path)]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([*sys.path, os.getcwd()]))
    killed = subprocess.Popen(code, env=environment, stderr=subprocess.PIPE)
    for _ in range(6000):
        if path.exists() or killed.poll() is not None:
            break
        time.sleep(0.01)
    time.sleep(0.1)
    killed.send_signal(signal.SIGKILL)
    said = killed.communicate()[1].decode()
    assert path.exists(), said
    resumed, X = model_of(kind, Checkpoint(path))
    fresh, _ = model_of(kind, None)
    steps = counted(resumed, X, where)
    whole = counted(fresh, X, where)
    assert steps < whole, "it began anew"
    same(resumed, fresh, 1e-12, LINEAR if kind == "ppca" else MIXTURE)
    assert resumed.n_iter_ == fresh.n_iter_
    assert resumed.loglikelihoods_ == pytest.approx(fresh.loglikelihoods_, rel=1e-12)
    assert not path.exists()


def counted(model, X, where):
    """Fit; return how many times rows were put through an E step."""
    taken = []
    plain = Incomplete.sums
    Incomplete.sums = lambda *args, **options: taken.append(1) or plain(*args, **options)
    try:
        model.fit(Batches(np.array_split(X, 3)) if where == "parts" else X)
    finally:
        Incomplete.sums = plain
    return len(taken)


def interrupted(model, X, steps=6):
    """Fit until the checkpoint has been written some times, then break off."""

    class Enough(Exception):
        pass

    from dualpca.checkpoints import Keeper

    plain, written = Keeper.offer, []

    def offer(self, state, **options):
        plain(self, state, **options)
        written.append(1)
        if len(written) == steps:
            raise Enough

    Keeper.offer = offer
    try:
        with pytest.raises(Enough):
            model.fit(X)
    finally:
        Keeper.offer = plain


@pytest.mark.parametrize("method", ["em", "closed"])
def test_complete_rows_by_em_go_on_too(method, tmp_path):
    X, path = table(n=300, holes=0.0 if method == "em" else 0.2), tmp_path / "c"
    options = {"method": method, "tol": 1e-12}
    interrupted(PPCA(2, checkpoint=Checkpoint(path, seconds=0), **options), X, 3)
    same(PPCA(2, checkpoint=str(path), **options).fit(X), PPCA(2, **options).fit(X), 1e-13)
    assert not path.exists()


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    X, path = table(n=300, holes=0.2), tmp_path / "c"
    interrupted(PPCA(2, checkpoint=Checkpoint(path, seconds=0)), X)
    with pytest.raises(CheckpointError, match=r"n_components=2 there, 3 here.*Remove it"):
        PPCA(3, checkpoint=path).fit(X)
    with pytest.raises(CheckpointError, match="other data"):
        PPCA(2, checkpoint=path).fit(table(n=300, holes=0.2, seed=1))
    with pytest.raises(CheckpointError, match="other data"):
        PPCA(2, checkpoint=path).fit(X[:-1])
    with pytest.raises(CheckpointError, match="model="):
        MixturePPCA(2, checkpoint=path).fit(X)
    assert path.exists()
    damaged = bytearray(path.read_bytes())
    damaged[-5] ^= 1
    path.write_bytes(bytes(damaged))
    with pytest.raises(ModelFileError):
        PPCA(2, checkpoint=path).fit(X)


def test_what_is_asked_of_a_checkpoint(tmp_path):
    X = table(n=200, holes=0.1)
    with pytest.raises(ValueError, match="one start"):
        PPCA(2, n_init=2, checkpoint="a").fit(X)
    with pytest.raises(ValueError, match="numbers with a checkpoint"):
        MixturePPCA("bic", checkpoint="a").fit(X)
    with pytest.raises(ValueError, match="a path or a Checkpoint"):
        PPCA(2, checkpoint=3).fit(X)
    with pytest.raises(FileNotFoundError, match="folder"):
        PPCA(2, checkpoint=tmp_path / "none" / "c").fit(X)
    with pytest.raises(ValueError, match="seconds"):
        Checkpoint("a", seconds=-1)
    with pytest.raises(ValueError, match="path"):
        Checkpoint(3)


def test_it_is_kept_if_asked_and_written_no_oftener_than_asked(tmp_path):
    X, path = table(n=200, holes=0.1), tmp_path / "c"
    PPCA(2, checkpoint=Checkpoint(path, seconds=0, keep=True)).fit(X)
    assert path.exists()
    path.unlink()
    PPCA(2, checkpoint=Checkpoint(path, seconds=1e6, keep=True)).fit(X)
    assert not path.exists()


def test_models_with_a_checkpoint_can_be_saved(tmp_path):
    X = table(n=200, holes=0.1)
    asked = Checkpoint(str(tmp_path / "c"), seconds=5.0)
    PPCA(2, checkpoint=asked).fit(X).save(tmp_path / "m.dpca")
    assert load(tmp_path / "m.dpca").checkpoint == asked


def test_all_that_steers_em_is_in_the_state():
    from dualpca.em import Record, _Climb

    def step(theta):
        return 0.9 * theta, -float(theta @ theta)

    def quiet(text=""):
        pass

    climb = _Climb(step, np.ones(3), Record(), quiet, True)
    climb.cycle(0.0, 10)
    climb.close, climb.reach = 1, 3.5
    other = _Climb(step, np.zeros(3), Record(), quiet, True, climb.state())
    for one in (climb, other):
        one.cycle(0.0, 100)
    assert (other.close, other.reach, other.record) == (climb.close, climb.reach, climb.record)
    assert np.array_equal(other.theta, climb.theta) and np.array_equal(other.first, climb.first)
    assert climb.record.n_iter > 4
