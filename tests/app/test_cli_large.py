"""Tables larger than `--memory-limit`, through the entry point: the same answers, less memory."""

import io
import json
import os
import subprocess
import sys
import time

import numpy as np
import polars as pl
import psutil
import pytest

import dualpca as dp
from dualpca.app.tables import reading, text
from tests.app.test_cli import ENTRY

NAMES = [f"v{j}" for j in range(8)]


def rows(n, missing):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, 8)) + 0.3 * rng.normal(size=(n, 8)) + 5
    X[rng.random(X.shape) < missing] = np.nan
    frame = pl.DataFrame(X, schema=NAMES, orient="row").fill_nan(None)
    return frame.insert_column(0, pl.Series("id", [f"{i:06d}" for i in range(n)]))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    for name, missing in (("full", 0.0), ("holes", 0.1)):
        frame = rows(2000, missing)
        frame.write_csv(folder / f"{name}.csv")
        frame.write_parquet(folder / f"{name}.parquet")
    rows(2000, 0.0).drop("id").write_csv(folder / "nameless.csv")
    np.save(folder / "full.npy", rows(2000, 0).drop("id").to_numpy())
    return folder


@pytest.fixture
def tiny(monkeypatch):
    """Let memory have room for a hundredth of the tables here."""
    monkeypatch.setattr(reading, "room_for", lambda limit: 200_000)
    monkeypatch.setattr(reading, "piece_of", lambda kind, room: 15_000)


def both(inside, monkeypatch, arguments, name, cwd, tmp_path):
    """Run a command on the table at once and in batches, and return what both wrote."""
    found = []
    for piece in (None, 15_000):
        out = tmp_path / f"{piece}-{name}"
        with monkeypatch.context() as patch:
            if piece:
                patch.setattr(reading, "room_for", lambda limit: 200_000)
                patch.setattr(reading, "piece_of", lambda kind, room: 15_000)
            status, printed, said = inside(*arguments, "-o", out, "--json", cwd=cwd)
        assert status == 0, said
        found.append((out, json.loads(printed)))
    return found


FITS = {
    "pca": ("full.csv", "-m", "pca"),
    "fa": ("full.csv", "-m", "fa"),
    "bpca": ("full.csv", "-m", "bpca"),
    "kpca": (*("full.csv", "-m", "kpca", "--kernel", "rbf"), *("--set", "eigen_solver=fourier")),
    "ppca with missing values": ("holes.csv",),
    "fa with missing values": ("holes.parquet", "-m", "fa"),
    "bpca with missing values": ("holes.csv", "-m", "bpca"),
    "ppca": ("full.csv",),
    "ppca by bic": ("full.csv", "-q", "bic"),
    "in its own units": ("full.csv", "--no-standardize"),
    "parquet": ("full.parquet",),
    "npy": ("full.npy",),
}


@pytest.mark.parametrize("arguments", FITS.values(), ids=FITS)
def test_fits_in_batches_are_fits(arguments, place, inside, monkeypatch, tmp_path):
    given = [] if "-q" in arguments else ["-q", 2]
    given += [] if "full.npy" in arguments else ["--id", "id"]
    whole, parts = both(inside, monkeypatch, ("fit", *arguments, *given), "m.dpca", place, tmp_path)
    assert (whole[1]["batches"], whole[1]["rows"]) == (1, parts[1]["rows"])
    assert parts[1]["batches"] > 5
    models = [dp.load(path, return_metadata=True) for path, _ in (whole, parts)]
    (one, said), (other, also) = models
    if "kpca" in arguments:
        np.testing.assert_allclose(other.eigenvalues_, one.eigenvalues_, rtol=1e-8)
    else:
        np.testing.assert_allclose(other.components_, one.components_, atol=1e-8)
        np.testing.assert_allclose(other.noise_variance_, one.noise_variance_, rtol=1e-8)
    assert said["table"]["columns"] == also["table"]["columns"]
    for name in ("means", "scales"):
        np.testing.assert_allclose(said["table"].get(name, 0), also["table"].get(name, 0))


