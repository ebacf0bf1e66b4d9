"""Coverage: the page is what its renderer makes of stored results, and every row still runs."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dualpca
from benchmarks import coverage
from benchmarks.coverage_rows import FEATURES, GROUPS, ROWS, Count, Row, name_of, size_of

STORED = json.loads(coverage.RESULTS.read_text())

QUICK = ("scores-", "tests-", "latents-", "bounds-PPCA", "bounds-KernelPCA", "certain-Mixture")
"""Rows whose one replication takes little; of the tables by setting those of 30 rows."""


def is_quick(one):
    return one.key.startswith(QUICK) and (one.group in ("scores", "tests") or one.setting == "30")


def row(replicate, nominal=0.9):
    return Row("scores-test", "scores", "`f`", "setting", nominal, replicate, 10)


def test_the_page_is_made_of_the_stored_results():
    assert coverage.render(STORED) == coverage.PAGE.read_text()
    assert {r.group for r in ROWS.values()} == set(GROUPS)


def test_stored_results_are_of_a_whole_run():
    for key, found in STORED["rows"].items():
        assert found["replications"] >= ROWS[key].replications
        assert 0 < found["measured"] <= 1 and found["count"] > 0


@pytest.mark.xfail(reason="the stored results are older than some rows", strict=True)
def test_every_row_has_results():
    assert list(STORED["rows"]) == list(ROWS)


def test_rows_without_results_are_counted_on_the_page():
    some = {key: STORED["rows"][key] for key in list(STORED["rows"])[:2]}
    page = coverage.render({"seed": 0, "rows": some})
    assert f"2 statements ({len(ROWS) - 2} more are not measured yet)" in page


def test_a_table_by_setting_has_a_column_for_each_and_says_what_is_flagged():
    def one(key, what, setting, nominal=0.9, **more):
        return Row(key, "latents", what, setting, nominal, None, 10, **more)

    rows = [
        one("a", "`A.f`", "30", note="few rows"),
        one("b", "`A.f`", "300"),
        one("c", "`B.g`", "30", None),
        one("d", "`B.g`", "heavy", None, outside="tails"),
    ]
    shares = {"a": 0.8, "b": 0.9, "c": 0.91, "d": 0.5}
    results = {key: coverage.Result(0.9, share, 0.001, 10, 9, 0.0) for key, share in shares.items()}
    assert coverage.by_setting(rows, results) == [
        "| what | nominal, % | 30 | 300 | heavy |",
        "|---|--:|--:|--:|--:|",
        "| `A.f` | 90 | **80.0 ± 0.1** | 90.0 ± 0.1 |  |",
        "| `B.g` |  | 91.0 ± 0.1 of 90.0 |  | *50.0 ± 0.1 of 90.0* |",
        "",
        "- `A.f`, 30: **too narrow**: few rows",
    ]


def test_measuring_counts_and_has_the_error_of_independent_replications():
    shares = np.random.default_rng(0).random(50)
    draws = iter(shares)
    found = coverage.measure(row(lambda rng: Count(10 * next(draws), 10)), 50)
    assert found.measured == pytest.approx(shares.mean()) and found.count == 500
    assert found.error == pytest.approx(shares.std(ddof=1) / np.sqrt(50))
    # probabilities: beside what the model said, on average; replications count by their size
    said = coverage.measure(row(lambda rng: Count(8, 10, 7.5), None), 3)
    assert (said.nominal, said.measured, said.error) == (0.75, 0.8, 0.0)


def test_the_seed_decides():
    a, b, c = (
        coverage.measure(row(lambda rng: Count(rng.random(), 1)), 5, s).measured for s in (0, 0, 1)
    )
    assert a == b != c


def registered(monkeypatch, *rows):
    rows = {one.key: one for one in rows}
    monkeypatch.setattr(coverage, "ROWS", rows)
    return rows


def named(key, replicate, **more):
    return Row(key, "scores", "`f`", "setting", 0.9, replicate, 20, **more)


def coin(rng):
    return Count(float(rng.random() < 0.9), 1)


def failing(rng):
    raise ArithmeticError("no fit")


def test_rows_are_replicated_until_their_error_is_small(monkeypatch):
    rows = registered(monkeypatch, named("coin", coin), named("sure", lambda rng: Count(9, 10)))
    found = {one.key: result for one, result in coverage.measured(list(rows.values()), 5)}
    assert found["sure"].replications == 20
    assert 20 < found["coin"].replications <= 20 * coverage.MOST
    # the same numbers as replications one after another
    alone = coverage.measure(rows["coin"], found["coin"].replications, 5)
    assert (alone.measured, alone.error) == (found["coin"].measured, found["coin"].error)


def test_a_row_that_fails_is_told_and_a_deadline_begins_nothing(monkeypatch):
    rows = registered(monkeypatch, named("bad", failing), named("coin", coin))
    found = {one.key: result for one, result in coverage.measured(list(rows.values()), 0, times=4)}
    assert "ArithmeticError: no fit" in found["bad"] and found["coin"].replications == 4
    assert list(coverage.measured(list(rows.values()), 0, until=-1.0)) == []


@pytest.mark.slow
def test_processes_change_no_number(tmp_path):
    rows = [ROWS["scores-PPCA-5000"], ROWS["tests-parallel"]]
    one, two = (
        {row.key: found.measured for row, found in coverage.measured(rows, 1, jobs=jobs, times=9)}
        for jobs in (1, 2)
    )
    assert one == two


def command(monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["coverage", *words])
    return coverage.main()


def test_partial_results_are_continued_and_merged(monkeypatch, tmp_path, capsys):
    absent = named("away", coin, needs=("nosuchpackage",))
    rows = registered(monkeypatch, named("first", coin), named("other", coin), absent)
    here, there, page = tmp_path / "here.json", tmp_path / "there.json", tmp_path / "page.md"
    files = ["--json", str(here), "--out", str(page)]
    assert command(monkeypatch, "--seed", "7", "--only", "first", *files) == 0
    assert command(monkeypatch, "--continue", *files) == 0
    words = capsys.readouterr().out
    assert "away" in words and "nosuchpackage not installed" in words and "1 of 3 rows" in words
    stored = json.loads(here.read_text())
    assert list(stored["rows"]) == ["first", "other"] and not page.exists()
    assert {found["seed"] for found in stored["rows"].values()} == {7}
    elsewhere = {"away": {**stored["rows"]["other"], "seed": 8}, "gone": {}}
    there.write_text(json.dumps({"seed": 8, "rows": elsewhere}))
    assert command(monkeypatch, "--merge", str(there), *files) == 0
    assert list(json.loads(here.read_text())["rows"]) == list(rows)
    assert "seeds 7, 8" in page.read_text() and "3 statements" in page.read_text()
    # a run without a seed draws one, and begins anew
    assert command(monkeypatch, "--minutes", "-1", "--json", str(here), "--out", str(page)) == 0
    assert json.loads(here.read_text())["rows"] == {}


def test_a_failed_row_fails_the_run(monkeypatch, tmp_path, capsys):
    registered(monkeypatch, named("bad", failing))
    assert command(monkeypatch, "--json", str(tmp_path / "a.json")) == 1
    assert "no fit" in capsys.readouterr().out


def test_verdicts():
    def said(measured, error=0.001, nominal=0.9, **more):
        result = coverage.Result(0.9, measured, error, 10, 100, 0.0)
        return coverage.verdict(replace(row(None, nominal), **more), result)

    assert said(0.89) == "" and said(0.8) == "**too narrow**" and said(0.95) == "**cautious**"
    assert said(0.8, error=0.05) == "" and said(0.8, nominal=None) == "**too sure**"
    assert said(0.95, at_least=True) == "" and said(0.8, at_least=True) == "**too narrow**"
    assert said(0.8, outside="heavy tails") == "*outside*: heavy tails; too narrow"
    assert said(0.89, outside="heavy tails") == "*outside*: heavy tails"


def one_replication(some):
    for one in some:
        found = coverage.replicate(one, 0, 0)
        assert 0 <= found.right <= found.of and np.isfinite(found.said)


def test_one_replication_of_every_quick_row():
    one_replication(r for r in ROWS.values() if is_quick(r))


@pytest.mark.slow
def test_one_replication_of_every_other_row():
    one_replication(r for r in ROWS.values() if not is_quick(r))


@pytest.mark.slow
@pytest.mark.parametrize(
    "key",
    [
        "scores-PPCA-5000",
        "coordinates-100-100-1-new-auto",
        "loadings-variational-400-12-0",
        "missing-ppca-large",
        "tests-parallel",
    ],
)
def test_some_rows_again(key):
    stored = STORED["rows"][key]
    again = coverage.measure(ROWS[key], 60, seed=1)
    error = np.hypot(stored["error"], max(again.error, stored["error"]))
    assert abs(again.measured - stored["measured"]) <= 5 * error


# --- Every public statement of uncertainty is on the page -----------------------------------------

STATES = re.compile(
    r"std|interval|limit|threshold|p_?value|proba|posterior|predictive|conditional|outliers|novel"
    r"|calibrat|conformal|forecast|imputations|v_test|return_cov|covarianc|\blevel\b|error|filter"
    r"|impute\(X=None|reconstruct\(X=None|responsib|alarm|episode|chart|update|quality|missing_information|dof|sample_loadings"
)
"""What the name or a parameter of something public has in it that states an uncertainty."""

REASONS = {
    "conformal": "its result says it",
    "Conformal.novelty": "the function that was given",
    "Conformal.n_calibrating": "how many rows judge the others",
    "Conformal.level": "the level that was asked for",
    "CCA.calibration": "entries are counted as for the other models",
    "CopulaPPCA.calibration": "levels are counted as for the other models; it has no factor",
    "Imputer.calibration": "that of its model_",
    "Calibration.error": "what factor_interval is made of; tests/gaussian/test_calibration.py",
    "Calibration.factor_interval": "of the factor, whose rows are those of calibration",
    "get_covariance": "the covariance of rows under the model, an estimate like any other",
    "covariances_": "the covariances of rows under the model, estimates like any other",
    "x_noise_covariance_": "a parameter of the model",
    "y_noise_covariance_": "a parameter of the model",
    "start_probabilities_": "parameters of the model, not of what happened",
    "approximation_error_": "how far landmarks are from the whole kernel, on the training rows",
    "KernelPCA.novelty": "a distance; novelty_threshold and is_novel say what it means",
    "DualPPCA.novelty": "a distance without a limit",
    "Quality.novelty": "a ratio of distances",
    "sample_quality": "Quality.p_value is its test",
    "Generator.quality": "Quality.p_value is its test",
    "HierarchicalPPCA.responsibilities": "of the leaves those of predict_proba, then sums of them",
    "JointTest.dof": "of the reference distribution that gives p_value",
    "Pooled.dof": "of the reference distribution that gives interval",
    "PooledModel.dof": "of the reference distribution that gives interval",
    "PooledModel.complete_dof": "of the regression with nothing missing",
    "PooledModel.missing_information": "a share of variance, an estimate like any other",
    "Selection.q2_error": "how folds differ, a yardstick of the rule of one standard error",
    "Selection.loglikelihood_error": "how folds differ, a yardstick of that rule",
    "Pooled.std": "interval is a multiple of it",
    "Pooled.missing_information": "a share of variance, an estimate like any other",
    "PooledModel.std": "interval is a multiple of it",
    "PooledModel.to_frame": "a table of interval and p_value",
    "LatentPosterior.covariance": "what ProbabilisticKernelPCA.latent_posterior returns",
    "Monitor.chart": "judges rows as update does, without remembering them",
    "Monitor.episodes_": "the alarms of update, put together",
    "Monitor.limits_": "those that update compares rows with",
    "Outliers.at": "the flags of outliers, at another level",
    "Outliers.level": "the level that was asked for",
    "Outliers.t2_limit": "those that outliers compares rows with",
    "Outliers.spe_limit": "those that outliers compares rows with",
    "SequenceClassifier.predict_log_proba": "the logarithm of predict_proba",
    "plots": "draws what models say",
    "report": "draws what models say; its loadings have rows of their own",
}
"""What states nothing of its own, by name, or by class and name."""

QUIET = set(
    """
    aic at beside bic chains contributions decode denoise each effective_sample_size first fit
    fit_predict fit_transform get_feature_names_out get_precision gradient hotelling_t2 importances
    interpolate inverse_transform jacobian log_density log_wishart map nearest of partial_fit parts
    picked point_noise predict preimage_of_kernel preimage_weights preimages prepared projected
    r_hat reconstruct reconstruct_kernel reduce reset sample sample_features sample_features_given
    sample_kernel sample_kernel_given sample_latents sampling_operator save score score_classes
    score_kernel score_samples score_sequences seen sizes so_far spe squared_eigenvalue_ratio
    summary table test to_dual to_primal transform traverse value_and_gradient weigh with_weights
    """.split()
)
"""Methods that say nothing of how sure they are. A new one belongs here, or on the page."""

ELSEWHERE = ("dualpca.kernels", "dualpca.preimages", "dualpca.datasets", "dualpca.errors")
"""Modules without models."""


def fields_of(owner):
    """Return the fields of a class of results; none of an estimator, which has parameters."""
    cls = getattr(dualpca, owner, None) if owner else None
    if not isinstance(cls, type) or hasattr(cls, "fit"):
        return ()
    return getattr(cls, "_fields", ()) or tuple(getattr(cls, "__dataclass_fields__", ()))


def public():
    """Yield what is public as (name, line): `PPCA.posterior`, or a function by its module."""
    owner = ""
    for line in (Path(__file__).parent / "api.txt").read_text("utf-8").splitlines():
        name = line.strip().split("(")[0]
        if not line.startswith(" "):
            owner, module = name.split(".")[-1], name.rpartition(".")[0]
            if module in ELSEWHERE:
                owner = ""
            elif module in ("dualpca.plots", "dualpca.report"):
                yield module.split(".")[-1], line
            elif not owner[0].isupper():
                yield owner, line.partition("(")[0]
            yield from ((f"{owner}.{field}", field) for field in fields_of(owner))
        elif owner and not name.startswith("set_"):
            yield f"{owner}.{name}", line


def stating():
    """Return what states an uncertainty by its name or by what it can return."""
    return [name for name, line in public() if STATES.search(line)]


def excused(name):
    return name in REASONS or name.split(".")[-1] in REASONS


def rows_about(name):
    return [row for row in ROWS.values() if name_of(row) == name]


def test_every_public_statement_is_on_the_page_small_and_large():
    missing, sizes = [], {}
    for name in stating():
        if excused(name):
            continue
        found = [size_of(row) for row in rows_about(name)]
        if not found:
            missing.append(name)
        elif not (min(found) <= 60 and max(found) >= 200):
            sizes[name] = found
    assert missing == [] and sizes == {}


def test_every_other_method_is_known_to_state_nothing():
    methods = [(name, line) for name, line in public() if "(" in line and "." in name]
    new = [name for name, line in methods if not STATES.search(line)]
    assert [name for name in new if name.split(".")[1] not in QUIET] == []


def test_what_is_on_the_page_and_what_is_excused_is_public():
    names = {name for name, _ in public()}
    assert {name_of(row) for row in ROWS.values()} - {None} <= names
    members = {name.split(".")[-1] for name in names}
    assert [name for name in REASONS if name not in names | members] == []
    assert [name for name in QUIET if name not in members] == []
    # nothing is excused that is on the page
    assert [name for name in REASONS if "." in name and rows_about(name)] == []


CHUNKED = ("PCA", "PPCA", "BayesianPCA", "FactorAnalysis", "MixturePPCA", "HiddenMarkovPCA")
"""Estimators with statements that are fitted to Dask arrays and streams."""


def test_estimators_are_asked_with_gaps_heavy_tails_on_dask_and_from_a_stream():
    models = {name.split(".")[0] for name in stating() if not excused(name)}
    models = {name for name in models if hasattr(getattr(dualpca, name, None), "fit")}
    settings = {
        name: {row.setting for row in ROWS.values() if (name_of(row) or "").startswith(f"{name}.")}
        for name in models
    }
    gaps = {name for name in models if getattr(getattr(dualpca, name)(), "_accepts_nan", False)}
    assert gaps >= {"PPCA", "FactorAnalysis", "MixturePPCA", "HiddenMarkovPCA", "CCA"}
    words = {"missing": gaps, "Dask": set(CHUNKED), "stream": set(CHUNKED), "heavy": models - FEWER}
    absent = {
        word: [name for name in some if not any(word in one for one in settings[name])]
        for word, some in words.items()
    }
    assert absent == {"missing": ["KernelCCA"], "Dask": [], "stream": [], "heavy": []}
    # KernelCCA: a view is there or not, its entries are all known


FEWER = {
    "ProbabilisticKernelPCA",  # its features are drawn, given points
}
"""Estimators without rows of heavy tails, and why."""


def test_what_is_outside_the_model_says_so():
    for row in ROWS.values():
        heavy = "heavy" in row.setting and name_of(row) not in HOLDS
        other = "fixed" in row.key or row.outside == FEATURES  # the call, or another question
        assert bool(row.outside) == (heavy or other)


CALIBRATED = ("PPCA", "BayesianPCA", "RobustPPCA", "FactorAnalysis", "MixturePPCA")
"""Estimators whose intervals are corrected by the factor that hidden entries ask for."""

HOLDS = {
    *(f"{name}.calibration" for name in CALIBRATED),
    *(f"RobustPPCA.{name}" for name in ("posterior", "reconstruct", "posterior_predictive")),
    *(f"RobustPPCA.{name}" for name in ("conditional", "impute")),
    "SupplementaryLevels.v_test",  # a test of levels drawn at random
    "Quality.p_value",  # a permutation test
    *(f"Conformal.{name}" for name in ("impute", "reconstruct", "p_values")),  # for any law
}
"""What should hold with heavy tails."""
