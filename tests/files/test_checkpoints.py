"""Checkpoints: a killed fit goes on where it was and ends with the same parameters."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from dualpca import (
    PPCA,
    Batches,
    BayesianPCA,
    Checkpoint,
    FactorAnalysis,
    HiddenMarkovPCA,
    MixturePPCA,
    SequenceClassifier,
    load,
)
from dualpca.errors import CheckpointError, InterruptWarning, ModelFileError
from dualpca.files.checkpoints import CheckpointKeeper
from dualpca.gaussian.observed import Incomplete
from dualpca.models.incomplete import Stack
from tests.conftest import rest_slow
from tests.data.test_parts import same, table
from tests.models.test_parts_models import MIXTURE, groups

LINEAR = ("mean_", "components_", "explained_variance_", "noise_variance_", "loglikelihood_")

FIT = """
import sys, time
import numpy as np
from tests.files.test_checkpoints import Checkpoint, fitted, model_of, slow, slow_steps
kind, in_parts, path = sys.argv[1], sys.argv[2] == "parts", sys.argv[3]
model, X = model_of(kind, Checkpoint(path, seconds=0))
slow_steps()
fitted(model, slow(X) if in_parts else X)
"""

LENGTHS = (60, 90, 50, 100)
CHAIN = ("start_probabilities_", "transitions_", "means_", "noise_variances_", "visits_")
FACTORS = ("mean_", "components_", "noise_variance_", "loglikelihood_")
BAYES = (*LINEAR, "relevance_", "loadings_std_", "bound_")
NAMES = {"ppca": LINEAR, "mixture": MIXTURE, "factor": FACTORS, "ard": BAYES}
NAMES |= {"variational": BAYES, "chain": CHAIN}


def slow_steps():
    """Make every step take its time, so that there is a middle to kill in."""
    import dualpca.gaussian.observed as missing
    import dualpca.models.hidden_markov as hidden_markov
    import dualpca.models.mixture as mixture_em

    for owner, name, seconds in (
        (missing.Incomplete, "expectations", 0.01),
        (Stack, "step", 0.05),
        (mixture_em.MixtureSteps, "step", 0.05),
        (hidden_markov.BaumWelch, "step", 0.05),
    ):
        setattr(owner, name, later(getattr(owner, name), seconds))


def later(plain, seconds):
    def call(*args, **options):
        time.sleep(seconds)
        return plain(*args, **options)

    return call


def fitted(model, X):
    """Fit; a chain's sequences do not cross the three parts that `slow` makes."""
    if isinstance(model, HiddenMarkovPCA):
        return model.fit(X, lengths=np.repeat(50, 6))
    return model.fit(X)


def model_of(kind, checkpoint):
    if kind == "ppca":
        X = table(n=300, holes=0.3)
        return PPCA(2, tol=1e-10, checkpoint=checkpoint), X
    if kind == "factor":
        X = table(n=300, d=9, holes=0.2)
        return FactorAnalysis(3, tol=1e-7, checkpoint=checkpoint), X
    if kind in ("ard", "variational"):
        X = table(n=300, d=7, holes=0.2)
        return BayesianPCA(method=kind, tol=1e-11, checkpoint=checkpoint), X
    if kind == "chain":
        X = groups(n=300, holes=0.1, seed=5)
        X -= 0.8 * X.round(-1)
        return HiddenMarkovPCA(3, 1, tol=1e-12, stickiness=2.0, checkpoint=checkpoint), X
    X = groups(n=400, holes=0.1, seed=5)
    X -= 0.8 * X.round(-1)  # close together, so that EM takes its time
    return MixturePPCA(3, 1, tol=1e-11, checkpoint=checkpoint), X


def slow(X):
    def batches():
        for rows in np.array_split(X, 3):
            time.sleep(0.005)
            yield rows

    return Batches(batches)


@pytest.mark.grid
@pytest.mark.parametrize("kind", rest_slow(NAMES, ["ppca", "chain"]))
@pytest.mark.parametrize("where", ["memory", "parts"])
@pytest.mark.slow
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
    same(resumed, fresh, 1e-12, NAMES[kind])
    assert resumed.n_iter_ == fresh.n_iter_
    assert resumed.loglikelihoods_ == pytest.approx(fresh.loglikelihoods_, rel=1e-12)
    assert not path.exists()


def counted(model, X, where):
    """Fit; return how many times rows were put through an E step."""
    taken = []

    def noted(plain):
        return lambda *args, **options: taken.append(1) or plain(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Incomplete, "expectations", noted(Incomplete.expectations))
        patch.setattr(Stack, "step", noted(Stack.step))
        fitted(model, Batches(np.array_split(X, 3)) if where == "parts" else X)
    return len(taken)


