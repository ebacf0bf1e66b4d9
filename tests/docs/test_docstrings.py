"""What docstrings promise: citations that exist, costs, what is never formed, shapes."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import dualpca

ROOT = Path(__file__).parents[2]
THEORY = sorted(ROOT.glob("docs/theory/*.md"))
CITED = re.compile(r"\b[Tt]heory ((?:\d+(?:\.\d+)?(?:, | and |–)?)+)")
HEADING = re.compile(r"^#+ (\d+)\. |^:label: eq-", re.M)
NAME = r"(?:De )?[A-ZÁÖ][a-zéö][\w-]+"
OTHERS = rf"(?:,? (?:{NAME},? )*& {NAME}| et al\.)?"
LITERATURE = re.compile(rf"({NAME}){OTHERS},? \(?((?:19|20)\d\d)\b")
ARRAYS = ("X", "Y", "Z", "K", "kc", "H", "start", "end")
ESTIMATORS = [n for n in dualpca.__all__ if hasattr(getattr(dualpca, n), "fit")]


def theory_numbers():
    """Return the sections and equations of the theory, numbered as docs/_ext/sections.py does."""
    found = set()
    for page in THEORY:
        section, k = None, 0
        for match in HEADING.finditer(page.read_text("utf-8")):
            if match[1]:
                section, k = match[1], 0
                found.add(section)
            else:
                k += 1
                found.add(f"{section}.{k}")
    return found


def docstrings():
    """Yield (place, docstring) of every module, class and function of the library."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node)
                if text:
                    yield f"{path.name}: {getattr(node, 'name', 'module')}", text


def citations():
    for place, text in docstrings():
        for match in CITED.finditer(re.sub(r"\s+", " ", text)):
            yield from ((place, number) for number in re.findall(r"\d+(?:\.\d+)?", match[1]))


def test_theory_has_its_fourteen_sections():
    assert {str(k) for k in range(1, 15)} <= theory_numbers()


def test_every_equation_belongs_to_a_section():
    assert not [number for number in theory_numbers() if number.startswith("None")]


def test_every_citation_of_the_theory_exists():
    known, cited = theory_numbers(), list(citations())
    assert len(cited) > 40
    assert [(place, number) for place, number in cited if number not in known] == []


def test_every_equation_is_cited_where_it_is_computed():
    equations = {number for number in theory_numbers() if "." in number}
    assert equations - {number for _, number in citations()} == set()


def test_literature_of_theory_and_models_is_listed():
    page = (ROOT / "docs/theory/references.md").read_text("utf-8")
    texts = [p.read_text("utf-8") for p in THEORY if p.name != "references.md"]
    texts += [inspect.getdoc(getattr(dualpca, name)) for name in ESTIMATORS]
    texts += [inspect.getdoc(param.values[0]) or "" for param in methods()]
    cited = {pair for text in texts for pair in LITERATURE.findall(re.sub(r"\s+", " ", text))}
    assert len(cited) > 15
    plain = page.replace("ı", "i")
    missing = [f"{a} {y}" for a, y in cited if not re.search(rf"- {a}\b.*\({y}", plain)]
    assert missing == []


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_say_what_they_cost_and_never_form(name):
    notes = inspect.getdoc(getattr(dualpca, name)).partition("Notes\n-----\n")[2]
    assert re.search(r"\bO\(", notes), "no cost in the Notes"
    assert re.search(r"\b(never|[Nn]othing)\b[^.]* ?(form|kept)", notes), "nor what is never formed"


def methods():
    for name in ESTIMATORS:
        for method, function in inspect.getmembers(getattr(dualpca, name), inspect.isfunction):
            if not method.startswith("_") and function.__module__.startswith("dualpca"):
                yield pytest.param(function, id=f"{name}.{method}")


@pytest.mark.parametrize("function", methods())
def test_arguments_that_are_arrays_have_shapes(function):
    text = inspect.getdoc(function) or ""
    for name in set(inspect.signature(function).parameters) & set(ARRAYS):
        entry = re.search(rf"^[\w, ]*\b{name}\b[\w, ]* : .*(\n +.*)*", text, re.M)
        assert entry, f"{name} is not described"
        assert re.search(r"shape|as in|\(\w+, \w+\)|[Aa]s `", entry[0]), f"{name} has no shape"


@pytest.mark.parametrize("name", [n for n in dualpca.__all__ if n != "__version__"])
def test_public_names_have_examples(name):
    assert ">>> " in inspect.getdoc(getattr(dualpca, name))
