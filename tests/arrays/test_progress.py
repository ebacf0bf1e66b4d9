"""Long work shows how far it has come, and can be interrupted without loss."""

import io
from pkgutil import resolve_name

import numpy as np
import pytest

from dualpca import PPCA, BayesianPCA, FactorAnalysis, Imputer
from dualpca.arrays.progress import showing, task
from dualpca.errors import InterruptWarning
from dualpca.models.bayesian import Updates
from dualpca.models.driver import Record, descend, maximize


class Terminal(io.StringIO):
    def isatty(self):
        return True


def table(n=80, d=6, q=2, holes=True, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, q)) @ rng.standard_normal((q, d)) + 0.5 * rng.standard_normal(
        (n, d)
    )
    return np.where(rng.random(X.shape) < 0.3, np.nan, X) if holes else X


# --- what is shown --------------------------------------------------------------------


def count(stream, verbose=True, total=3):
    with showing(verbose, stream), task("work", total) as tick:
        for k in range(total):
            tick(f"note {k}")
    return stream.getvalue()


def test_terminal_gets_one_line_that_is_written_over():
    text = count(Terminal())
    assert text.count("\n") == 1 and text.endswith("\n") and text.startswith("\r")
    assert "work 3 of 3, note 2" in text.split("\r")[-1] and "[####" in text


def test_file_gets_plain_lines():
    text = count(io.StringIO())
    assert "\r" not in text
    assert text.splitlines() == ["work 1 of 3, note 0", "work 3 of 3, note 2"]


def test_nothing_is_said_unless_asked():
    assert count(io.StringIO(), verbose=False) == ""


def test_shorter_words_leave_no_rest_of_longer_ones():
    out = Terminal()
    with showing(True, out, between=0.0), task("work", 2) as tick:
        tick("a long note")
        tick("short")
    first, last = out.getvalue().split("\r")[1:3]
    assert len(last) == len(first)


def test_only_the_outermost_task_talks():
    out = io.StringIO()
    with showing(True, out), task("outer", 1) as tick:
        with task("inner", 5) as inner:
            inner()
        tick()
    assert "inner" not in out.getvalue() and "outer 1 of 1" in out.getvalue()


@pytest.mark.parametrize("holes", [False, True])
def test_fit_shows_em_on_standard_error(holes, capsys):
    PPCA(2, method="em", verbose=True).fit(table(holes=holes))
    said = capsys.readouterr()
    assert "EM step" in said.err and "log-likelihood" in said.err and said.out == ""
    PPCA(2, method="em").fit(table(holes=holes))
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["cv", "cv-rows", "cv-entries", "bic"])
def test_fit_shows_the_choice(rule, capsys):
    PPCA(rule, verbose=True).fit(table())
    assert "fit" in capsys.readouterr().err


def test_imputer_shows_it_too(capsys):
    Imputer("cv", verbose=True).fit(table())
    assert "cross-validation" in capsys.readouterr().err


# --- interruption ---------------------------------------------------------------------


def interrupt_at(monkeypatch, where, call):
    """Make the call-th call of a function end as the keyboard would end it."""
    owner, name = where.rsplit(".", 1)
    owner = resolve_name(owner)
    original, calls = getattr(owner, name), []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, interrupted)


def test_interrupted_em_keeps_the_best_point():
    calls = []

    def step(theta):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return 0.9 * theta, -float(theta[0] ** 2)

    theta, record = maximize(step, np.array([1.0]), tol=0.0, accelerate=False)
    assert record.interrupted and not record.converged
    assert theta[0] == pytest.approx(0.9**3) and len(record.loglikelihoods) == 3


def test_interruption_before_the_first_step_is_passed_on():
    def step(theta):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        maximize(step, np.array([1.0]))


