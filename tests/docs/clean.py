"""Run the pages as a newcomer would: the wheel in a new environment, with what the page installs.

A page names what it needs by the first command `python -m pip install …` on it; without one it is
the bare package. Pages that need the same share an environment, and none sees another's packages.
`python -m tests.docs.clean` runs README, docs/start and docs/guide; names of pages run those only.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.docs import snippets

ROOT = snippets.ROOT
INSTALL = re.compile(r"python -m pip install '?\.(?P<extras>\[[\w,]+\])?'?(?P<more>(?: [\w-]+)*)`?")
ELSEWHERE = {
    "docs/guide/gpu.md": "its packages are several GB; the tests run it in the usual environment",
}


def pages():
    """Return the pages of a newcomer."""
    folders = (ROOT / "docs/start", ROOT / "docs/guide")
    found = [ROOT / "README.md", *(path for one in folders for path in sorted(one.glob("*.md")))]
    return [path for path in found if snippets.snippets(path) or snippets.commands(path)]


def needs(path):
    """Return the extras, '' or '[app]', and the other packages that a page tells to install."""
    match = INSTALL.search(path.read_text("utf-8"))
    return (match["extras"] or "", tuple(match["more"].split())) if match else ("", ())


def grouped(paths):
    """Return what is installed to the pages that need it, the bare package first."""
    found = {("", ()): []}
    for path in paths:
        if named(path) in ELSEWHERE:
            print(f"{named(path)}: not here, {ELSEWHERE[named(path)]}", flush=True)
        else:
            found.setdefault(needs(path), []).append(path)
    return found


def named(path):
    return path.relative_to(ROOT).as_posix()


def run(*command, **options):
    subprocess.run([*map(str, command)], check=True, **options)


def install(python, *what):
    """Install packages in the versions that the project is tested with."""
    options = ("-qq", "--disable-pip-version-check", "-c", ROOT / "constraints.txt")
    run(python, "-m", "pip", "install", *options, *what)


def made(folder):
    """Return the wheel of the package."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    [wheel] = folder.glob("*.whl")
    return wheel


def main(paths):
    """Run pages in clean environments; return how many failed."""
    failed = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        wheel, bare = made(folder), folder / "bare"
        venv.create(bare, with_pip=True)
        install(bare / "bin/python", wheel)
        for number, ((extras, more), group) in enumerate(grouped(paths).items()):
            home = bare
            if extras or more:  # a copy of the bare one takes less time than a new one
                home = shutil.copytree(bare, folder / f"more{number}", symlinks=True)
                install(home / "bin/python", f"{wheel}{extras}", *more)
            print(f"pip install .{extras} {' '.join(more)}", flush=True)
            failed += [named(path) for path in group if not passes(home / "bin/python", path)]
            if home is not bare:
                shutil.rmtree(home)
    print(f"{len(paths)} pages, {len(failed)} failed{': ' * bool(failed)}{', '.join(failed)}")
    return len(failed)


def passes(python, path):
    """Run one page in an environment, in an empty folder; return True if it does as it shows."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    env |= {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}  # for `tests`; the package is the wheel's
    with tempfile.TemporaryDirectory() as empty:
        command = [str(python), "-m", "tests.docs.snippets", "--check", str(path)]
        done = subprocess.run(command, cwd=empty, env=env, capture_output=True, text=True)
    words = "runs" if done.returncode == 0 else done.stdout + done.stderr
    print(f"  {named(path)}: {words}", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    asked = [Path(name).resolve() for name in sys.argv[1:]]
    sys.exit(main(asked or pages()) > 0)
