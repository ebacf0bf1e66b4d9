"""docs/design/walk.md: what it names exists, each walk is short, and goes downward only."""

import ast
import re

import pytest

from tests.docs.test_documentation import ROOT

PAGE = (ROOT / "docs/design/walk.md").read_text("utf-8")
ROOMS = (
    *("app", "estimators", "files", "search", "generation", "preimages", "models", "gaussian"),
    *("solvers", "operators", "kernels", "data", "arrays"),
)
WALKS = {
    part.splitlines()[0]: re.findall(r"^\| `(\S+\.py)` \| `([\w.]+)` \|", part, re.M)
    for part in PAGE.split("\n## ")[1:]
}


def test_there_are_four_walks():
    assert len(WALKS) == 4


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_is_short_and_downward(walk):
    rooms = [ROOMS.index(path.split("/")[0]) for path, _ in WALKS[walk]]
    assert 5 < len(rooms) <= 10
    assert rooms == sorted(rooms)


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_names_what_exists(walk):
    for path, name in WALKS[walk]:
        scope = ast.parse((ROOT / "src/dualpca" / path).read_text("utf-8")).body
        for part in name.split("."):
            named = [n for n in scope if getattr(n, "name", None) == part]
            assert named, f"{path} has no {name}"
            scope = getattr(named[0], "body", [])
