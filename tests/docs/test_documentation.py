"""Every snippet of the documentation runs, page by page, and prints what the page shows."""

import importlib
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

import dualpca
from benchmarks.readme import with_table
from benchmarks.results import load
from dualpca import errors
from tests.docs import clean, snippets

ROOT = snippets.ROOT
PAGES = snippets.pages()
GUIDES = sorted((ROOT / "docs/guide").glob("*.md"))
MOST_PAGES = 55
UNRUN = {
    "docs/design/adding.md": "run by test_adding, which puts the registries back",
}


def name(path):
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", [p for p in PAGES if snippets.snippets(p)], ids=name)
def test_python_snippets_print_what_the_page_shows(path, tmp_path, monkeypatch):
    if name(path) in UNRUN:
        pytest.skip(UNRUN[name(path)])
    if "import torch" in path.read_text("utf-8"):
        pytest.importorskip("torch", reason="the page is about torch")
    monkeypatch.chdir(tmp_path)
    shown = [output or "" for _, output in snippets.snippets(path)]
    for (place, printed), expected in zip(snippets.run(path), shown, strict=True):
        assert snippets.same(expected, printed), f"{place} prints\n{printed}"


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in PAGES if snippets.commands(p)], ids=name)
def test_commands_print_what_the_page_shows(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in snippets.run(path):
        pass
    for command, shown in snippets.commands(path):
        printed = snippets.called(command)
        assert not shown.strip() or snippets.same(shown, printed), f"{command} prints\n{printed}"


def test_outputs_are_compared_in_words_and_in_the_digits_shown():
    assert snippets.same("q = 3, 0.12 s", "q =  3, 0.124 s\n")
    assert not snippets.same("q = 3", "q = 4")
    assert not snippets.same("error 0.12", "error 0.19")
    assert not snippets.same("", "something")
    assert snippets.same("in … seconds", "in 3.2 seconds")


@pytest.mark.parametrize(
    "module", ["dualpca", "dualpca.kernels", "dualpca.preimages", "dualpca.plots"]
)
def test_every_public_name_is_in_the_reference(module):
    text = (ROOT / "docs/reference/index.md").read_text("utf-8")
    names = [n for n in importlib.import_module(module).__all__ if not re.match(r"_|[A-Z]+$", n)]
    names += ["RBF", "PCA", "PPCA", "CCA"] if module == "dualpca" else []
    missing = [n for n in names if not re.search(rf"^   {n}$", text, re.M)]
    assert missing == []


def test_every_picture_of_a_page_has_words():
    for path in PAGES:
        assert "![](" not in path.read_text("utf-8"), name(path)


MISPRINTS = """
the_mean_given_latents_adds_mu
the_posterior_covariance_has_a_noise_variance
the_posterior_mean_multiplies_by_sigma
the_covariance_of_kernel_values
the_determinant_is_a_product
the_other_eigenvalues_are_the_noise
the_square_stands_inside_the_sum
centring_loses_one_dimension
published_noise_is_that_of_uncentred_kernels
the_noise_is_updated_with_the_new_loadings
the_noise_of_a_mixture_is_what_is_left
one_em_step_is_the_papers_from_the_features
em_never_falls_and_reaches_the_maximum
projections_need_the_root_of_the_eigenvalues the_last_centring_term_is_the_mean_of_all
explained_variance_is_a_share_of_eigenvalues
fixed_point_ends_where_the_gradient_vanishes
every_step_has_noise_of_its_own
iris_by_fifty_steps_of_plain_em
the_gaussian_kernel_has_a_squared_distance
the_discarded_sum_ends_at_the_dimension
coefficients_are_normalised_without_the_number_of_points
""".strip().splitlines()
"""Tests of the rows of docs/theory/references.md, in their order."""


def test_every_misprint_has_a_test():
    page = (ROOT / "docs/theory/references.md").read_text("utf-8")
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(re.findall(r"^\| S\d", page, re.M)) == len(MISPRINTS)
    missing = [n for n in " ".join(MISPRINTS).split() if f"def test_{n}(" not in tests]
    assert missing == []


# --- README ----------------------------------------------------------------------------------


def test_the_readme_compares_with_what_was_measured():
    readme = (ROOT / "README.md").read_text("utf-8")
    assert with_table(readme, load()) == readme, "run: python -m benchmarks --page"
    assert readme.count("| scikit-learn") > 5


def test_the_readme_starts_with_an_audience_an_install_line_and_a_snippet():
    text = (ROOT / "README.md").read_text("utf-8")
    head = text.partition("![")[0]
    assert "It is for" in head and "pip install '.[app]'" in head and "```text" in head
    [(code, _)] = snippets.snippets(ROOT / "README.md")
    assert len([line for line in code.splitlines() if line.strip()]) == 6


def test_the_readme_has_no_markup_of_the_site_and_its_links_lead_to_files():
    text = (ROOT / "README.md").read_text("utf-8")
    assert not re.search(r"\{\w+\}`|^```\{|^:::", text, re.M)
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_the_citation_has_the_version():
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"version: {dualpca.__version__}\n" in text
    assert f"version {dualpca.__version__}" in (ROOT / "README.md").read_text("utf-8")


# --- guides and models -----------------------------------------------------------------------


@pytest.mark.parametrize("path", GUIDES, ids=name)
def test_every_guide_has_search_words_a_picture_and_what_can_go_wrong(path):
    text = path.read_text("utf-8")
    before = text.partition("\n## ")[0]
    assert "```{index}" in before, "no words to search for"
    assert re.search(r"^```\{(picture|image)\} |:file: .*\.svg", before, re.M), (
        "no picture at its top"
    )
    assert "## What can go wrong" in text


def test_every_warning_is_explained_in_a_guide():
    warnings = [
        found
        for found, kind in vars(errors).items()
        if isinstance(kind, type)
        and issubclass(kind, Warning)
        and kind.__module__ == errors.__name__
    ]
    text = "".join(path.read_text("utf-8") for path in GUIDES)
    assert warnings and [found for found in warnings if found not in text] == []


def test_one_table_has_every_estimator_with_a_guide_that_shows_it():
    page = (ROOT / "docs/start/which-model.md").read_text("utf-8")
    rows = re.findall(r"^\|.*\| \{class\}`(\w+) <.*\| \{doc\}`\.\./(guide/[\w-]+)` \|$", page, re.M)
    assert sorted(found for found, _ in rows) == sorted(
        n for n in dualpca.__all__ if hasattr(getattr(dualpca, n), "fit")
    )
    for found, guide in rows:
        code = "\n".join(code for code, _ in snippets.snippets(ROOT / f"docs/{guide}.md"))
        assert re.search(rf"\b{found}\b", code), (found, guide)
    others = [p for p in PAGES if p.stem not in ("which-model", "changelog", "walk", "defaults")]
    tables = [
        name(p) for p in others if p.read_text("utf-8").count("\n| {class}`") >= len(rows) // 2
    ]
    assert tables == []


def test_what_is_recommended_for_gaps_filled_best():
    page = (ROOT / "docs/start/which-model.md").read_text("utf-8")
    assert "To fill gaps: {class}`Imputer() " in page
    tables = {}
    for row in (row for part in load()["numbers"].values() for row in part.rows):
        tables.setdefault(row["name"], {})[row["who"]] = row["numbers"]
    best = Counter(min(found, key=found.get) for found in tables.values()).most_common()
    assert len(tables) >= 12 and "Imputer()" in best[0][0] and best[0][1] > best[1][1], best


def test_the_site_has_few_pages():
    """Pages that somebody wrote; those of the gallery and of single names are generated."""
    assert len([p for p in PAGES if "docs" in p.relative_to(ROOT).parts]) <= MOST_PAGES


def test_every_page_of_the_site_is_reachable():
    listed = set()
    for index in (ROOT / "docs").rglob("*.md"):
        for block in re.findall(r"```\{toctree\}\n(.*?)```", index.read_text("utf-8"), re.S):
            entries = [e for e in block.split() if not e.startswith(":")]
            listed |= {(index.parent / e).with_suffix(".md").resolve() for e in entries}
    skipped = {(ROOT / "docs/index.md").resolve()}
    pages = {p.resolve() for p in PAGES if "docs" in p.relative_to(ROOT).parts}
    assert pages - listed - skipped - {Path(p) for p in ()} == set()


# --- what a page needs -----------------------------------------------------------------------

BROUGHT = {  # extra or package to what can be imported with it
    "": {"numpy", "scipy", "sklearn", "dualpca", "array_api_compat", "threadpoolctl", "joblib"},
    "app": {"typer", "rich", "polars", "matplotlib", "PIL", "plotly", "fastapi", "uvicorn"},
    "search": {"optuna"},
    "dask": {"dask", "distributed", "pandas", "pyarrow"},
    "onnx": {"onnx"},
    "gpu": {"torch", "triton"},
}


@pytest.mark.parametrize("path", clean.pages(), ids=name)
def test_a_page_names_what_has_to_be_installed_for_it(path):
    extras, more = clean.needs(path)
    words = ["", *extras.strip("[]").split(","), *more]
    there = set().union(*(BROUGHT.get(word, {word}) for word in words))
    code = "\n".join(code for code, _ in snippets.snippets(path))
    asked = {
        match.split(".")[0] for match in re.findall(r"^ *(?:import|from) ([\w.]+)", code, re.M)
    }
    asked |= {"pandas"} if "as_frame=True" in code else set()
    asked |= {"matplotlib"} if re.search(r"import plots|dualpca\.plots", code) else set()
    asked |= (
        {"typer"} if any(c.startswith("dualpca") for c, _ in snippets.commands(path)) else set()
    )
    assert asked - there - set(sys.stdlib_module_names) == set()


def test_the_command_that_installs_is_read_from_the_page(tmp_path):
    page = tmp_path / "page.md"
    for words, found in {
        "nothing": ("", ()),
        "`python -m pip install .`": ("", ()),
        "    python -m pip install .          # in a clone": ("", ()),
        "`python -m pip install . pandas` in a clone.": ("", ("pandas",)),
        "`python -m pip install '.[app,search]' zarr pyarrow`.": (
            "[app,search]",
            ("zarr", "pyarrow"),
        ),
    }.items():
        page.write_text(words, "utf-8")
        assert clean.needs(page) == found
