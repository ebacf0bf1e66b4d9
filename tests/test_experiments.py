"""Experiments: every registered one runs and writes all its files, the same for the same seed."""

import json
import re

import pytest

pytest.importorskip("matplotlib")

from dualpca.experiments import (
    EXPERIMENTS,
    reproduce,
)
from dualpca.experiments.running import FORMATS

NAMES = list(EXPERIMENTS)


def _run(name, folder, **options):
    """Run one experiment quickly; its data may not be here."""
    [record] = reproduce([name], folder, quick=True, **options)
    if record.problem:
        pytest.skip(record.problem)
    return record


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a function from an experiment to the folder of its quick run, made once."""
    folders = {}

    def folder_of(name):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            _run(name, folders[name])
        return folders[name]

    return folder_of


def _record(folder, name):
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_writes_all_its_files(name, made):
    folder = made(name)
    record = _record(folder, name)
    figures = record["figures"]
    stems = [name] if len(figures) == 1 else [figure["png"][: -len(".png")] for figure in figures]
    expected = {f"{stem}.{ending}" for stem in stems for ending in FORMATS}
    assert {path.name for path in folder.iterdir()} == expected | {f"{name}.json", "index.html"}
    assert all(stem.startswith(name) for stem in stems)
    assert all((folder / file).stat().st_size > 1000 for file in expected)
    assert record["quick"] and record["seed"] == 0 and record["seconds"] > 0
    assert set(record["versions"]) >= {"dualpca", "python", "numpy", "matplotlib"}


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_says_what_it_shows_agrees_and_differs(name, made):
    record = _record(made(name), name)
    for key in ("title", "caption", "agrees", "differs"):
        assert len(record[key]) > 15, key
    assert record["caption"].endswith(".")
    assert record["agrees"].endswith(".") and record["differs"].endswith(".")
    assert record["numbers"]
    assert re.fullmatch(r"S[0-4] \S.*", record["source"])


@pytest.mark.parametrize("name", [n for n in NAMES if not EXPERIMENTS[n].timed])
def test_the_same_seed_gives_the_same_bytes(name, made, tmp_path):
    first = made(name)
    _run(name, tmp_path)
    for path in tmp_path.iterdir():
        if path.suffix in (".png", ".svg"):
            assert path.read_bytes() == (first / path.name).read_bytes(), path.name
    old, new = (_record(folder, name) for folder in (first, tmp_path))
    assert old | {"seconds": 0} == new | {"seconds": 0}
