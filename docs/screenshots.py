"""Take the pictures of the report and the explorer that README and index show: light and dark.

    python docs/screenshots.py

writes four files to `docs/_static`: the report on `examples/water.csv`, and the explorer with the
model and the data that `dualpca demo` writes. It needs chromium and Playwright.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
SHOWN = Path(__file__).with_name("_static")
SIZE = {"width": 1000, "height": 700}
COLOURS = 128
LARGEST = 200_000
"""Bytes of a picture."""
DEMO = "dualpca-demo"
FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]


def called(folder: Path, *command: str) -> None:
    """Run a command of the program in a folder."""
    subprocess.run([sys.executable, "-m", "dualpca", *command], cwd=folder, check=True)


@contextmanager
def explorer(folder: Path) -> Iterator[str]:
    """Start the explorer on the demo's files; yield its link."""
    options = ("--image", "8x8", "--color", "digit", "--no-open", "--json")
    command = [sys.executable, "-m", "dualpca", "explore", f"{DEMO}.dpca", f"{DEMO}.csv", *options]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            answer = "".join(iter(server.stdout.readline, "}\n"))
            yield json.loads(f"{answer}}}")["url"]
        finally:
            server.terminate()


def shoot(page: Any, name: str) -> None:
    """Keep what a page shows as a small PNG."""
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    path = SHOWN / f"{name}.png"
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {size:,} bytes")
    assert size <= LARGEST, f"{path.name} has more than {LARGEST:,} bytes"


def show_report(page: Any, folder: Path) -> None:
    """Open the report where it shows what is filled in."""
    page.goto((folder / "report.html").as_uri())
    page.wait_for_timeout(2000)
    page.locator("#what-is-filled-in").evaluate("section => section.scrollIntoView()")
    page.wait_for_timeout(2000)


def show_explorer(page: Any, link: str) -> None:
    """Open the explorer, with the point among the zeros."""
    page.goto(link)
    page.wait_for_selector("html[data-ready]")
    page.locator("#plot").click(position={"x": 325, "y": 85})
    page.wait_for_timeout(1500)


def main() -> None:
    """Make what is shown, and take the pictures."""
    with tempfile.TemporaryDirectory() as place, sync_playwright() as driver:
        folder = Path(place)
        shutil.copy(ROOT / "examples/water.csv", folder / "yours.csv")
        called(folder, "demo", "--quiet")
        called(folder, "report", "yours.csv")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        with explorer(folder) as link:
            for scheme in ("light", "dark"):
                page = browser.new_page(viewport=SIZE, color_scheme=scheme)
                page.set_default_timeout(60_000)
                show_report(page, folder)
                shoot(page, f"report-{scheme}")
                show_explorer(page, link)
                shoot(page, f"explorer-{scheme}")
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
