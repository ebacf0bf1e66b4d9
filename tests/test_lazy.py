"""`import dualpca` imports nothing but itself; every name comes when it is asked for.

What is looked at are fresh processes: in this one everything has long been imported.
"""

import ast
import json
import pickle
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import dualpca
from tests.conftest import rest_slow
from tests.estimators.test_saving import KINDS
from tests.files.saved_models import MODELS

PUBLIC = [name for name in dualpca.__all__ if name != "__version__"]


def fresh(code, *arguments, cwd=None):
    """Run code in a process of its own and return what it prints, read as JSON."""
    command = [sys.executable, "-c", f"import json, sys\n{code}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


LOADED = "[m for m in sys.modules if m.split('.')[0] in ('dualpca', 'numpy', 'scipy', 'sklearn')]"


def test_importing_the_package_imports_no_model():
    found = fresh(f"import dualpca; print(json.dumps({LOADED}))")
    assert sorted(found) == ["dualpca"]


def test_pca_brings_no_other_model():
    found = set(fresh(f"from dualpca import PCA; print(json.dumps({LOADED}))"))
    homes = {f"dualpca.{home}" for name, home in dualpca._HOMES.items() if name != "PCA"}
    shared = ("data.table", "files.checkpoints", "estimators.saving", "gaussian.supplementary")
    shared += ("gaussian.control_limits", "gaussian.selection")  # results that PCA returns
    homes -= {f"dualpca.{name}" for name in shared}
    others = {"models.mixture", "models.hidden_markov", "models.canonical", "generation", "search"}
    assert not found & (homes | {f"dualpca.{name}" for name in others})
    assert "dualpca.estimators.pca" in found


COMMAND = """
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from dualpca.app.cli import main
sys.argv[0] = 'dualpca'
with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()):
    try:
        main()
    except SystemExit as end:
        assert not end.code, printed.getvalue()
print(json.dumps([printed.getvalue(), list(sys.modules)]))
"""


def ran(*words, cwd=None):
    """Run a command in a process of its own; return what it prints and the modules it imports."""
    printed, loaded = fresh(COMMAND, *words, cwd=cwd)
    return printed, set(loaded)


def test_the_help_imports_no_command_and_nothing_that_computes():
    pytest.importorskip("typer")
    printed, loaded = ran("--help")
    assert "score" in printed and "reproduce" in printed
    assert not loaded & {"numpy", "scipy", "sklearn", "polars", "matplotlib", "plotly", "fastapi"}
    assert {m for m in loaded if m.startswith("dualpca.app")} == {"dualpca.app", "dualpca.app.cli"}


def test_the_help_of_a_command_imports_no_model():
    pytest.importorskip("typer")
    printed, loaded = ran("fit", "--help")
    assert "--components" in printed
    assert not [name for name in loaded if name.startswith(("dualpca.estimators", "sklearn"))]


def test_the_help_says_of_every_command_what_its_docstring_says():
    pytest.importorskip("typer")
    from dualpca.app.cli import COMMANDS

    for name, (module, words) in COMMANDS.items():
        command = import_module(f"dualpca.app.cli.{module}").COMMANDS[name]
        assert words == " ".join(command.__doc__.partition("\n\n")[0].split()), name
    modules = {module for module, _ in COMMANDS.values()}
    there = [import_module(f"dualpca.app.cli.{module}").COMMANDS for module in modules]
    assert sorted(COMMANDS) == sorted(name for found in there for name in found)


def test_score_imports_nothing_that_it_does_not_use(tmp_path):
    pytest.importorskip("typer")
    rows = np.random.default_rng(0).normal(size=(30, 4))
    lines = ["a,b,c,d", *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    dualpca.PPCA(2).fit(pl.read_csv(tmp_path / "t.csv")).save(tmp_path / "m.dpca")
    printed, loaded = ran("score", "m.dpca", "t.csv", cwd=tmp_path)
    assert "30 rows" in printed
    assert not loaded & {"pandas", "matplotlib", "plotly", "fastapi", "uvicorn", "optuna", "torch"}
    assert not loaded & {
        "scipy.stats._stats_py",
        "scipy.optimize._optimize",
        "sklearn.preprocessing",
        "sklearn.pipeline",
    }
    assert not loaded & {f"dualpca.models.{name}" for name in ("mixture", "canonical", "copula")}


def test_what_needs_more_of_scipy_gets_it():
    code = """
from dualpca.app.cli import _import_scikit_learn
_import_scikit_learn()
assert 'pandas' not in sys.modules and 'scipy.stats._stats_py' not in sys.modules
import scipy
from scipy.stats import qmc
from scipy import stats
import scipy.stats._continuous_distns
import sklearn.utils.fixes as fixes
here = [stats.norm.cdf(0), scipy.stats.norm.ppf(0.5), float(fixes.scipy.stats.mode([1, 1, 2]).mode)]
print(json.dumps([*here, sys.modules['scipy.stats'] is stats]))
"""
    assert fresh(code) == [0.5, 0.0, 1.0, True]


# --- names ------------------------------------------------------------------------------------


def static_imports():
    """Return name to module, as type checkers and import-linter read the package."""
    tree = ast.parse(Path(dualpca.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {name.name: node.module for node in block.body for name in node.names}


def test_type_checkers_see_the_same_names():
    wanted = {name: f"dualpca.{home}" for name, home in dualpca._HOMES.items()}
    wanted |= dict.fromkeys(dualpca._SPACES, "dualpca")
    assert static_imports() == wanted
    assert set(dualpca._HOMES) == set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_name_comes_from_its_home_and_is_kept(name):
    value = getattr(dualpca, name)
    assert value.__module__ == f"dualpca.{dualpca._HOMES[name]}"
    assert vars(dualpca)[name] is value


@pytest.mark.slow
def test_each_home_can_be_imported_first():
    """The order of imports is the user's now: no module may count on another's having come."""
    code = """
from importlib import import_module
import dualpca
for home in [*sorted(set(dualpca._HOMES.values())), *dualpca._SPACES]:
    for name in [m for m in sys.modules if m.split('.')[0] == 'dualpca']:
        del sys.modules[name]
    import_module(f'dualpca.{home}')
print(json.dumps(home))
"""
    assert fresh(code) == dualpca._SPACES[-1]


@pytest.mark.slow
def test_a_star_gives_every_name():
    code = "from dualpca import *; print(json.dumps(sorted(globals())))"
    assert set(dualpca.__all__) <= set(fresh(code))


WRONG = ("nothing", "pca", "Pca", "estimators.pca", "", "__wrapped__", "__main__", "kernel s")


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_name_is_refused_in_the_usual_words(name):
    with pytest.raises(AttributeError) as caught:
        getattr(dualpca, name)
    with pytest.raises(AttributeError) as usual:
        getattr(json, name)
    assert str(caught.value) == str(usual.value).replace("'json'", "'dualpca'")
    assert name not in vars(dualpca)


def test_a_wrong_name_cannot_be_imported():
    with pytest.raises(ImportError, match=r"cannot import name 'nothing' from 'dualpca'"):
        from dualpca import nothing  # noqa: F401


def test_every_module_is_reached_by_its_name():
    code = """
import pkgutil
import dualpca
names = {m.name for m in pkgutil.iter_modules(dualpca.__path__)} - {'__main__'}
found = []
for name in sorted(names):
    try:
        assert getattr(dualpca, name).__name__ == f'dualpca.{name}'
        found.append(name)
    except ModuleNotFoundError as error:  # an extra that is not installed
        assert not error.name.startswith('dualpca'), name
print(json.dumps(found))
"""
    assert {"errors", "kernels", "preimages", "files", "models", "arrays"} < {*fresh(code)}


def test_modules_of_estimators_are_reached_by_their_names():
    code = "import dualpca; print(json.dumps(dualpca.estimators.pca.PCA.__name__))"
    assert fresh(code) == "PCA"
    with pytest.raises(AttributeError, match=r"'dualpca.estimators' has no attribute 'nothing'"):
        dualpca.estimators.nothing  # noqa: B018


def test_dir_and_inspect_and_help_see_everything():
    code = """
import inspect, pydoc
import dualpca
listed = dir(dualpca)
words = pydoc.plain(pydoc.render_doc(dualpca))
print(json.dumps([listed, words, [name for name, _ in inspect.getmembers(dualpca)]]))
"""
    listed, words, members = fresh(code)
    assert listed == sorted(listed)
    assert {*dualpca.__all__, *dualpca._SPACES, "__doc__"} <= {*listed} & {*members}
    assert all(f"class {name}(" in words for name in PUBLIC if name[0].isupper())
    assert all(f" {name}(" in words for name in PUBLIC if name[0].islower())


# --- files ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: MODELS[name]() for name in KINDS}


FIRST = {
    "from dualpca import load, save": "save(load(a), b)",
    "import dualpca": "dualpca.save(dualpca.load(a), b)",
    "from dualpca.estimators import saving": "saving.save(saving.load(a), b)",
}


@pytest.mark.parametrize("first", rest_slow(FIRST, ["import dualpca"]))
def test_a_fresh_process_loads_and_saves_every_model(first, models, tmp_path):
    for name, model in models.items():
        dualpca.save(model, tmp_path / name)
    again = tmp_path / "again"
    again.mkdir()
    code = f"""
{first}
for name in json.loads(sys.argv[1]):
    a, b = name, f'again/{{name}}'
    {FIRST[first]}
print('true')
"""
    fresh(code, json.dumps([*models]), cwd=tmp_path)
    assert len(models) == len(KINDS) >= 16
    for name in models:
        dualpca.save(dualpca.load(tmp_path / name), tmp_path / "here")
        assert (again / name).read_bytes() == (tmp_path / "here").read_bytes()


@pytest.mark.slow
def test_a_fresh_process_unpickles_every_model(models, tmp_path):
    for name, model in models.items():
        (tmp_path / name).write_bytes(pickle.dumps(model))
    code = """
import pickle
print(json.dumps({name: repr(pickle.load(open(name, 'rb'))) for name in json.loads(sys.argv[1])}))
"""
    found = fresh(code, json.dumps([*models]), cwd=tmp_path)
    assert found == {name: repr(model) for name, model in models.items()}


@pytest.mark.slow
def test_a_model_saves_itself_first_of_all(tmp_path):
    code = """
from dualpca import KernelPCA
model = KernelPCA(1, kernel='rbf').fit([[0.0, 1.0], [1.0, 0.5], [2.0, 2.0], [3.0, 1.0]])
assert 'dualpca.generation' not in sys.modules
model.save('m.dpca')
from dualpca import load
print(json.dumps(repr(load('m.dpca'))))
"""
    assert fresh(code, cwd=tmp_path) == "KernelPCA(kernel='rbf', n_components=1)"


@pytest.mark.slow
def test_threads_that_load_at_once_all_get_their_model(models, tmp_path):
    for name in KINDS[:4]:
        dualpca.save(models[name], tmp_path / name)
    code = """
from concurrent.futures import ThreadPoolExecutor
from dualpca import load
with ThreadPoolExecutor(4) as pool:
    print(json.dumps([type(m).__name__ for m in pool.map(load, json.loads(sys.argv[1]))]))
"""
    found = fresh(code, json.dumps(KINDS[:4]), cwd=tmp_path)
    assert found == [type(models[name]).__name__ for name in KINDS[:4]]


@pytest.mark.slow
def test_one_s_own_kernel_is_refused_even_if_it_came_before_the_first_file(tmp_path):
    code = """
from dataclasses import dataclass
from typing import ClassVar
from dualpca import KernelPCA
from dualpca.errors import ModelFileError
from dualpca.kernels import RBF

@dataclass(frozen=True)
class Own(RBF):
    name: ClassVar[str] = 'own'

try:
    KernelPCA(1, kernel=Own()).fit([[0.0, 1.0], [1.0, 0.5], [2.0, 2.0]]).save('m.dpca')
except ModelFileError as error:
    print(json.dumps(str(error)))
"""
    assert "Use a kernel of dualpca.kernels" in fresh(code, cwd=tmp_path)


@pytest.mark.slow
def test_the_command_reads_a_model_in_a_fresh_process(models, tmp_path):
    pytest.importorskip("typer")
    dualpca.save(models["ppca"], tmp_path / "m.dpca")
    command = [sys.executable, "-m", "dualpca", "inspect", "m.dpca", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert json.loads(done.stdout)["model"] == "PPCA"
