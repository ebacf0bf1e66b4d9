"""docs/design/adding.md, followed as written; what it makes passes the library's own checks."""

import os
import re
import shutil
import subprocess
import sys
import types
from functools import partial

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from dualpca import kernels, preimages, solvers
from dualpca.estimators import saving
from dualpca.gaussian import selection
from dualpca.kernels.base import expectation_terms
from dualpca.operators import Fourier
from dualpca.operators.primal import Primal
from dualpca.search import Space
from tests.docs.snippets import ROOT, snippets
from tests.kernels import test_conformance as conformance

PAGE = ROOT / "docs/design/adding.md"
REGISTRIES = (
    kernels.KERNELS,
    solvers.SOLVERS,
    selection.RULES,
    preimages.PREIMAGES,
    saving.KINDS,
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """What a reader has after typing the page; the registries are as before afterwards."""
    before = [dict(registry) for registry in REGISTRIES]
    module = types.ModuleType("page")
    scope = vars(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "page", module)  # so that its classes can be pickled
        patch.chdir(tmp_path_factory.mktemp("adding"))
        for code, _ in snippets(PAGE):
            exec(compile(code, "docs/design/adding.md", "exec"), scope)
        yield scope
    for registry, old in zip(REGISTRIES, before, strict=True):
        registry.clear()
        registry.update(old)


def test_the_page_adds_one_of_each(page):
    names = [{name for name in registry if "toy" in name.lower()} for registry in REGISTRIES]
    assert names == [{"toy_cauchy"}, {"toy_plain"}, {"toy_median"}, {"toy_nearest"}, {"ToyPCA"}]


CHECKS = [
    check
    for name, check in vars(conformance).items()
    if name.startswith("test_kernel_") and check.__code__.co_argcount == 2
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_its_kernel_conforms(page, check):
    rng = np.random.default_rng(0)
    check(page["Cauchy"](), (rng.standard_normal((12, 3)), rng.standard_normal((7, 3))))


def test_its_kernel_can_do_what_it_declares(page):
    """Random features of it alone and in a product; nothing that it did not declare."""
    X, cauchy = page["X"], page["Cauchy"]()
    for kernel in (cauchy, cauchy * kernels.RBF(gamma=0.05)):
        rng = np.random.default_rng(0)
        F = Fourier.of(kernel, X, 5000, rng)(X)
        np.testing.assert_allclose(F @ F.T, kernel(X, X), atol=0.1)
    assert Space.of(X, "toy_cauchy", (), (1, 1)).replay({}).kernel == cauchy
    assert kernels.fused_form(cauchy, X) is None
    with pytest.raises(TypeError, match="whose expectation is known"):
        expectation_terms(cauchy, 3)


FILE = re.compile(r"# ([\w/]+\.py)\n")
LINE = re.compile(r"\| `([\w/]+\.py)` \| `([^`]+)` in `([\w/]+\.py)` \|")
USED = """
import numpy as np, dualpca
assert dualpca.__file__.startswith({place!r})
X = np.random.default_rng(0).normal(size=(50, 3)) * [2.0, 1.0, 0.5]
model = dualpca.KernelPCA(2, kernel="toy_cauchy", preimage="toy_nearest").fit(X)
assert all((row == X).all(axis=1).any() for row in model.reconstruct(X))
model.save("kernel.dpca")
assert (dualpca.load("kernel.dpca").transform(X) == model.transform(X)).all()
assert dualpca.PPCA("toy_median").fit(X).n_components_ == 1
gaps = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
assert dualpca.PPCA("toy_median").fit(gaps).n_components_ == 1
dualpca.KernelPCA(2, kernel="toy_cauchy", eigen_solver="fourier").fit(X)
plain, qr = (dualpca.PCA(2, svd_solver=name).fit(X) for name in ("toy_plain", "qr"))
assert np.allclose(plain.explained_variance_, qr.explained_variance_)
chunked = dualpca.PCA(2, svd_solver="toy_plain").fit(dualpca.Batches([X[:30], X[30:]]))
assert np.allclose(chunked.explained_variance_, qr.explained_variance_)
for kind in (dualpca.KernelPCA, dualpca.ProbabilisticKernelPCA):
    names = ("toy_plain", "auto")
    plain, auto = (kind(2, kernel="rbf", eigen_solver=name).fit(X) for name in names)
    assert np.allclose(plain.eigenvalues_, auto.eigenvalues_)
toy = dualpca.ToyPCA().fit(X)
toy.save("toy.dpca")
assert dualpca.load("toy.dpca").score(X) == toy.score(X)
np.savetxt("x.csv", X, delimiter=",", header="a,b,c", comments="")
import sys
from dualpca.app.cli import main
sys.argv[1:] = "fit x.csv --model kpca --kernel toy_cauchy --components 2 -o x.dpca".split()
main()
"""


def test_each_takes_one_file_and_one_line(tmp_path):
    """Write the files and the lines of the page into a copy of the library, and use them there."""
    copy = tmp_path / "src" / "dualpca"
    shutil.copytree(ROOT / "src/dualpca", copy, ignore=shutil.ignore_patterns("__pycache__"))
    files = {found[1]: code for code, _ in snippets(PAGE) if (found := FILE.match(code))}
    lines = {file: (line, where) for file, line, where in LINE.findall(PAGE.read_text("utf-8"))}
    assert files.keys() == lines.keys() and len(files) == 5
    for file, (line, where) in lines.items():
        (copy / file).write_text(files[file], encoding="utf-8")
        text = (copy / where).read_text(encoding="utf-8")
        if where == "__init__.py":
            text = text.replace("_HOMES = {", f"_HOMES = {{\n    {line}")
        else:
            text = f"{text}\n{line}\n"
        (copy / where).write_text(text, encoding="utf-8")
    code = USED.format(place=str(copy))
    environment = os.environ | {"PYTHONPATH": str(copy.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, (tmp_path / "x.dpca").exists()) == (0, True), done.stderr


def test_its_solver_is_weighed_by_its_cost(page, monkeypatch):
    operator = Primal(page["X"])
    asked = []
    monkeypatch.setattr(page["Plain"], "cost", staticmethod(lambda *a: asked.append(1) or np.inf))
    solvers.solve(Primal(np.ones((4000, 100))), 2)  # of a millisecond's work the first is taken
    assert asked
    found = solvers.solve(operator, 3, solver="toy_plain")
    expected = np.linalg.eigvalsh(operator.dense())[::-1]
    np.testing.assert_allclose(found.values, expected, rtol=1e-10)


@pytest.mark.filterwarnings("ignore")
def test_its_model_passes_scikit_learns_checks(page):
    run = partial(check_estimator, on_skip=None, on_fail=None)
    failed = [r for r in run(page["ToyPCA"]()) if r["status"] == "failed"]
    assert {r["check_name"]: str(r["exception"]) for r in failed} == {}


def test_its_model_has_what_linear_models_have(page):
    toy, X = page["toy"], page["X"]
    assert toy.sample(5, random_state=0).shape == (5, 3)
    assert toy.outliers(X).flagged.shape == (50,)
    np.testing.assert_allclose(toy.get_covariance() @ toy.get_precision(), np.eye(3), atol=1e-9)
    with pytest.raises(ValueError, match="most must be"):
        page["ToyPCA"](most=0).fit(X)
