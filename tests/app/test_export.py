"""`dualpca export` through its entry point, and the graph it writes through another program."""

import json
import subprocess
import sys

import numpy as np
import pytest

import dualpca as dp

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

ENTRY = [sys.executable, "-c", "from dualpca.app.cli import main; main()"]
rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 4)) + 0.1 * rng.normal(size=(40, 4))
NEW = rng.normal(size=(5, 4))


def call(*arguments, cwd):
    command = [*ENTRY, "export", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120)


def test_a_model_file_becomes_a_graph(tmp_path):
    means, scales = X.mean(axis=0), X.std(axis=0)
    model = dp.PPCA(2).fit((X - means) / scales)
    table = {"means": means.tolist(), "scales": scales.tolist()}
    model.save(tmp_path / "m.dpca", metadata={"table": table})
    done = call("m.dpca", "-o", "m.onnx", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    path = tmp_path / "m.onnx"
    assert found["model"] == "PPCA" and found["features"] == 4
    assert found["bytes"] == path.stat().st_size
    [Y] = onnxruntime.InferenceSession(path).run(None, {"X": NEW})
    assert np.abs(Y - model.transform((NEW - means) / scales)).max() < 1e-10


@pytest.mark.slow
def test_single_precision_and_words(tmp_path):
    model = dp.KernelPCA(2, kernel="rbf").fit(X)
    model.save(tmp_path / "m.dpca")
    done = call("m.dpca", "-o", "m.onnx", "--dtype", "float32", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == "Wrote m.onnx: KernelPCA from X (float32, 4 columns) to Y.\n"
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    [Y] = session.run(None, {"X": NEW.astype(np.float32)})
    assert np.abs(Y - model.transform(NEW.astype(np.float32))).max() < 1e-5


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("mixture.dpca", "-o", "m.onnx"), "KernelPCA, DualPPCA"),
        (("nothing.dpca", "-o", "m.onnx"), "nothing.dpca"),
        (("broken.dpca", "-o", "m.onnx"), "not a valid dualpca model file"),
        (("m.dpca", "-o", "nowhere/m.onnx"), "create it first"),
        (("m.dpca", "-o", "m.onnx", "--dtype", "float16"), "float32"),
    ],
)
def test_what_cannot_be_exported_is_said_and_leaves_no_file(arguments, words, tmp_path, inside):
    dp.PPCA(1).fit(X).save(tmp_path / "m.dpca")
    dp.MixturePPCA(1, 1).fit(X).save(tmp_path / "mixture.dpca")
    (tmp_path / "broken.dpca").write_bytes((tmp_path / "m.dpca").read_bytes()[:-1])
    before = sorted(tmp_path.iterdir())
    status, _, said = inside("export", *arguments, cwd=tmp_path)
    assert status not in (0, 2) and words in said
    assert "Traceback" not in said
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.slow
def test_the_extra_is_named_where_onnx_is_missing(tmp_path):
    dp.PPCA(1).fit(X).save(tmp_path / "m.dpca")
    hide = "import sys; sys.modules['onnx'] = None; "
    command = [sys.executable, "-c", hide + ENTRY[-1], "export", "m.dpca", "-o", "m.onnx"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode not in (0, 2) and ".[onnx]" in done.stderr
    assert "Traceback" not in done.stderr
