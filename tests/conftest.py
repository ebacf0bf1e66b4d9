"""Fixtures for every test: backends, data files, scikit-learn's own, Hypothesis profiles."""

import os
import sys
from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests.estimators.drop_in import reason_to_differ

_COMMON = {
    "deadline": None,
    "max_examples": 40,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("dev", **_COMMON)
settings.register_profile("ci", derandomize=True, print_blob=True, **_COMMON)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@dataclass(frozen=True)
class Backend:
    """One array library: into it with ``asarray``, back to NumPy with ``numpy``."""

    name: str
    namespace: Any

    def asarray(self, x):
        """Return a NumPy array as this library's array, dtype kept, memory not shared."""
        x = np.array(x)
        return x if self.name == "numpy" else self.namespace.asarray(x)

    def numpy(self, x):
        """Return this library's array as NumPy's."""
        if hasattr(x, "detach"):
            return x.detach().cpu().numpy()
        return (
            np.from_dlpack(x) if self.name == "array_api_strict" and self.owns(x) else np.asarray(x)
        )

    def owns(self, x):
        """Say whether ``x`` is an array of this library."""
        return type(x).__module__.split(".")[0] == self.namespace.__name__.split(".")[0]


def rest_slow(values, fast):
    """Return parameters of which `make test` runs only the given ones."""
    return [one if one in fast else pytest.param(one, marks=pytest.mark.slow) for one in values]


BACKENDS = ("numpy", "array_api_strict", "torch")


@pytest.fixture(params=BACKENDS, scope="session")
def backend(request):
    """Every array library in turn; torch is optional."""
    reason = f"{request.param} is not installed: this backend is not tested"
    return Backend(request.param, pytest.importorskip(request.param, reason=reason))


@pytest.fixture
def global_random_seed():
    """The seed scikit-learn's own tests ask for."""
    return 42


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def global_dtype(request):
    """The dtypes scikit-learn's own tests ask for."""
    return request.param


@pytest.fixture(scope="session")
def shared_data():
    """Return a function from a file's name to its path; without the file the test is skipped."""
    root = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("DUALPCA_DATA", root.parent / "shared" / "data"))

    def find(name):
        path = folder / name
        if not path.exists():
            pytest.skip(f"{name} is not in {folder}: set DUALPCA_DATA to the folder that holds it")
        return path

    return find


@pytest.fixture
def inside(monkeypatch, capfd):
    """Call the entry point in this process, which saves seconds of imports."""
    main = pytest.importorskip("dualpca.app.cli").main

    def command(*arguments, cwd):
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["dualpca", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, *capfd.readouterr()

    return command


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark borrowed tests that must fail on our classes, and what grids leave to the slow tests."""
    grids = defaultdict(list)
    for item in items:
        reason = reason_to_differ(item)
        if reason:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
        if (
            hasattr(item, "callspec")
            and item.get_closest_marker("grid")
            and not item.get_closest_marker("slow")
        ):
            grids[item.nodeid.partition("[")[0]].append(item)
    for grid in grids.values():
        strength = (*grid[0].get_closest_marker("grid").args, 1)[0]
        for item in set(grid) - covering(grid, strength):
            item.add_marker(pytest.mark.slow)


def covering(grid, strength):
    """Return tests of a grid that have each value of each parameter, or each pair of values."""
    values = {item: {(k, id(v)) for k, v in item.callspec.params.items()} for item in grid}
    strength = min(strength, len(values[grid[0]]))
    sets = {item: set(combinations(sorted(values[item]), strength)) for item in grid}
    missing, kept = set().union(*sets.values()), set()
    while missing:
        best = max(grid, key=lambda item: len(sets[item] & missing))  # the first of equals
        kept.add(best)
        missing -= sets[best]
    return kept
