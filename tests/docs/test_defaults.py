"""The tables of defaults say what the code does."""

import inspect
import re
import warnings

import numpy as np
import pytest

import dualpca
from dualpca.app.cli import build
from tests.docs import snippets

PAGE = (snippets.ROOT / "docs/reference/defaults.md").read_text("utf-8")
ROW = re.compile(r"^\| \{class\}`(\w+) <dualpca\.\1>`((?: \| [^|]+){6}) \|$", re.M)
TABLE = {m[1]: [cell.strip() for cell in m[2].split(" | ")[1:]] for m in ROW.finditer(PAGE)}
ESTIMATORS = [n for n in dualpca.__all__ if hasattr(getattr(dualpca, n), "fit")]
FITTED_BY = {  # what a shell fits where no model is given
    "Monitor": dualpca.RobustPPCA(standardize=True),
    "SequenceClassifier": dualpca.HiddenMarkovPCA(),
}
STATED = {"standardize": 0, "tol": 2, "device": 3, "dtype": 4}


def default(name, parameter):
    """Return the default of a parameter, of an estimator or of the model that it fits."""
    model = FITTED_BY.get(name)
    own = inspect.signature(getattr(dualpca, name)).parameters
    if model is not None and parameter not in own:
        return model.get_params(deep=False).get(parameter, "-")
    return own[parameter].default if parameter in own else "-"


def shown(value):
    if value == "-":
        return "-"
    if isinstance(value, float):
        return "`" + f"{value:g}".replace("e-0", "e-").replace("0.0001", "1e-4") + "`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def test_the_table_has_every_estimator_with_one_of_these_parameters():
    names = [*STATED, "n_components"]
    wanted = {n for n in ESTIMATORS if any(default(n, p) != "-" for p in names)}
    assert set(TABLE) == wanted
    for name in set(ESTIMATORS) - wanted:
        assert f"{{class}}`{name} <dualpca.{name}>`" in PAGE


@pytest.mark.parametrize("parameter", STATED)
def test_defaults_are_those_of_the_code(parameter):
    told = {name: cells[STATED[parameter]] for name, cells in TABLE.items()}
    assert told == {name: shown(default(name, parameter)) for name in TABLE}


def test_intervals_count_parameters_where_the_table_says_so():
    def automatic(name):
        kind = getattr(dualpca, name)
        methods = [getattr(kind, m) for m in dir(kind) if not m.startswith(("_", "set_"))]
        found = [inspect.signature(m).parameters for m in methods if inspect.isfunction(m)]
        return any("parameters" in p and p["parameters"].default == "auto" for p in found)

    told = {name: cells[5] for name, cells in TABLE.items()}
    assert told == {name: '`"auto"`' if automatic(name) else "-" for name in TABLE}


def test_monitors_and_classifiers_fit_what_the_page_says(rows):
    assert "`RobustPPCA(standardize=True)` and `HiddenMarkovPCA()`" in PAGE
    fitted = dualpca.Monitor(random_state=0).fit(rows)
    assert repr(fitted.model_.set_params(random_state=None)) == repr(FITTED_BY["Monitor"])


# --- the number of components ------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 2)) @ rng.normal(size=(2, 5)) + 0.3 * rng.normal(size=(60, 5))


def of_rule(name, rule, **given):
    """Return a check that None is the rule of that name."""

    def check(X):
        kind = getattr(dualpca, name)
        default, named = (kind(**given, **q).fit(X) for q in ({}, {"n_components": rule}))
        assert np.array_equal(np.ravel(default.n_components_), np.ravel(named.n_components_))
        assert default.n_components != named.n_components

    return check


def check_factors(X):
    q = dualpca.PPCA("parallel", standardize=True).fit(X).n_components_
    assert dualpca.FactorAnalysis().fit(X).n_components_ == q


def check_relevant(X):
    fitted = dualpca.BayesianPCA().fit(X)
    assert fitted.n_components_ == 2 < X.shape[1] - 1


def check_imputer(X):
    gaps = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
    fitted = dualpca.Imputer(model="ppca").fit(gaps).model_
    assert fitted.selection_.unit == "entry" and fitted.selection_.q2.size > 1


def check_monitor(X):
    q = dualpca.RobustPPCA("parallel", standardize=True).fit(X).n_components_
    assert dualpca.Monitor(trim=False).fit(X).model_.n_components_ == q


def check_two(name):
    def check(X):
        views = (X[:, :3], X[:, 3:]) if name.endswith("CCA") else (X,)
        assert np.ravel(getattr(dualpca, name)().fit(*views).n_components_).tolist() == [2]

    return check


def check_all(X):
    assert dualpca.PCA().fit(X).n_components_ == min(X.shape)
    linear = dualpca.KernelPCA(kernel="linear").fit(X)
    assert linear.eigenvalues_.size == X.shape[1]


CHECKS = {
    ("PCA", "all"): check_all,
    ("KernelPCA", "all"): check_all,
    ("PPCA", "parallel analysis"): of_rule("PPCA", "parallel"),
    ("RobustPPCA", "parallel analysis"): of_rule("RobustPPCA", "parallel"),
    ("FactorAnalysis", "parallel analysis"): check_factors,
    ("BayesianPCA", "those that are relevant"): check_relevant,
    ("CopulaPPCA", "cross-validation"): of_rule("CopulaPPCA", "cv", random_state=0),
    ("Imputer", "cross-validation"): check_imputer,
    ("Monitor", "parallel analysis"): check_monitor,
    ("MixturePPCA", "BIC"): of_rule("MixturePPCA", "bic", n_mixtures=1),
    ("HiddenMarkovPCA", "BIC"): of_rule("HiddenMarkovPCA", "bic", n_states=1),
    ("DualPPCA", "evidence"): of_rule("DualPPCA", "evidence"),
    ("HierarchicalPPCA", "2"): check_two("HierarchicalPPCA"),
    ("CCA", "2"): check_two("CCA"),
    ("KernelCCA", "2"): check_two("KernelCCA"),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_number_of_components_is_chosen_as_the_table_says(name, rows):
    told, given = TABLE[name][1], default(name, "n_components")
    if isinstance(given, int):
        assert told == str(given)
    elif name == "SequenceClassifier":  # its model, which is None, is the one above
        assert told == TABLE["HiddenMarkovPCA"][1]
    elif name == "KernelSearch":
        told = re.fullmatch(r"(\d+) to (\d+) are tried", told)
        assert f"None for {told[1]} to {told[2]}," in inspect.getdoc(dualpca.KernelSearch)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            CHECKS[name, told](rows)


def test_float32_rows_have_float32_results(rows):
    """Precision is that of the rows."""
    for model in (dualpca.PCA(1), dualpca.PPCA(1), dualpca.BayesianPCA(), dualpca.KernelPCA(1)):
        for dtype in ("float32", "float64"):
            X = rows.astype(dtype)
            assert model.fit(X).transform(X).dtype == dtype


# --- commands ----------------------------------------------------------------------------------


def test_the_table_has_every_command_that_standardises():
    """What they choose is tested where they are: tests/app/test_cli_defaults.py."""
    import typer.main

    table = PAGE.partition("## Defaults of the commands")[2].partition("\n## ")[0]
    heads = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table, re.M)
    commands = typer.main.get_command(build()).commands
    asked = {n for n, c in commands.items() if any("--standardize" in p.opts for p in c.params)}
    assert set(re.findall(r"`(\w+)`", " ".join(heads))) == asked | {"monitor"}
