"""A process that forks while one of its threads works: the child works too."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dualpca

WHILE_A_THREAD_WORKS = """
import os, threading
import numpy as np
from dualpca import PCA, PPCA, KernelPCA
from dualpca.arrays import cached_property, threads

class Slow:
    @cached_property
    def value(self):
        inside.set()
        go_on.wait(60)
        return 1

def work():
    with threads.outside():
        Slow().value

before, inside, go_on = threads.available(), threading.Event(), threading.Event()
X = np.random.default_rng(0).normal(size=(30_000, 30))
expected = PCA(2).fit(X).components_
worker = threading.Thread(target=work)
worker.start()
inside.wait()
child = os.fork()
if child == 0:
    go_on.set()
    assert Slow().value == 1
    assert threads.available() == before, (threads.available(), before)
    assert np.array_equal(PCA(2).fit(X).components_, expected)
    PPCA(2, tol=1e-2).fit(np.where(X[:200] > 2, np.nan, X[:200]))
    KernelPCA(2, kernel="rbf").fit(X[:200])
    os._exit(0)
status = os.waitpid(child, 0)[1]
go_on.set()
worker.join()
assert threads.available() == before
assert status == 0, status
"""


AFTER_FITS = """
import os
import numpy as np
from dualpca import PCA, PPCA, Batches, KernelPCA, MixturePPCA

rng = np.random.default_rng(0)
X = rng.normal(size=(6000, 120)) * np.linspace(3, 1, 120)
gaps = np.where(rng.random((200, 6)) < 0.1, np.nan, X[:200, :6])

def learned():
    models = PCA(2).fit(X), PCA(2).fit(Batches([X[:3000], X[3000:]])), PPCA(2, tol=1e-3).fit(gaps)
    mixture = MixturePPCA(2, 1, n_init=2, n_jobs=2, tol=1e-2, max_iter=900).fit(X[:200, :6])
    kernel = KernelPCA(2, kernel="rbf").fit(X[:300])
    return [*(model.components_ for model in models), mixture.means_, kernel.eigenvalues_]

def in_a_child(work):
    child = os.fork()
    if child == 0:
        os._exit(work())
    return os.waitpid(child, 0)[1]

def same():
    return 0 if all(map(np.allclose, learned(), expected)) else 3

expected = learned()
assert in_a_child(same) == 0
assert in_a_child(lambda: same() or in_a_child(same)) == 0  # and a child of the child
assert same() == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize(
    "script",
    [WHILE_A_THREAD_WORKS, pytest.param(AFTER_FITS, marks=pytest.mark.slow)],
    ids=["while a thread works", "after fits"],
)
def test_a_forked_child_fits(script: str) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    done = subprocess.run(command, env=environment, timeout=100, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_attribute_is_computed_under_a_lock() -> None:
    """Before Python 3.12, `functools.cached_property` holds one."""
    package = Path(dualpca.__file__).parent
    users = [
        path.name
        for path in package.rglob("*.py")
        if re.search(r"functools.*\bcached_property", path.read_text(encoding="utf-8"))
    ]
    assert users == ["lazy.py"]
