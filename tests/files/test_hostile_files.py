"""Files and folders that mean harm: bombs, links, races, full and forbidden places."""

import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import dualpca as dp
from dualpca.data.atomic import replacing
from dualpca.errors import ModelFileError
from tests.files import mutations, saved_models
from tests.files.bombs import bombs

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


# --- writing ----------------------------------------------------------------------------------


def test_a_link_laid_in_wait_is_not_followed(tmp_path, monkeypatch):
    """Whoever guesses the temporary name cannot have another file overwritten."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr("dualpca.data.atomic.token_hex", lambda n: "guessed")
    (tmp_path / ".dualpca-guessed.part").symlink_to(victim)
    with pytest.raises(FileExistsError):
        dp.PCA(1).fit(saved_models.X).save(tmp_path / "m.dpca")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "m.dpca").exists()


def test_permissions_of_an_old_file_are_kept(tmp_path):
    path = tmp_path / "m.dpca"
    model = dp.PCA(1).fit(saved_models.X)
    model.save(path)
    usual = path.stat().st_mode
    (tmp_path / "plain").write_text("")
    assert usual == (tmp_path / "plain").stat().st_mode
    path.chmod(0o600)
    model.save(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_names_may_be_as_long_as_the_system_allows(tmp_path):
    path = tmp_path / ("m" * 255)
    dp.PCA(1).fit(saved_models.X).save(path)
    dp.load(path)


def test_saves_at_once_leave_one_whole_file(tmp_path):
    models = [dp.PCA(q).fit(saved_models.X) for q in (1, 2, 3, 4)]
    path = tmp_path / "m.dpca"
    models[0].save(path)
    failed = []

    def work(model):
        for _ in range(15):
            try:
                model.save(path)
                dp.load(path)
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=work, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert list(tmp_path.iterdir()) == [path]


FULL = """
import resource, sys
import dualpca as dp
model = dp.load(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
try:
    model.save(sys.argv[1])
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.slow
def test_a_place_that_becomes_full_keeps_the_old_file(tmp_path):
    path = tmp_path / "m.dpca"
    dp.PCA(1).fit(saved_models.X).save(path)
    before = path.read_bytes()
    assert len(before) > 500 and resource.RLIMIT_FSIZE is not None
    run = subprocess.run([sys.executable, "-c", FULL, path], capture_output=True, text=True)
    assert run.stdout == "OSError\n", run.stderr
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_forbidden_folder_is_named(tmp_path, monkeypatch):
    """Root may write anywhere, so the system's refusal is played."""
    place = os.open

    def forbidden(path, *rest, **names):
        if str(path).startswith(str(tmp_path)):
            raise PermissionError(13, "Permission denied", str(path))
        return place(path, *rest, **names)

    monkeypatch.setattr(os, "open", forbidden)
    with pytest.raises(PermissionError, match=r"cannot write here.*m\.dpca"):
        dp.PCA(1).fit(saved_models.X).save(tmp_path / "m.dpca")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="needs links and devices")
@pytest.mark.parametrize("target", ["/dev/null", "/dev/full", "."])
def test_only_files_are_replaced(target, tmp_path):
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(FileExistsError, match="not a file"), replacing(tmp_path / "link") as file:
        file.write(b"anything")


def test_a_link_in_a_circle_is_refused(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(FileExistsError, match="circle"):
        dp.PCA(1).fit(saved_models.X).save(tmp_path / "a")


def test_arrays_used_in_several_places_are_no_bomb(tmp_path):
    """What models really share stays far below the limit."""
    rows = np.random.default_rng(0).normal(size=(200, 5))
    model = dp.Generator(dp.DualPPCA(2), density="kde").fit(rows)
    model.save(tmp_path / "m.dpca")
    dp.load(tmp_path / "m.dpca")
