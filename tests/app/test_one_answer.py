"""One answer everywhere: what one command or page says, every other says too."""

import ast
import json
import re
import warnings
from importlib import import_module
from inspect import signature
from pathlib import Path

import numpy as np
import polars as pl
import pytest

pytest.importorskip("typer", reason="the app extra is not installed: no command line to test")
pytest.importorskip("plotly", reason="the app extra is not installed: no script to put in")

import typer

import dualpca as dp
from dualpca import report
from dualpca.app.cli import COMMANDS, _compare, _look, _running


def table(n=60, d=5, q=2, seed=0, missing=0.0):
    """Rows of a few latents and noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, q)) @ rng.normal(size=(q, d)) + 0.5 * rng.normal(size=(n, d))
    X[rng.random(X.shape) < missing] = np.nan
    return X


def command_of(name):
    """The function that a command is."""
    return import_module(f"dualpca.app.cli.{COMMANDS[name][0]}").COMMANDS[name]


# --- one share per direction --------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [dp.PCA(2), dp.PPCA(2), dp.BayesianPCA(), dp.FactorAnalysis(2), dp.MixturePPCA(2, 1)],
    ids=lambda model: type(model).__name__,
)
def test_a_direction_has_one_share_of_the_variance(model):
    X = table(missing=0.0 if isinstance(model, dp.PCA) else 0.1)
    page = report.render(report.build(report.subject_of(model.fit(X), X)))
    found: dict[str, set[str]] = {}
    for number, share in re.findall(r"\b(?:direction|latent) (\d+) \(([^)]*) of the var", page):
        found.setdefault(number, set()).add(share)
    assert all(len(shares) == 1 for shares in found.values()), found
    assert found or isinstance(model, dp.FactorAnalysis)


# --- the column that colours the rows is not part of the model ----------------------------------


@pytest.fixture
def wards(tmp_path):
    """A table with a column of groups, and a model that uses it."""
    X = table()
    frame = pl.DataFrame(X, schema=list("abcde"), orient="row")
    ward = np.where(X[:, 0] > 0, "upper", "lower")
    frame = frame.with_columns(pl.Series("ward", ward), pl.Series("level", np.arange(60) % 7))
    frame.write_csv(tmp_path / "t.csv")
    return tmp_path


@pytest.mark.parametrize("color", ["ward", "level"])
def test_the_report_takes_the_colour_out_of_the_model_and_says_so(wards, inside, color):
    code, out, err = inside("report", "t.csv", "--color", color, "--json", cwd=wards)
    assert code == 0 and f"column {color!r} colours the rows, so it is not part of the model" in err
    page = (wards / "report.html").read_text()
    assert re.search(rf"Columns that the model does not use: {color} \(", page)
    assert json.loads(out)["columns"] == 6  # of seven; none is in the table twice


def test_the_explorer_takes_the_colour_out_of_the_model_and_starts_with_it(wards, inside):
    from dualpca.app.cli._pages import Asked, _opened
    from dualpca.app.explorer.app import describe
    from dualpca.app.explorer.session import columns_of, open_session

    asked = Asked(None, str(wards / "t.csv"), wards, color="ward")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model, metadata, frame = _opened(asked)
    assert any("'ward' colours the rows" in str(one.message) for one in told)
    assert "ward" not in metadata["table"]["columns"]
    session = open_session(model, frame, metadata, color="ward")
    answer = describe(session, columns_of(session), "run")
    assert answer.color == "ward" and "ward" in [one.name for one in answer.columns]
    code, _, err = inside("explore", "t.csv", "--color", "nobody", "--no-open", cwd=wards)
    assert code == 3 and "--color nobody: no such column" in err


def test_a_model_that_uses_the_colour_is_told(wards, inside):
    assert inside("fit", "t.csv", cwd=wards)[0] == 0
    code, _, err = inside("report", "t.dpca", "t.csv", "--color", "ward", cwd=wards)
    assert code == 0 and "'ward' colours the rows and is part of the model" in err
    code, _, err = inside("explore", "t.dpca", "--color", "ward", "--no-open", cwd=wards)
    assert code == 2 and "--color ward: name a table too" in err


# --- what is compared -----------------------------------------------------------------------------


def test_enough_categories_are_hidden_to_tell_models_apart(tmp_path, inside):
    X = table(n=70, d=4)
    frame = pl.DataFrame(X, schema=list("abcd"), orient="row")
    frame = frame.with_columns(k=pl.Series(np.where(X[:, 0] > 0, "u", "v")))
    frame.write_csv(tmp_path / "t.csv")
    names = [word for name in ("ppca", "copula") for word in ("-m", name)]
    code, out, _ = inside("compare", "t.csv", *names, "--json", cwd=tmp_path)
    found = json.loads(out)
    assert code == 0 and found["hidden_categories"] == 70  # all there are: once in five splits
    assert found["hidden_numbers"] >= 100 and found["splits"] == 5
    wrong = found["models"][2]["category_error"] * 70
    assert wrong == pytest.approx(round(wrong)) and wrong < 35


def test_every_entry_is_hidden_at_most_once():
    X = table(n=32, d=3, missing=0.1)
    parts = _compare.splits(X, False, 0.25, 0.2, 0)
    hidden = np.zeros(X.shape, dtype=int)
    for one in parts:
        true, where = one.asked
        assert (~np.isnan(one.hidden)).any(axis=1)[~np.isnan(true).all(axis=1)].all()
        np.testing.assert_array_equal(true[~where], one.hidden[~where])
        np.add.at(hidden, one.at[1][one.of], where)
        assert not set(one.at[0]) & set(one.at[1])
    assert hidden.max() == 1 and _compare.ENOUGH > hidden.sum() > 0.8 * (~np.isnan(X)).sum()
    many = _compare.splits(table(n=4000, d=3), False, 0.25, 0.2, 0)
    assert len(many) == 1 and len(many[0].hidden) == 1000  # a tenth is enough: no copies


def test_models_that_cannot_be_judged_are_left_out_with_one_line(tmp_path, inside):
    X = table(n=40, d=4, missing=0.1)
    pl.DataFrame(X, schema=list("abcd"), orient="row").fill_nan(None).write_csv(tmp_path / "t.csv")
    code, out, _ = inside("compare", "t.csv", "-q", 1, cwd=tmp_path)
    head, remarks = out.split("\n\n")
    assert code == 0 and "kpca" not in head and "failed" not in out
    (line,) = [one for one in remarks.split("\n") if one.startswith("Left out")]
    names = "pca, kpca, dual, pkpca, twin"
    assert line == f"Left out: {names} (needs rows without missing values)."


# --- a table that lacks a column of the model -----------------------------------------------------


@pytest.fixture(scope="module")
def lacking(tmp_path_factory):
    """Models of numbers and of columns of any kind, and a table without two of their columns."""
    folder = tmp_path_factory.mktemp("lacking")
    X = table(n=80, d=5)
    frame = pl.DataFrame(X, schema=list("abcde"), orient="row")
    frame = frame.with_columns(k=pl.Series(np.where(X[:, 0] > 0, "u", "v")))
    frame.write_csv(folder / "t.csv")
    gone = frame.with_columns(d=pl.Series(X[:, 3]).set(pl.Series(X[:, 3] > 1), None))
    gone.drop("b", "k").write_csv(folder / "lack.csv")
    empty = gone.with_columns(b=pl.lit(None, pl.Float64), k=pl.lit(None, pl.String))
    empty.select(frame.columns).write_csv(folder / "empty.csv")
    return folder


MODELS_OF_GAPS = ("ppca", "fa", "mixture", "copula")


@pytest.mark.parametrize("name", MODELS_OF_GAPS)
def test_rows_without_a_column_are_scored_as_if_it_were_missing(lacking, inside, name):
    assert inside("fit", "t.csv", "-m", name, "-q", 1, "-o", f"{name}.dpca", cwd=lacking)[0] == 0
    said = "not in lack.csv, and taken as missing in every row: 'b', 'k'"
    for command, *more in (("score",), ("transform", "-o"), ("impute", "-o")):
        found = []
        for data in ("lack.csv", "empty.csv"):
            output = [*more, f"{name}-{command}-{data}"] if more else []
            done = inside(command, f"{name}.dpca", data, *output, "--json", cwd=lacking)
            assert done[0] == 0 and (said in done[2]) == (data == "lack.csv")
            found.append(done[1] if not output else pl.read_csv(lacking / output[-1]))
        if command == "impute":  # what the table lacks is not written
            assert found[0].columns == list("acde") and not found[0].null_count().pipe(sum_of)
            assert found[0].equals(found[1].select(list("acde")))
        elif command == "transform":
            assert found[0].equals(found[1])
        else:
            assert found[0] == found[1]


def sum_of(frame):
    return sum(frame.row(0))


@pytest.mark.parametrize("name", MODELS_OF_GAPS)
def test_other_tables_of_an_imputation_are_of_the_columns_that_are_there(lacking, inside, name):
    inside("fit", "t.csv", "-m", name, "-q", 1, "-o", f"{name}.dpca", cwd=lacking)
    more = ("--intervals", f"{name}-ranges.csv", "-o", f"{name}-filled.csv")
    assert inside("impute", f"{name}.dpca", "lack.csv", *more, cwd=lacking)[0] == 0
    ranges = pl.read_csv(lacking / f"{name}-ranges.csv")
    assert set(ranges["column"]) == {"d"}


def test_models_that_need_every_column_and_other_tables_are_refused_in_words(lacking, inside):
    assert inside("fit", "t.csv", "-m", "pca", "-o", "pca.dpca", cwd=lacking)[0] == 0
    code, _, err = inside("score", "pca.dpca", "lack.csv", cwd=lacking)
    assert code == 3 and "'b', 'k' of the model are missing from the table" in err
    inside("fit", "t.csv", "-m", "ppca", "-o", "ppca.dpca", cwd=lacking)
    (lacking / "other.csv").write_text("x,y\n1,2\n2,3\n")
    code, _, err = inside("score", "ppca.dpca", "other.csv", cwd=lacking)
    assert code == 3 and "of the model are missing from the table" in err


# --- files with several matrices ------------------------------------------------------------------

OF_A_TABLE = {
    "fit": ("-o", "new.dpca"),
    "select": (),
    "transform": ("-o", "new.csv"),
    "impute": ("-o", "new.csv"),
    "denoise": ("-o", "new.csv"),
    "score": (),
    "compare": ("-m", "ppca", "-q", 1),
    "monitor": ("-o", "new.dpca"),
    "report": (),
    "calibrate": ("-q", "1", "--folds", "2"),
    "explore": ("--host", "nowhere.invalid", "--no-open"),
}
"""Commands that read a table, with options that make them quick: explore ends at the address."""
ON_A_MODEL = ("transform", "denoise", "score")


def test_every_command_that_reads_a_table_is_tried():
    reading = {name for name in COMMANDS if "source" in signature(command_of(name)).parameters}
    assert reading == set(OF_A_TABLE)


@pytest.mark.parametrize("name", OF_A_TABLE)
def test_every_command_says_which_matrix_of_a_file_is_read(tmp_path, inside, name):
    np.savez(tmp_path / "two.npz", X=table(), Y=table(n=30, d=3))
    dp.PPCA(2).fit(table()).save(tmp_path / "m.dpca")
    model = ["m.dpca"] if name in ON_A_MODEL else []
    options = OF_A_TABLE[name]
    _, _, err = inside(name, *model, "two.npz", *options, cwd=tmp_path)
    assert "array 'X' of two.npz is read; --array reads another: 'Y'." in err
    _, _, err = inside(name, *model, "two.npz", *options, "--array", "X", cwd=tmp_path)
    assert "is read" not in err


# --- columns that do not vary ---------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in OF_A_TABLE if name not in ON_A_MODEL])
def test_every_command_that_fits_names_constant_columns(tmp_path, inside, name):
    frame = pl.DataFrame(table(), schema=list("abcde"), orient="row")
    frame = frame.with_columns(c=pl.lit(7.0), gain=pl.lit(-99), site=pl.lit("Berne"))
    frame.write_csv(tmp_path / "t.csv")
    _, _, err = inside(name, "t.csv", *OF_A_TABLE[name], cwd=tmp_path)
    assert "the same number in every row: 'c' (7), 'gain' (-99); they stay in the model" in err
    if name != "monitor":  # which leaves out all text
        assert "left out because all of their entries are the same: 'site' ('Berne')" in err
    varied = frame.drop("c", "gain", "site")
    varied.write_csv(tmp_path / "t.csv")
    assert "same" not in inside(name, "t.csv", *OF_A_TABLE[name], cwd=tmp_path)[2]


# --- options in messages --------------------------------------------------------------------------


def texts_of(tree):
    """Texts of a module that may reach a user: not docstrings, nor what describes an option."""
    own = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            own.add(id(body[0].value))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("typer.Option", "Option"):
            own |= {id(inner) for inner in ast.walk(node)}
    found = []
    for node in ast.walk(tree):
        if id(node) in own:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [one.value if isinstance(one, ast.Constant) else "X" for one in node.values]
            own |= {id(one) for one in node.values}
            found.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return found


MESSAGES = sorted(
    {
        text
        for path in Path(dp.__file__).parent.rglob("*.py")
        for text in texts_of(ast.parse(path.read_text()))
        if _running.OPTION.search(text)
    }
)
OPTIONS = {name: _running.options_of(name) for name in COMMANDS}


def foreign(command, text):
    """Options in a text that a command does not have, of commands that the text does not name."""
    return [
        option
        for option in _running.OPTION.findall(text)
        if option not in OPTIONS[command]
        and any(option in own for own in OPTIONS.values())
        and not any(f"dualpca {k}" in text and option in own for k, own in OPTIONS.items())
    ]


def test_the_walk_finds_messages_and_options():
    assert len(MESSAGES) > 60 and "--array" in OPTIONS["score"] and "-q" in OPTIONS["fit"]
    assert any("--sheet" in one for one in MESSAGES)
    assert foreign("score", "leave it out with --exclude X") == ["--exclude"]
    assert not foreign("fit", "leave it out with --exclude X")
    assert not foreign("score", "python -m pip, and dualpca fit --exclude X")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_message_names_an_option_that_the_command_does_not_have(command):
    for text in MESSAGES:
        assert not foreign(command, _running.attributed(command, text)), text


def test_every_way_to_the_user_passes_there(monkeypatch, capsys):
    told = "use --exclude X."
    own = "(--exclude is an option of dualpca fit.)"

    def work():
        warnings.warn(told, UserWarning, stacklevel=1)
        return {"text": told}

    _running.run("score", False, work, lambda found: found["text"])
    printed = capsys.readouterr()
    assert printed.out == f"{told} {own}\n" and printed.err == f"warning: {told} {own}\n"

    def failing():
        raise ValueError(told)

    for as_json in (False, True):
        with pytest.raises(typer.Exit):
            _running.run("score", as_json, failing, None)
        printed = capsys.readouterr()
        assert own in printed.err and (own in printed.out) == as_json


def called(tree, name):
    """Calls of a function by its name."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [node for node in nodes if ast.unparse(node.func) == name]