def test_batches_are_what_the_library_reads(place, inside, tiny, tmp_path):
    out = tmp_path / "m.dpca"
    arguments = ("fit", "holes.csv", "--id", "id", "-q", 2, "--no-standardize", "-o", out)
    status, _, said = inside(*arguments, cwd=place)
    assert (status, "batches" in said) == (0, True)
    X = rows(2000, 0.1).drop("id")
    wanted, found = dp.PPCA(2).fit(X), dp.load(out)
    np.testing.assert_allclose(found.score_samples(X), wanted.score_samples(X), atol=1e-8)
    assert list(found.feature_names_in_) == NAMES


USES = {
    "transform": ("transform", "full.csv", "z.csv"),
    "transform to parquet": ("transform", "full.parquet", "z.parquet"),
    "denoise": ("denoise", "full.csv", "d.arrow"),
    "denoise to npy": ("denoise", "full.csv", "d.npy"),
    "impute": ("impute", "holes.csv", "f.csv"),
    "score": ("score", "holes.csv", "s.csv"),
    "score by number": ("score", "nameless.csv", "s.csv"),
}


@pytest.mark.parametrize("command, data, name", USES.values(), ids=USES)
def test_batches_give_what_the_table_gives(
    command,
    data,
    name,
    place,
    fitted,
    inside,
    monkeypatch,
    tmp_path,
):
    arguments = (command, fitted, data)
    (whole, a), (parts, b) = both(inside, monkeypatch, arguments, name, place, tmp_path)
    assert {k: v for k, v in a.items() if isinstance(v, int | list)} == {
        k: v for k, v in b.items() if isinstance(v, int | list)
    }
    one, other = reading.read(whole), reading.read(parts)
    assert one.columns == other.columns
    for column in one.columns:
        if one[column].dtype == pl.Float64:
            np.testing.assert_allclose(one[column], other[column], rtol=1e-9, atol=1e-12)
        else:
            assert one[column].equals(other[column])


@pytest.fixture(scope="module")
def fitted(place):
    path = place / "m.dpca"
    subprocess.run(
        [*ENTRY, "fit", "full.csv", "--id", "id", "-q", "2", "-o", path], cwd=place, check=True
    )
    return path


def test_draws_in_batches_are_as_many(place, fitted, inside, tiny, tmp_path):
    out = tmp_path / "d.csv"
    assert inside("impute", fitted, "holes.csv", "-o", out, "--draws", 2, cwd=place)[0] == 0
    found = reading.read(out)
    assert found["draw"].value_counts()["count"].to_list() == [2000, 2000]
    assert found.null_count().select(NAMES).sum_horizontal().item() == 0


@pytest.mark.parametrize("name", ["dual", "pkpca", "twin"])
def test_models_that_need_all_rows_say_so(name, place, inside, tiny, tmp_path):
    out = tmp_path / "m.dpca"
    arguments = ("fit", "full.csv", "--id", "id", "-m", name, "-o", out)
    status, _, said = inside(*arguments, cwd=place)
    assert (status, out.exists()) == (3, False)
    assert "pca, ppca, fa, bpca, mixture, hmm" in said and "--sample-rows" in said
    if name == "dual":
        status, printed, said = inside(*arguments, "--sample-rows", 300, "--json", cwd=place)
        assert (status, json.loads(printed)["rows"]) == (0, 300)
        assert "300 of 2000 rows" in said


MIXED = {
    "mixture": ("-m", "mixture", "-k", 2, "-q", 1),
    "hmm by lengths": ("-m", "hmm", "--states", 2, "-q", 1, "--lengths", "700,600,500,200"),
    "hmm by column": ("-m", "hmm", "--states", 2, "-q", 1, "--sequence-column", "part"),
}


