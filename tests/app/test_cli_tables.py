"""The command line on the tables people have: Excel's, folders of images, sequences, units."""

import json
import os
import subprocess

import numpy as np
import polars as pl
import pytest
from PIL import Image

import dualpca as dp
from dualpca.app.cli import _compare
from dualpca.app.tables import reading
from dualpca.app.tables.columns import Preparation, of_table
from tests.app.test_cli import ENTRY

TOWNS = ["Köln", "Zürich", "Wien"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """What an analyst has: a file from Excel, iris-like groups, sequences, images."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 4)) * [1, 10, 100, 1000] + 50
    X += rng.normal(size=X.shape) * [0.1, 1, 10, 100]
    np.save(folder / "truth.npy", X.round(2))
    lines = ["Kunde;Geburtstag;Ort;Größe (cm);Umsatz;Kosten;Menge"]
    for i, row in enumerate(X.round(2)):
        cells = [f"{v:.2f}".replace(".", ",") for v in row]
        if i % 10 == 3:
            cells[i % 4] = ["NA", "", "#NV", " "][i // 10 % 4]
        lines.append(";".join([f"{i:05d}", f"{1 + i % 28:02d}.01.2024", TOWNS[i % 3], *cells]))
    (folder / "excel.csv").write_bytes(("\r\n".join(lines) + "\r\n").encode("utf-8-sig"))
    pl.DataFrame(X, schema=list("abcd"), orient="row").write_csv(folder / "plain.csv")
    return folder


EXCEL = ("excel.csv", "--numbers-only", "--id", "Kunde", "-q", 2)


def done(inside, *arguments, cwd):
    status, printed, said = inside(*arguments, "--json", cwd=cwd)
    assert status == 0, said
    return json.loads(printed), said


def test_a_file_from_excel_goes_there_and_back(place, inside, tmp_path):
    model, out = tmp_path / "m.dpca", tmp_path / "f.csv"
    found, said = done(inside, "fit", *EXCEL, "--standardize", "-o", model, cwd=place)
    assert found["columns"] == ["Größe (cm)", "Umsatz", "Kosten", "Menge"]
    assert "semicolons and decimal commas" in said and "'Geburtstag', 'Ort'" in said
    found, _ = done(inside, "impute", model, "excel.csv", "-o", out, cwd=place)
    assert found["filled"] == 20
    before = (place / "excel.csv").read_text("utf-8-sig").splitlines()
    after = out.read_text("utf-8")
    assert after.startswith("\ufeffKunde;Geburtstag;Ort;Größe (cm)")
    for old, new in zip(before[1:], after.splitlines()[1:], strict=True):
        assert old.split(";")[:3] == new.split(";")[:3]  # zeros before numbers, dates, towns
    filled, truth = reading.read(out).to_numpy()[:, 3:].astype(float), np.load(place / "truth.npy")
    errors = abs(filled - truth) / truth.std(axis=0)
    assert (errors[np.arange(200) % 10 != 3] == 0).all()
    assert 0 < errors.max() < 1


def test_what_is_wrong_with_excel_is_said_at_once(place, inside, tmp_path):
    status, _, said = inside("fit", "excel.csv", "--id", "Kunde", "-o", tmp_path / "x", cwd=place)
    assert status == 0 and "left out because they hold dates or times: 'Geburtstag'." in said
    status, _, said = inside("fit", *EXCEL, "--decimal", ".", "-o", tmp_path / "x.dpca", cwd=place)
    assert status == 3 and "none of them holds numbers" in said


def test_the_time_of_rows_is_no_part_of_the_model_and_stays_in_the_table(inside, tmp_path):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 1)) @ rng.normal(size=(1, 4)) + 0.3 * rng.normal(size=(60, 4))
    frame = pl.DataFrame(X.round(3), schema=list("abcd"), orient="row")
    frame = frame.insert_column(0, pl.Series("hour", np.arange(60) / 2))
    frame = frame.with_columns(pl.when(pl.col("hour") != 3.5).then(pl.col("b")))
    frame.write_csv(tmp_path / "t.csv")
    found, said = done(inside, "fit", "t.csv", cwd=tmp_path)
    assert found["columns"] == list("abcd") and "'hour' tells the time of rows" in said
    _, metadata = dp.load(tmp_path / "t.dpca", return_metadata=True)
    assert metadata["table"]["time"] == "hour"
    done(inside, "impute", "t.dpca", "t.csv", "-o", "f.csv", cwd=tmp_path)
    filled = reading.read(tmp_path / "f.csv")
    assert filled["hour"].equals(frame["hour"]) and filled.null_count().sum_horizontal()[0] == 0
    found, _ = done(inside, "fit", "t.csv", "--columns", "*", "-o", "all.dpca", cwd=tmp_path)
    assert found["columns"] == ["hour", *"abcd"]


def test_units_are_put_on_and_taken_off(place, inside, tmp_path):
    X = reading.read(place / "plain.csv").to_numpy()
    mean, scale = X.mean(axis=0), X.std(axis=0)
    wanted = dp.PPCA(2, random_state=0).fit((X - mean) / scale)
    model, out = tmp_path / "m.dpca", tmp_path / "o.csv"
    done(inside, "fit", "plain.csv", "--standardize", "-q", 2, "-o", model, cwd=place)
    Z = (X - mean) / scale

    def table(*arguments):
        done(inside, *arguments, "-o", out, cwd=place)
        return reading.read(out)

    close = np.testing.assert_allclose
    close(table("transform", model, "plain.csv"), wanted.transform(Z), rtol=1e-6, atol=1e-9)
    close(table("denoise", model, "plain.csv"), wanted.reconstruct(Z) * scale + mean, rtol=1e-8)
    drawn = wanted.sample(100, random_state=0) * scale + mean
    close(table("sample", model), drawn, rtol=1e-6)
    density = wanted.score_samples(Z) - np.log(scale).sum()
    close(table("score", model, "plain.csv")["log_density"], density, rtol=1e-8)


def test_deviations_of_filled_entries_are_in_the_tables_units(place, inside, tmp_path):
    model, out, std = (tmp_path / name for name in ("m.dpca", "f.csv", "s.csv"))
    done(inside, "fit", *EXCEL, "--standardize", "-o", model, cwd=place)
    done(inside, "impute", model, "excel.csv", "-o", out, "--std", std, cwd=place)
    fitted, metadata = dp.load(model, return_metadata=True)
    prep = of_table(metadata["table"], [])
    X = prep.rows(reading.read(place / "excel.csv"))
    wanted = np.asarray(fitted.impute(X, return_std=True)[1]) * metadata["table"].get("scales", 1)
    found = reading.read(std).to_numpy()[:, 1:].astype(float)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_one_hot_levels_are_those_of_the_fit(place, inside, tmp_path):
    model = tmp_path / "m.dpca"
    arguments = (
        "fit",
        "excel.csv",
        "--id",
        "Kunde",
        "-x",
        "Geburtstag",
        "--one-hot",
        "Ort",
        "-q",
        2,
    )
    found, _ = done(inside, *arguments, "-o", model, cwd=place)
    assert found["columns"][:3] == ["Ort=Wien", "Ort=Zürich", "Größe (cm)"]  # Köln: both 0
    lines = (place / "excel.csv").read_text("utf-8-sig").splitlines()
    (tmp_path / "new.csv").write_text("\n".join([lines[0], lines[2], lines[5]]))  # one town
    out = tmp_path / "z.csv"
    done(inside, "transform", model, tmp_path / "new.csv", "-o", out, cwd=place)
    one = reading.read(out)
    done(inside, "transform", model, "excel.csv", "-o", out, cwd=place)
    assert one.columns[0] == "Kunde"
    np.testing.assert_allclose(one[:, 1:].to_numpy(), reading.read(out)[[1, 4], 1:].to_numpy())
    (tmp_path / "new.csv").write_text("\n".join([lines[0], lines[2].replace("Zürich", "Rom")]))
    status, _, said = inside("transform", model, tmp_path / "new.csv", "-o", out, cwd=place)
    assert status == 3 and "not seen: 'Rom'" in said


def test_extra_and_reordered_columns_do_no_harm(place, inside, tmp_path):
    model, out = tmp_path / "m.dpca", tmp_path / "z.csv"
    done(inside, "fit", "plain.csv", "-q", 2, "-o", model, cwd=place)
    done(inside, "transform", model, "plain.csv", "-o", out, cwd=place)
    wanted = reading.read(out)
    other = reading.read(place / "plain.csv").select("d", "a", pl.lit("x").alias("e"), "c", "b")
    other.write_parquet(tmp_path / "t.parquet")
    done(inside, "transform", model, tmp_path / "t.parquet", "-o", out, cwd=place)
    assert reading.read(out).equals(wanted)


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(12):
        pixels = rng.integers(0, 256, size=(4, 5), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"p{i:02d}.png")
    (folder / "notes.txt").write_text("not an image")
    return folder


def test_folders_of_images_are_tables(pictures, inside, tmp_path):
    found, _ = done(inside, "fit", pictures, "-q", 2, "-o", "m.dpca", cwd=tmp_path)
    assert (found["rows"], found["features"]) == (12, 20)
    table = dp.load(tmp_path / "m.dpca", return_metadata=True)[1]["table"]
    assert (table["image_shape"], table["identifier"]) == ([4, 5], "file")
    done(inside, "transform", "m.dpca", pictures, "-o", "z.csv", cwd=tmp_path)
    out = reading.read(tmp_path / "z.csv")
    assert out["file"].to_list() == [f"p{i:02d}.png" for i in range(12)]
    X = np.stack([np.asarray(Image.open(pictures / n)).ravel() for n in out["file"]]).astype(float)
    wanted = dp.PPCA(2, random_state=0).fit(X).transform(X)
    np.testing.assert_allclose(out.drop("file").to_numpy(), wanted, rtol=1e-8, atol=1e-10)
    assert "images of 4 x 5" in inside("inspect", "m.dpca", cwd=tmp_path)[1]


SPOILT = {
    "size": (lambda f: Image.new("L", (9, 4)).save(f / "q.png"), "9 by 4 pixels, grey"),
    "colour": (lambda f: Image.new("RGB", (5, 4)).save(f / "q.png"), "5 by 4 pixels, in colour"),
    "broken": (lambda f: (f / "q.png").write_bytes(b"no"), "not an image that can be read"),
    "none": (lambda f: [p.unlink() for p in f.glob("*.png")], "without images"),
}


@pytest.mark.parametrize("spoil, words", SPOILT.values(), ids=SPOILT)
def test_folders_that_are_no_tables_are_refused(spoil, words, pictures, inside, tmp_path):
    spoil(pictures)
    status, _, said = inside("fit", pictures, "-o", "m.dpca", cwd=tmp_path)
    assert status == 3 and words in said


@pytest.fixture
def sequences(tmp_path):
    rng = np.random.default_rng(0)
    state = np.repeat([0, 1, 0, 1], 30)
    X = np.where(state[:, None] == 0, -3.0, 3.0) + rng.normal(size=(120, 3))
    trial = pl.Series("trial", ["a"] * 60 + ["b"] * 60)
    frame = pl.DataFrame(X, schema=["x", "y", "z"], orient="row").insert_column(0, trial)
    frame.write_csv(tmp_path / "t.csv")
    return state


def test_hidden_markov_models_know_their_sequences(sequences, inside, tmp_path):
    arguments = ("fit", "t.csv", "-m", "hmm", "--states", 2, "--sequence-column", "trial")
    found, _ = done(inside, *arguments, "--standardize", "-o", "m.dpca", cwd=tmp_path)
    assert (found["columns"], found["n_states"]) == (["x", "y", "z"], 2)
    done(inside, "transform", "m.dpca", "t.csv", "-o", "z.csv", cwd=tmp_path)
    states = reading.read(tmp_path / "z.csv")["state"].to_numpy()
    assert (states == sequences).all() or (states == 1 - sequences).all()
    done(inside, "score", "m.dpca", "t.csv", "-o", "s.csv", cwd=tmp_path)
    out = reading.read(tmp_path / "s.csv")
    assert (out["sequence"].to_list(), out["rows"].to_list()) == (["a", "b"], [60, 60])
    model, metadata = dp.load(tmp_path / "m.dpca", return_metadata=True)
    prep = of_table(metadata["table"], [])
    X = prep.rows(reading.read(tmp_path / "t.csv"))
    scales = np.ones(3) if prep.scales is None else prep.scales  # None: the model has them
    wanted = model.score_sequences(X, [60, 60]) - 60 * np.log(scales).sum()
    np.testing.assert_allclose(out["log_density"], wanted)
    done(inside, "sample", "m.dpca", "-n", 5, "-o", "d.csv", cwd=tmp_path)
    assert reading.read(tmp_path / "d.csv").columns == ["state", "x", "y", "z"]
    status, _, said = inside(*arguments[:-1], "q", "-o", "n.dpca", cwd=tmp_path)
    assert status == 3 and "no such column" in said
    status, _, said = inside(*arguments[:-2], "--lengths", "60,x", "-o", "n", cwd=tmp_path)
    assert status == 2


def test_draws_of_mixtures_say_where_they_come_from(place, inside, tmp_path):
    arguments = ("fit", place / "plain.csv", "-m", "mixture", "-k", 2, "-o", "m.dpca")
    found, _ = done(inside, *arguments, cwd=tmp_path)
    assert found["n_mixtures"] == 2
    done(inside, "sample", "m.dpca", "-n", 5, "-o", "d.csv", cwd=tmp_path)
    assert reading.read(tmp_path / "d.csv").columns == ["component", *"abcd"]


def test_compare_judges_every_model(place, inside):
    names = ("pca", "ppca", "fa", "kpca", "pkpca")
    chosen = [word for name in names for word in ("-m", name)]
    found, _ = done(inside, "compare", "plain.csv", *chosen, "-q", 2, cwd=place)
    models = {one["model"]: one for one in found["models"]}
    assert list(models) == ["means", *names[:-1]] and not found["interrupted"]
    assert "rebuilds" in found["left_out"]["pkpca"]
    assert models["means"]["imputation_error"] == models["means"]["reconstruction_error"] == 1
    X = reading.read(place / "plain.csv").to_numpy()
    (parts,) = _compare.splits(X, True, 0.2, 0.1, 0)
    wanted = dp.PPCA(2, random_state=0).fit(parts.train)
    likely = (wanted.score_samples(parts.test) - parts.log_units).mean()
    assert models["ppca"]["log_likelihood"] == pytest.approx(likely)
    true, where = parts.test[parts.of], np.isnan(parts.hidden)
    wrong = ((wanted.impute(parts.hidden) - true)[where] ** 2).sum()
    total = ((parts.train.mean(axis=0) - true)[where] ** 2).sum()
    assert models["ppca"]["imputation_error"] == pytest.approx(wrong / total)
    assert models["kpca"]["log_likelihood"] is None and models["pca"]["imputation_error"] is None


def test_tables_of_categories_alone_are_compared(inside, tmp_path):
    rng = np.random.default_rng(0)
    levels, flips = rng.integers(0, 2, 40), rng.random((40, 3)) < 0.15
    rows = np.array(["low", "high"])[levels[:, None] ^ flips]
    rows[::9, 2] = ""
    lines = ["a,b,c", *(",".join(row) for row in rows)]
    (tmp_path / "c.csv").write_text("\n".join(lines) + "\n")
    found, said = done(inside, "compare", "c.csv", "-m", "ppca", cwd=tmp_path)
    one = found["models"][1]
    assert one["model"] == "ppca" and one["number_error"] is None
    assert 0 <= one["category_error"] <= 1
    assert "1 component, by parallel analysis" in said


def test_units_do_not_change_the_likelihood_compared():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1)) + rng.normal(size=(300, 6)) * 0.5
    X = X * [1, 10, 100, 1, 10, 100]
    found = [
        _compare.judge(lambda: dp.FactorAnalysis(1, tol=1e-6), parts, True)["log_likelihood"]
        for (parts,) in (_compare.splits(X, units, 0.2, 0.1, 0) for units in (False, True))
    ]
    assert found[0] == pytest.approx(found[1], abs=1e-3)


def test_a_model_that_fails_stops_no_other(place, inside):
    arguments = ("excel.csv", "--numbers-only", "--id", "Kunde", "-m", "pca", "-m", "ppca", "-q", 2)
    found, _ = done(inside, "compare", *arguments, cwd=place)
    assert "missing values" in found["left_out"]["pca"]
    assert found["models"][1]["log_likelihood"] < 0
    status, printed, _ = inside("compare", *arguments, cwd=place)
    assert status == 0 and "Left out: pca (" in printed and "*" in printed


def test_an_interrupted_comparison_shows_what_is_done(place, inside, monkeypatch):
    real = _compare._one

    def interrupted(name, *rest):
        if name == "fa":
            raise KeyboardInterrupt
        return real(name, *rest)

    monkeypatch.setattr(_compare, "_one", interrupted)
    arguments = ("compare", "plain.csv", "-m", "ppca", "-m", "fa", "-q", 2)
    status, printed, _ = inside(*arguments, "--json", cwd=place)
    found = json.loads(printed)
    assert (status, found["interrupted"]) == (130, True)
    assert [one["model"] for one in found["models"]] == ["means", "ppca"]
    status, printed, _ = inside(*arguments, cwd=place)
    assert status == 130 and "Interrupted" in printed


def test_shells_complete_models():
    code = ENTRY[2].replace("from", "import sys; sys.argv = ['dualpca']; from", 1)
    asked = {"_DUALPCA_COMPLETE": "complete_bash", "COMP_WORDS": "dualpca fit --model pp"}
    found = subprocess.run(
        [ENTRY[0], "-c", code],
        env=os.environ | asked | {"COMP_CWORD": "3"},
        capture_output=True,
        timeout=100,
    )
    assert b"ppca" in found.stdout and b"bpca" not in found.stdout.split()


def test_constant_columns_are_not_divided_by_nothing():
    frame = pl.DataFrame({"a": [2.0, 2.0, 2.0], "b": [1.0, None, 3.0]})
    prep = Preparation(("a", "b")).standardized([frame[:1], frame[1:2], frame[2:]])
    np.testing.assert_allclose(prep.means, [2, 2])
    np.testing.assert_allclose(prep.scales, [1, 1])
    assert of_table(prep.table(), []).table() == prep.table()


# --- tables with everything wrong in them -------------------------------------------------------


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    """Mixed units, codes, bounds, categories, identifiers, an empty column; 120 patients."""
    folder = tmp_path_factory.mktemp("clinic")
    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 2)) @ rng.normal(size=(2, 4)) + 0.3 * rng.normal(size=(120, 4))
    gaps = ["NA", ".", "-", "n/a", "NULL", "#DIV/0!", ""]
    lines = ["patient_id,sex,smoker,site,crp,age,weight,height,remark,empty"]
    for i, (a, b, c, d) in enumerate(X):
        cells = [f"{1000 + 7 * i:05d}", "male" if a > 0 else "female"]
        cells += ["" if i % 13 == 0 else "yes" if b > 0 else "no", ["Köln", "Wien", "Rom"][i % 3]]
        cells += ["<5" if i % 9 == 0 else f"{20 + 5 * a:.1f}"]
        cells += ["-999" if i % 11 == 3 else str(int(50 + 10 * b))]
        cells += [gaps[i % 7] if i % 10 == 2 else f"{70 + 8 * c:.2f}", f"{170 + 5 * d:.1f}"]
        lines.append(",".join([*cells, "x" * 99 if i % 40 == 0 else "", ""]))
    (folder / "t.csv").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


FEATURES = ["sex=male", "smoker=yes", "site=Rom", "site=Wien", "crp", "age", "weight", "height"]


def test_the_first_fit_works_and_says_what_it_did(clinic, inside, tmp_path):
    model = tmp_path / "m.dpca"
    found, said = done(inside, "fit", "t.csv", "-m", "ppca", "-q", 2, "-o", model, cwd=clinic)
    assert found["columns"] == FEATURES
    for words in (
        "column 'patient_id' identifies rows (whole numbers that never repeat)",
        "no entries: 'empty'",
        "are the same: 'remark'",
        "0 and 1: 'sex' (1 is 'male', 0 'female'), 'smoker' (1 is 'yes', 0 'no').",
        "'site' (3 values; all 0 is the most frequent, 'Köln')",
        "such as <50, are treated as missing: 14 in 'crp'",
        "-999 is far from the other values: 11 in 'age'",
        "say --na=-999",
    ):
        assert words in said
    table = dp.load(model, return_metadata=True)[1]["table"]
    assert table["identifier"] == "patient_id" and "missing" not in table
    assert table["dropped"] == {"sex": "female", "smoker": "no", "site": "Köln"}
    done(inside, "transform", model, "t.csv", "-o", tmp_path / "z.csv", cwd=clinic)
    assert (tmp_path / "z.csv").read_text().splitlines()[1].startswith("01000,")


@pytest.mark.parametrize("given", [("--na=-999",), ("--na", "-999"), ("--na", "foo,-999.0")])
def test_codes_are_remembered(given, clinic, inside, tmp_path):
    model = tmp_path / "m.dpca"
    _, said = done(inside, "fit", "t.csv", "-m", "ppca", "-q", 2, *given, "-o", model, cwd=clinic)
    assert "far from the other values" not in said and "missing: 11 in 'age'" in said
    done(inside, "denoise", model, "t.csv", "-o", tmp_path / "z.csv", cwd=clinic)
    assert reading.read(tmp_path / "z.csv")["age"].min() > 0


def test_batches_make_the_same_columns(clinic, inside, tmp_path, monkeypatch):
    tables = []
    for piece in (None, 400, 3000):
        if piece is not None:
            monkeypatch.setattr(reading, "room_for", lambda limit: 1)
            monkeypatch.setattr(reading, "piece_of", lambda kind, room, piece=piece: piece)
        arguments = ("fit", "t.csv", "-q", 2, "--standardize", "--na", "-999", "-o", "m.dpca")
        _, said = done(inside, *arguments[:2], *arguments[2:-1], tmp_path / "m.dpca", cwd=clinic)
        table = dp.load(tmp_path / "m.dpca", return_metadata=True)[1]["table"]
        notes = {line for line in said.splitlines() if "batches" not in line}
        tables.append((table.pop("means", None), table.pop("scales", None), table, notes))
    for means, scales, *rest in tables[1:]:
        assert rest == list(tables[0][2:])
        if means is not None:
            np.testing.assert_allclose(means, tables[0][0])
            np.testing.assert_allclose(scales, tables[0][1])


def test_columns_that_are_asked_for_are_used(clinic, inside, tmp_path):
    arguments = ("fit", "t.csv", "-q", 1, "-c", "patient_id", "-c", "?eight", "-o", tmp_path / "m")
    found, said = done(inside, *arguments, cwd=clinic)
    assert found["columns"] == ["patient_id", "weight", "height"] and "identif" not in said


@pytest.mark.parametrize("more", [(), ("--standardize",)])
def test_infinite_cells_are_named(more, inside, tmp_path):
    rng = np.random.default_rng(0)
    lines = ["who,a,b,c"] + [
        f"r{i},{x:.3f},{y:.3f},1" for i, (x, y) in enumerate(rng.normal(size=(40, 2)))
    ]
    (tmp_path / "good.csv").write_text("\n".join(lines))
    lines[18] = "r17,0.5,inf,1"
    (tmp_path / "t.csv").write_text("\n".join(lines))
    wanted = "column 'b' has an infinite value in row 'r17'"
    status, _, said = inside("fit", "t.csv", "-q", 1, *more, "-o", "m.dpca", cwd=tmp_path)
    assert status == 3 and wanted in said
    done(inside, "fit", "good.csv", "-q", 1, *more, "-o", "m.dpca", cwd=tmp_path)
    status, _, said = inside("transform", "m.dpca", "t.csv", "-o", "z.csv", cwd=tmp_path)
    assert status == 3 and wanted in said
    done(inside, "fit", "t.csv", "-q", 1, *more, "--na", "inf", "-o", "m.dpca", cwd=tmp_path)


def test_options_for_reading_reach_the_reader(inside, tmp_path):
    rows = np.random.default_rng(0).normal(size=(30, 3))
    np.savez(tmp_path / "t.npz", a=rows, b=rows[:, :2])
    found, _ = done(inside, "fit", "t.npz", "--array", "b", "-q", 1, "-o", "m", cwd=tmp_path)
    assert found["columns"] == ["x0", "x1"]
    np.savetxt(tmp_path / "t.csv", rows, delimiter=",")
    found, said = done(inside, "fit", "t.csv", "-q", 1, "-o", "m", cwd=tmp_path)
    assert (found["columns"], found["rows"]) == (["x1", "x2", "x3"], 30)
    assert "note: the first line of t.csv holds numbers" in said
    found, said = done(inside, "fit", "t.csv", "--header", 1, "-q", 1, "-o", "m", cwd=tmp_path)
    assert found["rows"] == 29 and "first line" not in said
    status, _, said = inside("fit", "t.csv", "--sheet", "x", "-o", "m", cwd=tmp_path)
    assert status == 3 and "is no spreadsheet" in said
    status, _, said = inside("transform", "m", "t.csv", "-o", "z.csv.gz", cwd=tmp_path)
    assert status == 3 and "does not tell the format" in said
    assert not (tmp_path / "z.csv.gz").exists()


def test_the_explorer_knows_the_level_without_a_feature(clinic, inside, tmp_path):
    open_session = pytest.importorskip("dualpca.app.explorer.session").open_session
    model = tmp_path / "m.dpca"
    given = ("-c", "s*", "-c", "?eight", "-c", "age", "--na", "-999", "-m", "ppca", "-q", 2)
    done(inside, "fit", "t.csv", *given, "-o", model, cwd=clinic)
    fitted, metadata = dp.load(model, return_metadata=True)
    frame = reading.read(clinic / "t.csv")
    session = open_session(fitted, frame, metadata)
    prep = of_table(metadata["table"], [])
    np.testing.assert_allclose(session.X, prep.rows(frame).to_numpy())