def test_what_is_printed_beside_names_options_of_its_module_only():
    beside = {"_pages": ("report", "explore", "demo"), "_live": ("monitor", "watch")}
    for module, names in beside.items():
        own = {option for name in names for option in OPTIONS[name]}
        source = import_module(f"dualpca.app.cli.{module}").__file__
        for call in called(ast.parse(Path(source).read_text()), "print"):
            for text in texts_of(call):
                assert set(_running.OPTION.findall(text)) <= own, text


def test_text_in_a_column_of_the_model_is_refused_with_options_at_hand(lacking, inside):
    inside("fit", "t.csv", "-m", "ppca", "-o", "ppca.dpca", cwd=lacking)
    text = (lacking / "t.csv").read_text().split("\n")
    text[1] = ",".join(["broken", *text[1].split(",")[1:]])
    (lacking / "text.csv").write_text("\n".join(text))
    code, _, err = inside("score", "ppca.dpca", "text.csv", cwd=lacking)
    assert (
        code == 3 and "column 'a' of the model holds text in this table (such as 'broken')" in err
    )
    assert "--na broken" in err and "--exclude" not in err
    assert inside("score", "ppca.dpca", "text.csv", "--na", "broken", cwd=lacking)[0] == 0


def test_a_row_without_a_residual_has_a_reason_by_its_scores():
    values = {
        "outlier": np.array([True, False]),
        "t2": np.array([9.0, 1.0]),
        "t2_limit": np.array([6.0, 6.0]),
        "spe": np.zeros(2),
        "spe_limit": np.zeros(2),
    }
    first, second = _look.explained(values, None, ["a"])
    assert "1.5" in first and second == ""
