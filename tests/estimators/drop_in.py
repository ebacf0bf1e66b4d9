"""scikit-learn's own tests, which ship inside its wheel, run against our classes."""

import importlib.util
import re
import sys
from types import ModuleType
from unittest import mock

import pytest


def borrow(name: str, replacements: dict[str, type]) -> ModuleType:
    """Execute a fresh copy of a scikit-learn test module with our classes in place of theirs."""
    spec = importlib.util.find_spec(name)
    module = importlib.util.module_from_spec(spec)
    module.__name__ = f"dualpca_{name.rsplit('.', 1)[1]}"
    with mock.patch.multiple("sklearn.decomposition", **replacements):
        spec.loader.exec_module(module)
    for target in replacements:
        assert getattr(module, target) is replacements[target]
    sys.modules[module.__name__] = module
    return module


def adopt(module: ModuleType, namespace: dict, unlike: dict[str, str]) -> None:
    """Put the module's tests into `namespace`; those in `unlike` must fail, for a written reason.

    Keys of `unlike` are names of tests, or `name[regular expression of parameter ids]`.
    """
    tests = {k: v for k, v in vars(module).items() if k.startswith("test_")}
    unknown = {key.split("[")[0] for key in unlike} - set(tests)
    assert not unknown, f"no such tests: {unknown}"
    namespace.update(tests)
    namespace["UNLIKE"] = unlike


def reason_to_differ(item: pytest.Item) -> str | None:
    """Return why a borrowed test cannot hold for our class, or None."""
    unlike = getattr(getattr(item, "module", None), "UNLIKE", {})
    name, _, parameters = item.name.partition("[")
    for key, reason in unlike.items():
        test, _, pattern = key.partition("[")
        if test == name and re.search(pattern.rstrip("]") or "", parameters):
            return reason
    return None
