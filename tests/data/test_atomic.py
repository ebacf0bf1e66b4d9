"""A file is written whole or not at all: links, races, full and forbidden places."""

import os
import resource
import subprocess
import sys
import threading

import pytest

import dualpca as dp
from dualpca.data.atomic import replacing
from tests.files import saved_models


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