def test_interrupted_descent_keeps_the_last_step():
    calls = []

    def cost(x):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return float(np.sum((x - 1) ** 4)), 4 * (x - 1) ** 3

    record = Record()
    x = descend(cost, np.zeros(2), [(None, None)] * 2, record, lambda value: -value, 1e-12, 100)
    assert record.interrupted and record.n_iter == len(record.loglikelihoods) > 0
    assert record.loglikelihoods[-1] == max(record.loglikelihoods) == -float(np.sum((x - 1) ** 4))


@pytest.mark.parametrize("where", ["models.incomplete.Stack.step", "gaussian.observed.m_step"])
def test_interrupted_fit_leaves_a_model(monkeypatch, where):
    X = table()
    if where == "gaussian.observed.m_step":  # as larger tables are fitted
        monkeypatch.setattr("dualpca.models.incomplete.QUICK_ENTRIES", 0)
    interrupt_at(monkeypatch, f"dualpca.{where}", 4)
    with pytest.warns(InterruptWarning, match="interrupted after"):
        model = PPCA(2, tol=1e-12).fit(X)
    assert not model.converged_
    assert np.all(np.diff(model.loglikelihoods_) >= -1e-8)
    assert np.all(np.isfinite(model.impute(X)))


def test_interrupted_fit_of_complete_rows_leaves_a_model(monkeypatch):
    interrupt_at(monkeypatch, "dualpca.models.spiked.ppca_step", 5)
    with pytest.warns(InterruptWarning, match="interrupted"):
        model = PPCA(2, method="em", tol=1e-12).fit(table(holes=False))
    assert np.isfinite(model.loglikelihood_)


@pytest.mark.parametrize("call", [8, 60])  # in EM, and in what follows it
@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")
def test_interrupted_factor_analysis_leaves_a_model(monkeypatch, call):
    interrupt_at(monkeypatch, "dualpca.gaussian.observed.stacked_latents", call)
    with pytest.warns(InterruptWarning, match="interrupted"):
        model = FactorAnalysis(2, tol=1e-12).fit(table(n=60))
    assert np.all(np.isfinite(model.components_))


@pytest.mark.parametrize("holes", [False, True])
def test_interrupted_bound_leaves_a_model(monkeypatch, holes):
    steps = []

    def impatient(updates, at):
        steps.append(1)
        if len(steps) == 4:
            raise KeyboardInterrupt
        return step(updates, at)

    step = Updates.step
    monkeypatch.setattr(Updates, "step", impatient)
    X = table(holes=holes)
    with pytest.warns(InterruptWarning, match="interrupted after 3"):
        model = BayesianPCA(3, method="variational", tol=0.0).fit(X)
    assert len(model.bounds_) == model.n_iter_ == 3
    assert np.isfinite(model.score(X))


@pytest.mark.parametrize("where, call", [("_Stacked.scores", 3), ("hidden_score", 13)])
def test_interrupted_choice_rests_on_what_was_tried(monkeypatch, where, call):
    if where == "hidden_score":  # folds of larger tables, one by one
        monkeypatch.setattr("dualpca.models.incomplete.MOST_ENTRIES", 0)
    interrupt_at(monkeypatch, f"dualpca.models.selection.{where}", call)
    with pytest.warns(InterruptWarning, match="rests on q = 1 to 2"):
        model = PPCA("cv").fit(table())
    assert list(model.selection_.candidates) == [1, 2] and model.n_components_ == 2


def test_interrupted_choice_of_complete_rows_rests_on_the_folds_done(monkeypatch):
    X = table(holes=False)
    interrupt_at(monkeypatch, "dualpca.models.selection._trained", 4)
    with pytest.warns(InterruptWarning, match="3 of 5 folds"):
        model = PPCA("cv").fit(X)
    assert model.n_components_ == 2


@pytest.mark.parametrize(
    "where, holes",
    [
        ("dualpca.models.selection._trained", False),
        ("dualpca.models.incomplete.Stack.step", True),
    ],
)
def test_interruption_before_anything_is_known_is_passed_on(monkeypatch, where, holes):
    interrupt_at(monkeypatch, where, 1)
    with pytest.raises(KeyboardInterrupt):
        PPCA("cv").fit(table(holes=holes))
