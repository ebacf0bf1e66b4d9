"""Tables as instruments and agencies export them, through the commands."""

import codecs
import json

import numpy as np
import pytest

import dualpca as dp
from tests.app.test_reading import book

N = 24


@pytest.fixture(scope="module")
def values():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, 2)) @ rng.normal(size=(2, 3)) + 0.2 * rng.normal(size=(N, 3))


def german(value, places):
    return f"{value:,.{places}f}".replace(",", " ").replace(".", ",").replace(" ", ".")


def hplc(values):
    lines = [
        "Sample Name:\tMix A",
        "Method:\tC:\\METHODS\\GRAD.M",
        "",
        "Sample\tTime\tArea\tHeight",
    ]
    lines.append("\t[min]\t[mAU*s]\t[mAU]")
    rows = [f"s{i}\t{3 + a:.3f}\t{1520 + b:.2f}\t{c:.3f}" for i, (a, b, c) in enumerate(values)]
    rows[3] = rows[3].rpartition("\t")[0] + "\t"
    return "\r\n".join([*lines, *rows, ""]).encode()


def excel(values):
    lines = ["Umsatzbericht 2024;;;", ";;;", "Filiale;Umsatz;Kunden;Fläche", ";EUR;;m²"]
    rows = [
        f"Köln {i};{german(15e4 + 1e4 * a, 2)};{german(5e3 + 1e3 * b, 0)};{german(700 + c, 1)}"
        for i, (a, b, c) in enumerate(values)
    ]
    rows[5] = "Köln 5;;5.000;700,5"
    return "\r\n".join([*lines, *rows, ""]).encode("cp1252")


def agency(values):
    lines = ["Table 3. Counties,,,", "", "County,People,Income,Rate"]
    rows = [
        f'"County {i}, TX","{15e4 + 1e4 * a:,.0f}","{52e3 + 1e3 * b:,.1f}",{5 + c:.2f}'
        for i, (a, b, c) in enumerate(values)
    ]
    rows[7] = '"County 7, TX","1,234,567",,5.25'
    return codecs.BOM_UTF8 + "\n".join([*lines, *rows, ""]).encode()


def wide(values):
    return hplc(values).decode().encode("utf-16")


FILES = {
    "hplc.txt": (hplc, (), "2 lines above|3 lines above", 3),
    "umsatz.csv": (excel, ("--encoding", "cp1252"), "2 lines above", 5),
    "counties.csv": (agency, (), "2 lines above", 7),
    "wide.txt": (wide, ("--encoding", "utf-16"), "3 lines above", 3),
}


@pytest.mark.parametrize("name", FILES)
def test_all_but_the_filled_cells_stay_byte_for_byte(name, values, inside, tmp_path):
    make, options, _, row = FILES[name]
    (tmp_path / name).write_bytes(make(values))
    status, said, notes = inside("impute", name, "-q", 1, *options, cwd=tmp_path)
    assert status == 0, notes
    assert "1 entry filled" in said and "above the header skipped" in notes
    before = (tmp_path / name).read_bytes()
    after = next(tmp_path.glob("*-filled.*")).read_bytes()
    codec = options[1] if options else "utf-8"
    old, new = before.decode(codec).splitlines(True), after.decode(codec).splitlines(True)
    changed = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    assert len(changed) == 1 and f"{row}" in new[changed[0]]
    assert before.startswith(codecs.BOM_UTF8) == after.startswith(codecs.BOM_UTF8)
    if name == "umsatz.csv":  # a filled cell is written as its column is
        assert new[changed[0]].split(";")[1].count(".") == 1
    if name == "counties.csv":
        assert new[changed[0]].count(",") > old[changed[0]].count(",")
    again = inside(
        "impute",
        new_name := next(tmp_path.glob("*-filled.*")).name,
        "-q",
        1,
        *options,
        "-o",
        "again.csv",
        cwd=tmp_path,
    )
    assert again[0] == 0 and "nothing was missing" in again[1], (new_name, again)


