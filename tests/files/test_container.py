"""Files that mean harm: bombs, folders of pickles, numbers without end; and files as they are."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import dualpca as dp
from dualpca.errors import ModelFileError
from dualpca.files import container
from tests.files import mutations, saved_models
from tests.files.bombs import bombs
from tests.files.forged import saved

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning"),
    pytest.mark.filterwarnings("ignore::dualpca.errors.CollapseWarning"),
    pytest.mark.filterwarnings("ignore::dualpca.errors.SelectionWarning"),
]


LINUX = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")

MEASURED = """
import json, sys
from pathlib import Path
import array_api_compat.numpy
import dualpca as dp
from dualpca.errors import ModelFileError

def highest():
    return next(int(s.split()[1]) for s in open("/proc/self/status") if s.startswith("VmHWM"))

folder, found = Path(sys.argv[1]), {}
dp.load(folder / "good")
for path in sorted(folder.iterdir()):
    Path("/proc/self/clear_refs").write_text("5")
    before = highest()
    try:
        dp.load(path)
        words = None
    except ModelFileError as error:
        words = str(error)
    found[path.name] = (words, highest() - before)
print(json.dumps(found))
"""


@LINUX
@pytest.mark.slow
def test_bombs_are_refused_in_few_words_and_little_memory(tmp_path):
    dp.PPCA(2).fit(saved_models.X).save(tmp_path / "good")
    made = bombs((tmp_path / "good").read_bytes())
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    command = [sys.executable, "-c", MEASURED, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found = json.loads(run.stdout)
    assert found.pop("good")[0] is None
    assert found.keys() == made.keys()
    assert [name for name, (words, _) in found.items() if words is None or len(words) > 500] == []
    assert not any("\x1b" in words for words, _ in found.values())
    assert {name: size for name, (_, size) in found.items() if size > 200_000} == {}


def test_a_pipeline_cannot_bring_a_folder_of_pickles(tmp_path):
    dp.save(saved_models.MODELS["pipeline"](), tmp_path / "m.dpca")
    header, text, body = mutations.parts((tmp_path / "m.dpca").read_bytes())
    text["model"]["params"]["memory"] = "/tmp/elsewhere"
    (tmp_path / "m.dpca").write_bytes(mutations.signed(header, text, body))
    with pytest.raises(ModelFileError, match="memory of Pipeline"):
        dp.load(tmp_path / "m.dpca")


@pytest.mark.parametrize("features", [10**9, 7])
def test_an_imputer_has_the_features_of_its_model(features, tmp_path):
    saved_models.MODELS["imputer indicator"]().save(tmp_path / "m.dpca")
    header, text, body = mutations.parts((tmp_path / "m.dpca").read_bytes())
    mutations.inputs(text)["n_features_in_"] = features
    (tmp_path / "m.dpca").write_bytes(mutations.signed(header, text, body))
    with pytest.raises(ModelFileError, match="does not fit its inputs"):
        dp.load(tmp_path / "m.dpca")


def test_a_model_that_was_never_fitted_is_no_file(tmp_path):
    dp.save(saved_models.MODELS["pipeline"](), tmp_path / "m.dpca")
    _, text, _ = mutations.parts((tmp_path / "m.dpca").read_bytes())
    for step in text["model"]["params"]["steps"]:
        for part in ("inputs", "model"):
            step["tuple"][1].pop(part)
    (tmp_path / "m.dpca").write_bytes(mutations.signed({}, text, b""))
    with pytest.raises(ModelFileError, match="never fitted"):
        dp.load(tmp_path / "m.dpca")


def test_arrays_used_in_several_places_are_no_bomb(tmp_path):
    """What models really share stays far below the limit."""
    rows = np.random.default_rng(0).normal(size=(200, 5))
    model = dp.Generator(dp.DualPPCA(2), density="kde").fit(rows)
    model.save(tmp_path / "m.dpca")
    dp.load(tmp_path / "m.dpca")


@pytest.mark.parametrize("digits", [40, 400, 5000])
def test_integers_without_end_are_refused_wherever_they_stand(digits, tmp_path):
    path = tmp_path / "m.dpca"
    good = saved("kernel dense", path)
    words, huge = json.dumps(good.text), "1" + "0" * digits
    for old in ('"n_rows": 60', '"n_components": 2', '"n_features_in_": 6', '"format": 1'):
        assert old in words
        text = words.replace(old, f"{old.split(': ')[0]}: {huge}")
        path.write_bytes(mutations.signed(good.header, text, _body(good)))
        with pytest.raises(ModelFileError):
            dp.load(path)
    with pytest.raises(ModelFileError):
        container.parse(huge)
    assert container.parse(str(2**128 - 1)) == 2**128 - 1


def _body(file):
    return b"".join(np.ascontiguousarray(array).tobytes() for array in file.arrays.values())


def test_files_are_read_where_opening_always_waits(tmp_path, monkeypatch):
    """As on Windows."""
    monkeypatch.delattr(os, "O_NONBLOCK", raising=False)
    container.write_container(tmp_path / "m.dpca", {"x": np.arange(3.0)}, "text")
    arrays, text = container.read_container(tmp_path / "m.dpca")
    assert arrays["x"].tolist() == [0, 1, 2] and text == "text"


def test_the_file_is_a_safetensors_file(tmp_path):
    """By the published layout; by the library itself where it is installed."""
    model = dp.PPCA(2).fit(saved_models.X)
    model.save(tmp_path / "m.dpca")
    data = (tmp_path / "m.dpca").read_bytes()
    header, text, body = mutations.parts(data)
    assert int.from_bytes(data[:8], "little") % 8 == 0
    assert all(type(v) is str for v in header["__metadata__"].values())
    begin, end = header["model.mean"]["data_offsets"]
    assert np.array_equal(np.frombuffer(body[begin:end], "<f8"), model.mean_)
    assert sum(np.diff(v["data_offsets"])[0] for k, v in header.items() if k[0] != "_") == len(body)
    assert text["version"] == dp.__version__
    if find_spec("safetensors"):
        from safetensors.numpy import load_file

        assert np.array_equal(load_file(tmp_path / "m.dpca")["model.mean"], model.mean_)
