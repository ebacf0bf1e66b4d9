"""The command: see `benchmarks/__init__.py`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import benchmarks
from benchmarks import page, results
from benchmarks.environment import absent
from benchmarks.sections import SECTIONS

ROOT = Path(__file__).resolve().parents[1]
QUICK = Path(__file__).parent / "out"


def arguments() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=benchmarks.__doc__, formatter_class=form
    )
    add = parser.add_argument
    add("sections", nargs="*", metavar="SECTION[:PART,…]", help=listed())
    add("--page", action="store_true", help="render the page and the README, run nothing")
    add("--take", nargs="+", type=Path, metavar="DIR", help="copy results from elsewhere first")
    add("--quick", action="store_true", help="small data, no page: does everything run?")
    add("--budget", type=float, metavar="SECONDS", help="for each section; the rest is left out")
    add("--out", type=Path, metavar="DIR", help="folder of the results; then no page is rendered")
    add("--commit", help="the commit that is measured, where there is no git")
    return parser.parse_args()


def listed() -> str:
    return "; ".join(f"{s.name}: {', '.join(s.parts)}" for s in SECTIONS.values())


def asked(words: list[str]) -> dict[str, list[str]]:
    """Return the parts to run by section; all of all sections if nothing is named."""
    found = {}
    for word in words or SECTIONS:
        name, _, parts = word.partition(":")
        if name not in SECTIONS:
            raise SystemExit(f"Expected sections among {', '.join(SECTIONS)}; got {name}.")
        known = SECTIONS[name].parts
        chosen = named(parts, known) if parts else list(known)
        found[name] = [part for part in known if part in found.get(name, []) + chosen]
    return found


def named(text: str, known: tuple[str, ...]) -> list[str]:
    """Return the parts named in a list with commas, which some names have themselves."""
    rest, found = f",{text},", []
    for part in sorted(known, key=len, reverse=True):
        if f",{part}," in rest:
            rest = rest.replace(f",{part},", ",")
            found.append(part)
    if unknown := rest.strip(","):
        raise SystemExit(f"Expected parts among {'; '.join(known)}; got {unknown}.")
    return found


def run(name: str, parts: list[str], args: argparse.Namespace, out: Path) -> bool:
    """Run what can be run here of a section, in a process of its own; return whether it went well.

    What cannot be run keeps its stored result.
    """
    ready = []
    for part in parts:
        if why := absent(SECTIONS[name].needs_of(part)):
            print(f"{name}:{part} is skipped, its stored result stays: {why}.", flush=True)
        else:
            ready.append(part)
    if not ready:
        return True
    ask = {"section": name, "parts": ready, "quick": args.quick, "budget": args.budget}
    words = json.dumps(ask | {"out": str(out)})
    return subprocess.run([sys.executable, "-m", "benchmarks.one", words]).returncode == 0


def main() -> int:
    args = arguments()
    chosen = {} if args.page or (args.take and not args.sections) else asked(args.sections)
    if args.commit:
        os.environ["DUALPCA_COMMIT"] = args.commit
    out = args.out or (QUICK if args.quick else results.FOLDER)
    for source in args.take or ():
        print(f"from {source}: {', '.join(results.take(source, out))}")
    well = [run(name, parts, args, out) for name, parts in chosen.items()]
    found = results.load(out)
    if out == results.FOLDER:
        for path in page.write(found, ROOT):
            print(f"wrote {path.relative_to(ROOT)}")
    print(f"\n{page.summary(found)}")
    return int(not all(well))


if __name__ == "__main__":
    raise SystemExit(main())
