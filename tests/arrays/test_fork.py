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
from dualpca import PCA
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
    os._exit(0)
status = os.waitpid(child, 0)[1]
go_on.set()
worker.join()
assert threads.available() == before
assert status == 0, status
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_forked_during_a_fit_fits() -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", WHILE_A_THREAD_WORKS]
    done = subprocess.run(command, env=environment, timeout=60, capture_output=True, text=True)
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
