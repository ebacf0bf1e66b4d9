"""The reference: every public name has a page, every docstring says what a reader needs."""

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
from numpydoc.docscrape import NumpyDocString

from tests.test_api import MODULES, is_ours

ROOT = Path(__file__).parents[2]
SKLEARN = re.compile(r"set_\w+_request|get_metadata_routing|[gs]et_params|set_output")
FORMULA = re.compile(r"[=Σ∂⟨‖√⁻]|\^| \(\w+,( \w+)*\)|~ N\(")


def public():
    """Yield (full name, object) of every public name."""
    for module in MODULES:
        found = import_module(module)
        yield from ((f"{module}.{name}", getattr(found, name)) for name in found.__all__)


def documented():
    """Yield (full name, object) of every public function, class and method of this library."""
    for name, value in public():
        if callable(value):
            yield name, value
        if inspect.isclass(value):
            for member in dir(value):
                method = inspect.getattr_static(value, member)
                if member.startswith("_") or SKLEARN.fullmatch(member):
                    continue
                if is_ours(value, member) and callable(getattr(method, "__func__", method)):
                    yield f"{name}.{member}", getattr(value, member)


def sections(value):
    """Return the sections of a docstring."""
    return NumpyDocString(inspect.getdoc(value) or "")


def entries(doc):
    """Return name to type of what a docstring lists as parameters or, for results, attributes."""
    listed = doc["Parameters"] + doc["Other Parameters"] + doc["Attributes"]
    return {name.strip().lstrip("*"): one.type for one in listed for name in one.name.split(",")}


def parameters(value):
    """Return the parameters of a function, method or class without `self`."""
    if inspect.isclass(value) and issubclass(value, BaseException):
        value = value.__init__
    if value in (BaseException.__init__, Exception.__init__):
        return []
    if inspect.isclass(value) and getattr(value, "_is_protocol", False):
        return []
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p for p in found if p.name not in ("self", "args", "kwargs")]


def test_every_public_name_is_in_the_reference():
    page = (ROOT / "docs/reference/index.md").read_text("utf-8")
    listed, module = set(), "dualpca"
    for line in page.splitlines():
        if found := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = found[1]
        elif found := re.match(r"\.\. data:: (\S+)", line):
            listed.add(found[1])
        elif found := re.match(r"   ([\w.]+)$", line):
            listed.add(f"{module}.{found[1]}")
    names = {name for name, _ in public()} - {"dualpca.__version__"}
    assert names - listed == set()
    assert listed - names == set()


def test_docstrings_have_parameters_returns_and_examples():
    missing = []
    for name, value in documented():
        doc = sections(value)
        known = entries(doc)
        missing += [f"{name}: {p.name}" for p in parameters(value) if p.name not in known]
        if not inspect.isclass(value) and not (doc["Returns"] or doc["Yields"]):
            missing.append(f"{name}: Returns")
        error = inspect.isclass(value) and issubclass(value, (Exception, Warning))
        if not doc["Examples"] and not error:
            missing.append(f"{name}: Examples")
    assert missing == []


def test_defaults_are_documented():
    missing = []
    for name, value in documented():
        known = entries(sections(value))
        for p in parameters(value):
            if p.default is not p.empty and "default=" not in known.get(p.name, "default="):
                missing.append(f"{name}: {p.name}")
    assert missing == []


def test_summary_lines_are_sentences_and_not_formulas():
    summaries = {name: " ".join(sections(value)["Summary"]) for name, value in documented()}
    odd = {name: text for name, text in summaries.items() if not text or FORMULA.search(text)}
    assert odd == {}


def test_docstrings_link_to_names_that_exist():
    names = {name for name, _ in documented()}
    odd = []
    for name, value in documented():
        for role, target in re.findall(
            r":(class|meth|func|attr):`~?\.?([\w.]+)`", inspect.getdoc(value)
        ):
            owner = name.rpartition(".")[0]
            places = (target, f"dualpca.{target}", f"{owner}.{target}", f"{name}.{target}")
            if role != "attr" and not any(place in names for place in places):
                odd.append(f"{name}: {target}")
    assert odd == []


# --- the command line ----------------------------------------------------------------------------


@pytest.fixture
def options(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs/_ext"))
    sys.modules.pop("options", None)
    return import_module("options")


def test_option_tables_hold_every_option_of_every_command(options, monkeypatch):
    from typer.testing import CliRunner

    from dualpca.app.cli import build

    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("NO_COLOR", "1")
    commands = options.program().commands
    assert len(commands) == 17
    for name, command in commands.items():
        printed = CliRunner().invoke(build(), [name, "--help"]).output
        asked = set(re.findall(r"^\W*(--[a-z][\w-]*)", printed, re.M)) - {"--help"}
        rows = [options.cells(param) for param in options.shown(command)]
        assert asked <= {word for words, _, _ in rows for word in words}, name
        assert asked or name == "inspect"
        assert all(meaning for _, _, meaning in rows), name


def test_the_page_of_options_has_a_table_per_command(options):
    from docutils.core import publish_doctree
    from docutils.parsers.rst import directives

    directives.register_directive("command-options", options.CommandOptions)
    tree = publish_doctree(".. command-options::\n")
    assert len(list(tree.findall(lambda node: node.tagname == "table"))) == 17
    page = (ROOT / "docs/reference/defaults.md").read_text("utf-8")
    assert "```{command-options}" in page