@pytest.mark.grid
@pytest.mark.parametrize("when", [1, 2, 9, 20])  # 20: in quasi-Newton, where there is one
@pytest.mark.parametrize("where", ["memory", "parts"])
@pytest.mark.parametrize("kind", ["factor", "ard", "variational", "chain"])
def test_a_fit_that_breaks_off_at_any_step_ends_the_same(kind, where, when, tmp_path):
    path = tmp_path / "c"
    asked = Checkpoint(path, seconds=0)
    model, X = model_of(kind, asked)
    rows = Batches(np.array_split(X, 3)) if where == "parts" else X
    interrupted(model, rows, when)
    resumed, fresh = (model_of(kind, one)[0] for one in (asked, None))
    fitted(resumed, rows)
    fitted(fresh, rows)
    for name in NAMES[kind]:
        assert np.array_equal(getattr(resumed, name), getattr(fresh, name)), name
    assert resumed.loglikelihoods_ == fresh.loglikelihoods_
    assert resumed.n_iter_ == fresh.n_iter_ and not path.exists()


@pytest.mark.parametrize("kind", rest_slow(["factor", "ard", "variational", "chain"], ["ard"]))
def test_a_fit_that_breaks_off_just_before_its_end_ends_the_same(kind, tmp_path, monkeypatch):
    """Whether to stop depends on the last gains: they belong to the state."""
    asked, offers = Checkpoint(tmp_path / "c", seconds=0), []
    with monkeypatch.context() as patch:
        plain = CheckpointKeeper.offer
        patch.setattr(
            CheckpointKeeper, "offer", lambda *args, **o: offers.append(1) or plain(*args, **o)
        )
        whole = fitted(*model_of(kind, asked))
    for left in (0, 1):
        interrupted(*model_of(kind, asked), len(offers) - left)
        resumed = fitted(*model_of(kind, asked))
        same(resumed, whole, 0.0, NAMES[kind])
        assert resumed.loglikelihoods_ == whole.loglikelihoods_
        assert resumed.n_iter_ == whole.n_iter_


@pytest.mark.grid
@pytest.mark.parametrize("when", [1, 7])
@pytest.mark.parametrize("where", ["memory", "parts"])
@pytest.mark.parametrize("kind", ["profile", "em", "variational"])
def test_complete_rows_that_iterate_go_on_too(kind, where, when, tmp_path, monkeypatch):
    if kind == "em":
        monkeypatch.setattr("dualpca.models.factor.DENSE_LIMIT", 5)
    X, asked = table(n=300, d=9), Checkpoint(tmp_path / "c", seconds=0)
    rows = Batches(np.array_split(X, 3)) if where == "parts" else X

    def model(checkpoint):
        if kind == "variational":
            return BayesianPCA(method="variational", tol=1e-11, checkpoint=checkpoint)
        return FactorAnalysis(3, tol=1e-6, checkpoint=checkpoint)

    # Newton's method ends after a few steps
    interrupted(model(asked), rows, min(when, 3) if kind == "profile" else when)
    names = BAYES if kind == "variational" else FACTORS
    same(model(asked).fit(rows), model(None).fit(rows), 0.0, names)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("kind", ["factor", "ard", "variational", "chain"])
def test_what_another_model_left_is_refused(kind, tmp_path):
    path = tmp_path / "c"
    model, X = model_of(kind, Checkpoint(path, seconds=0))
    interrupted(model, X, 2)
    with pytest.raises(CheckpointError, match="tol="):
        fitted(model_of(kind, path)[0].set_params(tol=0.5), X)
    with pytest.raises(CheckpointError, match="other data"):
        fitted(model_of(kind, path)[0], X + 1)
    with pytest.raises(CheckpointError, match="model="):
        PPCA(2, checkpoint=path).fit(X)


def test_sequences_that_end_elsewhere_are_other_data(tmp_path):
    path = tmp_path / "c"
    model, X = model_of("chain", Checkpoint(path, seconds=0))
    interrupted(model, X, 2)
    with pytest.raises(CheckpointError, match=r"lengths=6 sequences \(\w+\) there, 4 sequences"):
        model_of("chain", path)[0].fit(X, lengths=LENGTHS)
    same(
        model_of("chain", path)[0].fit(X, lengths=[50] * 6),
        fitted(*model_of("chain", None)),
        0,
        CHAIN,
    )


def test_a_chain_with_a_kernel_goes_on_too(tmp_path):
    X = groups(n=300, seed=5)
    asked = Checkpoint(tmp_path / "c", seconds=0)
    options = {"n_states": 3, "n_components": 1, "kernel": "rbf", "gamma": 0.05}
    options |= {"n_directions": 6, "n_mixtures": 2}
    options |= {"tied_noise": True, "prior_rows": 3.0}
    interrupted(HiddenMarkovPCA(**options, checkpoint=asked), X, 3)
    resumed = fitted(HiddenMarkovPCA(**options, checkpoint=asked), X)
    same(resumed, fitted(HiddenMarkovPCA(**options), X), 0.0, (*CHAIN, "weights_"))


def test_a_classifier_has_no_checkpoint_for_its_models():
    X = groups(n=40)
    with pytest.raises(ValueError, match="one model per class"):
        SequenceClassifier(HiddenMarkovPCA(checkpoint="a")).fit(X, [0, 1], lengths=[20, 20])


