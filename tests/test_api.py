"""The public interface is frozen: what changes it changes `tests/api.txt` too, on purpose.

`python -m tests.test_api` writes the file anew.
"""

import inspect
from importlib import import_module
from pathlib import Path

STORED = Path(__file__).parent / "api.txt"
MODULES = (
    "dualpca",
    "dualpca.kernels",
    "dualpca.preimages",
    "dualpca.plots",
    "dualpca.generation",
    "dualpca.datasets",
    "dualpca.report",
    "dualpca.errors",
)


def described():
    """Return one line a public name, with parameters; methods below their class."""
    lines = []
    for module in MODULES:
        found = import_module(module)
        for name in sorted(found.__all__):
            lines += described_one(f"{module}.{name}", getattr(found, name))
    return lines


def described_one(name, value):
    if inspect.isclass(value):
        own = [m for m in dir(value) if not m.startswith("_") and is_ours(value, m)]
        lines = [f"{name}{parameters(value)}"]
        return lines + [f"    {m}{parameters(getattr(value, m))}" for m in sorted(own)]
    return [f"{name}{parameters(value)}" if callable(value) else name]


def is_ours(cls, name):
    """Tell whether a member is defined by this library, and not by scikit-learn or Python."""
    home = next((c for c in cls.__mro__ if name in vars(c)), object)
    return home.__module__.startswith("dualpca")


def parameters(value):
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ""
    words, starred = [], False
    for one in found:
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and not starred:
            words.append("*")
            starred = True
        starred = starred or one.kind is one.VAR_POSITIONAL
        mark = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = "" if one.default is one.empty else f"={one.default!r}"
        words.append(f"{mark}{one.name}{default}")
    return f"({', '.join(words)})"


def test_the_public_interface_is_the_stored_one():
    assert described() == STORED.read_text("utf-8").splitlines()


if __name__ == "__main__":
    STORED.write_text("\n".join(described()) + "\n", "utf-8")
