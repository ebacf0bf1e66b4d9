"""Snippets of Markdown pages, and the output that stands below them.

A block ```` ```text ```` right below a block ```` ```python ```` is what the snippet prints. In a
block ```` ```console ```` the lines below `$ dualpca …` are what the command prints; `…` stands for
anything. `yours.csv` and `yours.xlsx` of a page are `examples/water.csv`.
`python -m tests.docs.snippets docs/guide/gpu.md` runs a page and writes its output anew;
with `--check` it compares, and fails where the page shows something else.
"""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import warnings
from pathlib import Path

from tests.workbook import book

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n?```text\n(?P<output>.*?)^```\n)?", re.M | re.S
)
SHELL = re.compile(r"^```console\n(?P<lines>.*?)^```\n", re.M | re.S)
COMMAND = re.compile(
    r"^\$ (?P<command>(?:dualpca|head) [^\n]*)\n(?P<output>(?:(?!\$ )[^\n]*\n)*)", re.M
)
SECONDS = re.compile(r"(?<=seconds )\d[\d.]*|(?<= )\d+\.\d\d$", re.M)
NUMBER = re.compile(r"(?<![\w.])[-+−]?\d+(?:\.(\d*))?(?:e[-+]?\d+)?")


def pages():
    """Return the pages whose snippets run: the README and the site, but for what a build writes."""
    found = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    return [p for p in found if not {"gallery", "generated"} & set(p.parts)]


def snippets(path):
    """Return the (code, output) pairs of a page; output is None where none is shown."""
    return [(m["code"], m["output"]) for m in FENCE.finditer(path.read_text("utf-8"))]


def commands(path):
    """Return the (command, output) pairs of the console blocks of a page."""
    blocks = SHELL.finditer(path.read_text("utf-8"))
    return [(m["command"], m["output"]) for b in blocks for m in COMMAND.finditer(b["lines"])]


def called(command):
    """Return what a command prints, words to both outputs together."""
    program = f'"{sys.executable}" -m dualpca' if command.startswith("dualpca") else "head"
    done = subprocess.run(
        f"{program} {command.partition(' ')[2]}",
        shell=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": "100", "PYTHONWARNINGS": "default"},
    )
    return done.stdout


def bring(path):
    """Put the reader's own table into the current folder, as a CSV file and as a workbook."""
    text = path.read_text("utf-8")
    lines = [line.split(",") for line in (ROOT / "examples/water.csv").read_text().splitlines()]
    if "yours.csv" in text:
        shutil.copy(ROOT / "examples/water.csv", "yours.csv")
    if "yours.xlsx" in text:
        book("yours.xlsx", Water=[[cell_of(cell) for cell in line] for line in lines])


def cell_of(text):
    """Return a cell as Excel keeps it: a number, a text or nothing."""
    try:
        return float(text) if text else None
    except ValueError:
        return text


def run(path):
    """Run the snippets of a page one after the other, as a reader would; yield what each prints."""
    bring(path)
    scope = {"__name__": "page"}
    for number, (code, _) in enumerate(snippets(path)):
        place, printed = f"{path.relative_to(ROOT).as_posix()}, snippet {number + 1}", io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
            warnings.simplefilter("ignore", category=DeprecationWarning)
            exec(compile(code, place, "exec"), scope)
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")
        yield place, printed.getvalue()


def same(shown, printed):
    """Return True if outputs agree: in words exactly, in numbers to the digits that are shown."""
    if "…" in shown:
        parts = map(re.escape, squeezed(shown).split("…"))
        return re.fullmatch(".*".join(parts), squeezed(printed)) is not None
    if NUMBER.sub("#", squeezed(shown)) != NUMBER.sub("#", squeezed(printed)):
        return False
    pairs = zip(NUMBER.finditer(shown), NUMBER.finditer(printed), strict=True)
    return all(abs(value(a) - value(b)) <= unit(a) for a, b in pairs)


def squeezed(text):
    return " ".join(text.split())


def value(match):
    return float(match[0].replace("−", "-"))


def unit(match):
    """Return one and a half units of the last digit that is shown; whole numbers must be equal."""
    if match[1] is None:
        return 0.0
    exponent = int(match[0].partition("e")[2] or 0)
    return 1.5 * 10.0 ** (exponent - len(match[1]))


def write(path):
    """Write what the snippets and commands of a page print below them."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            printed = iter([text for _, text in run(path)])
            answered = iter([called(command) for command, _ in commands(path)])
        finally:
            os.chdir(here)

    def filled(match):
        text = next(printed)
        shown = f"\n```text\n{text.rstrip()}\n```\n" if text.strip() else ""
        return f"```python\n{match['code']}```\n{shown}"

    def session(match):
        text = SECONDS.sub("…", next(answered)).rstrip()
        blank = "\n" if match["output"].endswith("\n\n") else ""
        return f"$ {match['command']}\n" + "\n".join(textwrap_all(text)) + "\n" + blank

    text = FENCE.sub(filled, path.read_text("utf-8"))
    text = SHELL.sub(lambda b: f"```console\n{COMMAND.sub(session, b['lines'])}```\n", text)
    path.write_text(text, "utf-8")


def textwrap_all(text):
    """Return the lines of an output, sentences broken at a hundred characters."""
    for line in text.splitlines():
        yield from (
            textwrap.wrap(line, 100) if len(line) > 100 and "," in line and " " in line else [line]
        )


def check(path):
    """Run a page; return what its snippets and commands print otherwise than it shows."""
    shown = [output or "" for _, output in snippets(path)]
    wrong = [
        f"{place} prints\n{printed}"
        for (place, printed), expected in zip(run(path), shown, strict=True)
        if not same(expected, printed)
    ]
    for command, output in commands(path):
        printed = called(command)
        if output.strip() and not same(output, printed):
            wrong.append(f"{command} prints\n{printed}")
    return wrong


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if name != "--check"]
    if len(names) < len(sys.argv) - 1:
        wrong = [line for name in names for line in check(Path(name).resolve())]
        sys.exit("\n".join(wrong) or 0)
    for name in names:
        write(Path(name).resolve())
