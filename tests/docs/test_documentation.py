"""Every snippet of the documentation runs, page by page, as a reader would type it."""

import contextlib
import importlib
import io
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(ROOT.glob("docs/**/*.md"))
PAGES = [p for p in PAGES if "gallery" not in p.parts and "generated" not in p.parts]
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.M | re.S)
OUT = ("filled.csv", "uncertainty.csv")
UNRUN = {
    "docs/design/adding.md": "run by test_adding, which puts the registries back",
}


def snippets(path, language):
    return [code for name, code in FENCE.findall(path.read_text("utf-8")) if name == language]


def name(path):
    return path.relative_to(ROOT).as_posix()


RUN = [p for p in PAGES if snippets(p, "python")]


@pytest.mark.parametrize("path", RUN, ids=name)
def test_python_snippets_run(path, tmp_path, monkeypatch):
    if name(path) in UNRUN:
        pytest.skip(UNRUN[name(path)])
    if "torch" in path.read_text("utf-8"):
        pytest.importorskip("torch", reason="the page is about torch")
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "page"}
    for number, code in enumerate(snippets(path, "python")):
        place = f"{name(path)}, snippet {number + 1}"
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore", category=DeprecationWarning)
            exec(compile(code, place, "exec"), scope)


@pytest.mark.slow
def test_the_five_minutes_run_on_the_command_line(tmp_path):
    from sklearn.datasets import load_wine

    wine = load_wine(as_frame=True).data
    lost = np.random.default_rng(0).random(wine.shape) < 0.1
    wine.mask(lost).to_csv(tmp_path / "wine.csv", index=False)
    lines = snippets(ROOT / "docs/start/five-minutes.md", "console")[0].splitlines()
    command = shutil.which("dualpca", path=str(Path(sys.executable).parent))
    assert len(lines) == 2
    for line in lines:
        words = line.removeprefix("$ dualpca ").split()
        done = subprocess.run([command, *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    filled, std = (np.loadtxt(tmp_path / f, delimiter=",", skiprows=1) for f in OUT)
    assert filled.shape == wine.shape and np.array_equal(std > 0, lost)
    np.testing.assert_allclose(filled[~lost], wine.to_numpy()[~lost])


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


def test_every_misprint_names_a_test_that_exists():
    page = (ROOT / "docs/theory/misprints.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if re.match(r"\| S\d", line)]
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(rows) == 21
    for row in rows:
        names = re.findall(r"`(\w+)`", row.rsplit("|", 2)[1])
        assert names and all(f"def test_{name}(" in tests for name in names), row


def test_the_readme_compares_with_what_was_measured():
    readme = (ROOT / "README.md").read_text("utf-8")
    table = readme.partition("## How it compares")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("|")][2:]
    measured = (ROOT / "docs/benchmarks.md").read_text("utf-8")
    assert len(rows) > 8 and sum("missed" in row[4] for row in rows) >= 3
    for row in rows:
        for number in re.findall(r"\d+\.\d+", " ".join(row[1:4])):
            assert number in measured, (number, row[0])


def test_the_readme_has_ten_lines_of_code_that_run():
    [code] = snippets(ROOT / "README.md", "python")
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 10
    scope = {}
    exec(compile(code, "README.md", "exec"), scope)
    assert scope["new"].shape == (5, 4)


def test_the_citation_has_the_version():
    import dualpca

    text = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"version: {dualpca.__version__}\n" in text
    assert f"version {dualpca.__version__}" in (ROOT / "README.md").read_text("utf-8")


def test_every_page_of_the_guide_has_a_picture_and_its_pitfalls():
    for path in sorted((ROOT / "docs/guide").glob("*.md")):
        text = path.read_text("utf-8")
        assert re.search(r"!\[.+\]\(|:file: .*\.svg", text), f"{name(path)} has no picture"
        assert "**Pitfalls.**" in text, f"{name(path)} has no pitfalls"