@pytest.mark.parametrize("holes", [0.0, 0.2])
def test_a_start_that_was_given_is_kept(holes, tmp_path):
    X = table(n=300, d=9, holes=holes)
    options = {"noise_variance_init": np.linspace(0.1, 3, 9), "tol": 1e-3}
    watched = FactorAnalysis(3, **options, checkpoint=tmp_path / "c").fit(X)
    same(watched, FactorAnalysis(3, **options).fit(X), 0.0, FACTORS)
    assert watched.loglikelihoods_[0] != FactorAnalysis(3, tol=1e-3).fit(X).loglikelihoods_[0]


def test_a_fit_that_the_keyboard_stops_can_be_gone_on_from(tmp_path):
    path = tmp_path / "c"
    model, X = model_of("factor", Checkpoint(path, seconds=1e6))
    fresh = fitted(*model_of("factor", None))
    calls, plain = [], Incomplete.expectations

    def stopped(*args, **options):
        calls.append(1)
        if len(calls) == 45:  # in quasi-Newton
            raise KeyboardInterrupt
        return plain(*args, **options)

    Incomplete.expectations = stopped
    try:
        with pytest.warns(InterruptWarning):
            model.fit(X)
    finally:
        Incomplete.expectations = plain
    assert path.exists()
    resumed = model_of("factor", path)[0].fit(X)
    same(resumed, fresh, 0.0, FACTORS)
    assert resumed.n_iter_ == fresh.n_iter_


def interrupted(model, X, steps=6):
    """Fit until the checkpoint has been written some times, then break off."""

    class Enough(Exception):
        pass

    plain, written = CheckpointKeeper.offer, []

    def offer(self, state, **options):
        plain(self, state, **options)
        written.append(1)
        if len(written) == steps:
            raise Enough

    CheckpointKeeper.offer = offer
    try:
        with pytest.raises(Enough):
            fitted(model, X)
    finally:
        CheckpointKeeper.offer = plain


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
        MixturePPCA(2, 1, checkpoint=path).fit(X)
    assert path.exists()
    damaged = bytearray(path.read_bytes())
    damaged[-5] ^= 1
    path.write_bytes(bytes(damaged))
    with pytest.raises(ModelFileError):
        PPCA(2, checkpoint=path).fit(X)


@pytest.mark.parametrize("kind", [MixturePPCA, HiddenMarkovPCA])
def test_sizes_are_chosen_before_there_is_a_checkpoint(kind, tmp_path):
    X = groups(n=300, seed=5)
    path = tmp_path / "c"
    model, plain = kind(checkpoint=Checkpoint(path, seconds=0)).fit(X), kind().fit(X)
    assert not path.exists() and model.selection_.chosen == plain.selection_.chosen
    assert model.score(X) == plain.score(X)


def test_what_is_asked_of_a_checkpoint(tmp_path):
    X = table(n=200, holes=0.1)
    with pytest.raises(ValueError, match="one start"):
        PPCA(2, n_init=2, checkpoint="a").fit(X)
    with pytest.raises(ValueError, match="one start"):
        HiddenMarkovPCA(2, 1, n_init=2, checkpoint="a").fit(X)
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


@pytest.mark.parametrize("bolder", [False, True])
@pytest.mark.parametrize("before", range(6))
def test_all_that_steers_em_is_in_the_state(before, bolder):
    from dualpca.models.driver import Record, _Climb

    rates = np.array([0.9, 0.7, 0.3])

    def step(theta):  # every second bolder step fails, so that doubts count
        away = (-3.0 if len(calls) % 2 else 0.2) * theta
        calls.append(theta)
        return (rates * theta, -float(theta @ theta), *([away] if bolder else []))

    def quiet(text=""):
        pass

    calls = []
    climb = _Climb(step, np.ones(3), Record(), quiet, True)
    for _ in range(before):
        climb.advance(0.0, 100)
    climb.close, taken = 1, len(calls)
    other = _Climb(step, np.zeros(3), Record(), quiet, True, climb.state())
    ends = []
    for one in (climb, other):
        calls = calls[:taken]
        for _ in range(3):
            one.advance(0.0, 100)
        ends.append(one.state())
    (arrays, numbers), (again, same) = ends
    assert numbers == same and arrays.keys() == again.keys()
    assert all(np.array_equal(A, again[name]) for name, A in arrays.items())
    assert climb.record.n_iter > before + 3


def test_all_that_steers_variational_steps_is_in_the_state():
    from dualpca.models.bayesian import Beliefs, _packed, _unpacked

    rng = np.random.default_rng(0)
    shapes = ((4, 2), (4, 2, 2), (4,), (4,), (2,))
    pair = [Beliefs(*(rng.random(shape) for shape in shapes), 1 / k) for k in (3, 7)]
    back = _unpacked(_packed(pair), pair[0].W)  # the record is kept by `iterate`
    for at, again in zip(pair, back, strict=True):
        assert again.tau_rate == at.tau_rate
        for name in ("W", "S", "mu", "v", "rate"):
            assert np.array_equal(getattr(again, name), getattr(at, name)), name