def test_draws_have_titles_once_and_one_column_more(values, inside, tmp_path):
    (tmp_path / "umsatz.csv").write_bytes(excel(values))
    how = ("--encoding", "cp1252")
    status, _, notes = inside("impute", "umsatz.csv", "-q", 1, "--draws", 2, *how, cwd=tmp_path)
    assert status == 0, notes
    lines = (tmp_path / "umsatz-filled.csv").read_text("cp1252").splitlines()
    assert lines[:4] == [
        ";Umsatzbericht 2024;;;",
        ";;;;",
        "draw;Filiale;Umsatz;Kunden;Fläche",
        ";;EUR;;m²",
    ]
    assert len(lines) == 4 + 2 * N
    how = (*how, "-x", "Filiale", "-q", 1)
    status, _, notes = inside("fit", "umsatz-filled.csv", *how, cwd=tmp_path)
    assert status == 0 and "2 lines above" in notes


def test_units_stand_beside_names(values, inside, tmp_path):
    (tmp_path / "hplc.txt").write_bytes(hplc(values))
    status, _, notes = inside("fit", "hplc.txt", "-q", 1, "-o", "m.dpca", cwd=tmp_path)
    assert status == 0, notes
    _, said, _ = inside("inspect", "m.dpca", cwd=tmp_path)
    assert "columns: Time [min], Area [mAU*s], Height [mAU]" in said
    _, metadata = dp.load(tmp_path / "m.dpca", return_metadata=True)
    assert metadata["units"] == {"Time": "min", "Area": "mAU*s", "Height": "mAU"}
    assert metadata["table"]["columns"] == ["Time", "Area", "Height"]
    status, _, notes = inside("report", "m.dpca", "hplc.txt", "-o", "r.html", cwd=tmp_path)
    assert status == 0, notes
    page = (tmp_path / "r.html").read_text()
    assert "Area [mAU*s]" in page
    other = hplc(values).replace(b"[min]", b"s")
    (tmp_path / "seconds.txt").write_bytes(other)
    _, _, notes = inside("score", "m.dpca", "seconds.txt", cwd=tmp_path)
    assert "column 'Time' is in s in seconds.txt, and was in min in the fit" in " ".join(
        notes.split()
    )


def test_options_reach_the_reader(values, inside, tmp_path):
    (tmp_path / "hplc.txt").write_bytes(hplc(values))
    for options in (("--header", 4, "--units", 5), ("--skip", 3)):
        status, said, notes = inside("fit", "hplc.txt", "-q", 1, *options, "--json", cwd=tmp_path)
        assert status == 0 and json.loads(said)["columns"] == ["Time", "Area", "Height"]
        assert "above the header" not in notes
    for options, words in {
        ("--skip", 3, "--header", 4): "--skip and --header both say",
        ("--header", 4, "--no-header"): "exclude each other",
        ("--thousands", "dot"): "expected one of space, comma",
        ("--thousands", "comma", "--decimal", ","): "cannot both be",
    }.items():
        status, _, notes = inside("fit", "hplc.txt", *options, cwd=tmp_path)
        assert status == 2 and words in notes


def test_tables_of_one_file_are_named(values, inside, tmp_path):
    pytest.importorskip("fastexcel")
    table = [["a", "b", "c"], *values.tolist()]
    small = [["x", "y"], [1.0, 2.0], [2.0, 3.5], [4.0, 5.0]]
    pad = [[*row, None] for row in small]
    book(tmp_path / "t.xlsx", One=[*table, [None] * 3, *pad], Two=small)
    _, said, notes = inside("fit", "t.xlsx", "-q", 1, "--json", cwd=tmp_path)
    assert json.loads(said)["columns"] == ["a", "b", "c"]
    assert "A1:C25, is read, and not A27:B30 (--range A27:B30 reads another)" in " ".join(
        notes.split()
    )
    for data, options in {
        "t.xlsx": ("--range", "A27:B30"),
        "t.xlsx::One!A27:B30": (),
        "t.xlsx::Two": (),
    }.items():
        _, said, _ = inside("fit", data, "-q", 1, "--json", *options, cwd=tmp_path)
        assert json.loads(said)["columns"] == ["x", "y"]
    np.savez(tmp_path / "t.npz", X=values, Y=np.where(np.eye(N)[:, :3] > 0, np.nan, values))
    _, said, notes = inside("impute", "t.npz::Y", "-q", 1, cwd=tmp_path)
    assert "Wrote t-filled.npz: 24 rows, 3 columns, 3 entries filled" in said
    status, _, notes = inside("impute", "t.npz::Y", "-q", 1, "-o", "t.npz", cwd=tmp_path)
    assert status == 2 and "read by this command" in notes
    assert "array 'X' of t.npz is read" in inside("fit", "t.npz", "-q", 1, cwd=tmp_path)[2]