@pytest.mark.parametrize("arguments", MIXED.values(), ids=MIXED)
@pytest.mark.slow
def test_groups_and_states_are_fitted_in_batches(arguments, inside, monkeypatch, tmp_path):
    frame = rows(2000, 0.05).drop("id")
    far = pl.Series((np.arange(2000) // 50 % 2 * 20.0).tolist())
    frame = frame.with_columns(pl.col(NAMES[0]) + far, pl.col(NAMES[3]) - far)
    frame = frame.insert_column(0, pl.Series("part", [f"s{i // 500}" for i in range(2000)]))
    frame.write_csv(tmp_path / "t.csv")
    given = ("fit", "t.csv", *arguments, *(() if "part" in arguments else ("-x", "part")))
    (one, a), (other, b) = both(inside, monkeypatch, given, "m.dpca", tmp_path, tmp_path)
    assert (a["batches"], b["batches"] > 5) == (1, True)
    models = [dp.load(path) for path in (one, other)]
    means = [np.reshape(model.means_, (2, -1)) for model in models]
    means = [m[np.argsort(m[:, 0])] for m in means]
    np.testing.assert_allclose(*means, atol=1e-3)
    np.testing.assert_allclose(a["log_likelihood"], b["log_likelihood"], rtol=1e-5)


def test_text_is_parsed_twice_however_many_passes_a_fit_needs(
    place, inside, tiny, tmp_path, monkeypatch
):
    parsed, calls = text.TextTable.parsed, []
    monkeypatch.setattr(
        text.TextTable, "parsed", lambda *given: (calls.append(1), parsed(*given))[1]
    )
    arguments = ("fit", "holes.csv", "--id", "id", "-q", 2, "-o", tmp_path / "m.dpca", "--json")
    status, printed, _ = inside(*arguments, cwd=place)
    found = json.loads(printed)
    assert status == 0 and found["iterations"] > 3
    assert len(calls) <= 3 * found["batches"]


def test_without_space_for_them_rows_are_made_again(monkeypatch):
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError("No space left on device")

    monkeypatch.setattr(reading.tempfile, "TemporaryFile", Full)
    frame = pl.DataFrame({"a": np.arange(5.0)})
    kept = reading.KeptRows(lambda: frame.iter_slices(2))
    for _ in range(2):
        assert pl.concat(list(kept())).equals(frame)


def test_one_long_sequence_needs_memory(place, inside, tiny, tmp_path):
    arguments = ("fit", "full.csv", "--id", "id", "-m", "hmm", "-o", tmp_path / "m.dpca")
    status, _, said = inside(*arguments, cwd=place)
    assert status == 3 and "--sequence-column or --lengths" in said


def test_select_and_compare_take_samples(place, inside, tiny):
    for command in ("select", "compare"):
        status, _, said = inside(command, "full.csv", "--id", "id", cwd=place)
        assert status == 3 and "--sample-rows" in said
    status, printed, said = inside(
        "select", "full.csv", "--id", "id", "--sample-rows", 200, "--json", cwd=place
    )
    assert (status, json.loads(printed)["rows"]) == (0, 200)


@pytest.mark.slow
def test_two_gigabytes_in_three_hundred_megabytes(tmp_path):
    """The resident set of the real process stays under the limit, and the fit is the fit."""
    block = rows(20_000, 0.0)
    header, body = block.write_csv(float_precision=6).encode().split(b"\n", 1)
    copies = 0
    with open(tmp_path / "t.csv", "wb") as file:
        file.write(header + b"\n")
        while file.tell() < 2e9:
            file.write(body)
            copies += 1
    limit = ("--memory-limit", "300MB", "--json")
    given = ("--id", "id", "-q", 2, "--no-standardize", "-o", "m.dpca")
    found, peak = watched(tmp_path, "fit", "t.csv", *given, *limit)
    assert (found["rows"], peak < 300e6) == (20_000 * copies, True), peak
    wanted = dp.PPCA(2).fit(pl.read_csv(io_of(header, body)).drop("id"))
    model = dp.load(tmp_path / "m.dpca")
    np.testing.assert_allclose(abs(model.components_), abs(wanted.components_), atol=1e-6)
    found, peak = watched(tmp_path, "transform", "m.dpca", "t.csv", "-o", "z.csv", *limit)
    assert (found["rows"], peak < 300e6) == (20_000 * copies, True), peak
    assert sorted(os.listdir(tmp_path)) == ["m.dpca", "t.csv", "z.csv"]
    for name in ("t.csv", "z.csv"):  # pytest would keep them
        (tmp_path / name).unlink()


def io_of(header, body):
    return header + b"\n" + body


def watched(folder, *arguments):
    """Run a command and return its JSON and the largest resident set of its process."""
    work = subprocess.Popen([*ENTRY, *map(str, arguments)], cwd=folder, stdout=subprocess.PIPE)
    process, peak = psutil.Process(work.pid), 0
    while work.poll() is None:
        try:
            peak = max(peak, process.memory_info().rss)
        except psutil.Error:
            break
        time.sleep(0.02)
    printed = work.communicate(timeout=60)[0]
    assert work.returncode == 0, sys.stderr
    return json.loads(printed), peak
