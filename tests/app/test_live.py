"""Rows that arrive: files that grow, rotate and are truncated; records; alarms; what is kept."""

import copy
import json
import os

import numpy as np
import polars as pl
import pytest

from dualpca.app.live import judging
from dualpca.app.live.following import LONGEST_LINE, FileTail
from dualpca.app.live.window import Window, expected_of
from dualpca.app.tables.columns import named_rows
from dualpca.app.tables.text import TableError
from tests.app.live_cases import SENSORS, Heard, faulty, header, lines_of, monitor, rows_of, write


@pytest.fixture(scope="module")
def fresh():
    return monitor()


@pytest.fixture
def fitted(fresh):
    return copy.copy(fresh)


def text_of(pieces):
    return [line.decode() for piece in pieces if piece is not None for line in piece.lines]


# --- files -----------------------------------------------------------------------------------


def test_a_half_written_line_waits_for_its_end(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,")
    tail = FileTail(str(path), print)
    assert text_of([tail.read()]) == ["a,b"]
    assert tail.read() is None and tail.rest() == 2
    with path.open("a") as file:
        file.write("2\n3,4")
    assert text_of([tail.read(), tail.read()]) == ["1,2"]
    tail.close()


@pytest.mark.parametrize("before", ["", "3,"])
def test_a_file_that_is_renamed_is_read_to_its_end_and_then_the_next(tmp_path, before):
    path, notes = tmp_path / "a.csv", []
    path.write_text("a,b\n1,2\n")
    tail = FileTail(str(path), notes.append)
    tail.read()
    with path.open("a") as file:
        file.write(f"5,6\n{before}")
    path.rename(tmp_path / "a.csv.1")
    assert text_of([tail.read(), tail.read()]) == ["5,6"]  # the name is free: it waits
    path.write_text("a,b\n7,8\n")
    found = [tail.read() for _ in range(4)]
    assert text_of(found) == [*([before] if before else []), "a,b", "7,8"]
    assert [piece.fresh for piece in found if piece][-1] and "another file" in notes[0]
    tail.close()


def test_a_file_that_is_truncated_or_written_anew_is_read_from_its_start(tmp_path):
    path, notes = tmp_path / "a.csv", []
    path.write_text("a,b\n1,2\n3,4\n")
    tail = FileTail(str(path), notes.append)
    tail.read()
    path.write_text("a,b\n")
    assert text_of([tail.read()]) == ["a,b"]
    path.write_text("a,b\n9,9\n9,9\n9,9\n9,9\n")  # longer than what was read
    assert text_of([tail.read()]) == ["9,9"] * 4
    path.write_text("b,a\n9,9\n9,9\n9,9\n9,9\n8,8\n")
    assert text_of([tail.read()]) == ["b,a", *["9,9"] * 4, "8,8"]
    assert len(notes) == 2 and all("truncated or written anew" in words for words in notes)
    tail.close()


def test_a_file_that_is_replaced_by_one_that_goes_on_is_read_on(tmp_path):
    path, notes = tmp_path / "a.csv", []
    path.write_text("a,b\n1,2\n")
    tail = FileTail(str(path), notes.append)
    tail.read()
    (tmp_path / "part").write_text("a,b\n1,2\n3,4\n")
    os.replace(tmp_path / "part", path)
    assert text_of([tail.read(), tail.read()]) == ["3,4"] and notes == []
    tail.close()


@pytest.mark.parametrize("gone", ["renamed", "lost", "same"])
def test_a_place_is_found_again(tmp_path, gone):
    path, notes = tmp_path / "a.csv", []
    path.write_text("a,b\n1,2\n3,4\n")
    tail = FileTail(str(path), notes.append)
    tail.read()
    place = tail.place()
    tail.close()
    with path.open("a") as file:
        file.write("5,6\n")
    if gone != "same":
        path.rename(tmp_path / "old")
        path.write_text("a,b\n7,8\n")
    if gone == "lost":
        (tmp_path / "old").unlink()
    again = FileTail(str(path), notes.append, place)
    found = text_of([again.read() for _ in range(4)])
    wanted = {"same": ["5,6"], "renamed": ["5,6", "a,b", "7,8"], "lost": ["a,b", "7,8"]}
    assert found == wanted[gone]
    assert again.place().line == {"same": 4, "renamed": 2, "lost": 2}[gone]
    again.close()


def test_what_is_no_file_of_lines_is_refused(tmp_path):
    with pytest.raises(TableError, match="No such file"):
        FileTail(str(tmp_path / "none.csv"), print)
    with pytest.raises(TableError, match="folder"):
        FileTail(str(tmp_path), print)
    (tmp_path / "a.csv").write_bytes(bytes(LONGEST_LINE + 10))
    tail = FileTail(str(tmp_path / "a.csv"), print)
    with pytest.raises(TableError, match="no line ends"):
        tail.read()
    tail.close()


# --- records ---------------------------------------------------------------------------------


def judged_values(fitted, path, **options):
    """Return the values that a watch judged, and what it said."""
    heard, found = Heard(fitted, path, **options), []
    heard.watch.listeners.append(lambda one: found.append(one.rows.values))
    try:
        heard.go_on()
    finally:
        heard.watch.close()
    return np.concatenate(found) if found else np.empty((0, len(SENSORS))), heard.notes


def test_columns_in_any_order_and_further_ones(fitted, tmp_path):
    X, path = rows_of(9, 3), tmp_path / "a.csv"
    mixed = ["operator", *reversed(SENSORS)]
    lines = [f"Ann,{line}" for line in lines_of(X, SENSORS[::-1], time=False)]
    path.write_text(header(mixed, time=False) + "".join(lines))
    found, notes = judged_values(fitted, path)
    np.testing.assert_array_equal(found, X)
    assert notes == ["not in the model, and ignored: 'operator'."]


def test_a_sensor_that_is_not_there_is_missing_and_told_once(fitted, tmp_path):
    X, path = rows_of(9, 3), tmp_path / "a.csv"
    write(path, X, SENSORS[1:])
    found, notes = judged_values(fitted, path)
    np.testing.assert_array_equal(found[:, 1:], X[:, 1:])
    assert np.isnan(found[:, 0]).all()
    assert notes == ["not in a.csv, and missing in every row: 'temperature'."]


def test_json_lines(fitted, tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{name: float(x) for name, x in zip(SENSORS, row, strict=True)} for row in rows_of(3, 3)]
    rows[1]["flow"] = None
    rows[2] |= {"pH": "7.5", "batch": "B7"}
    lines = [json.dumps(row) for row in rows]
    path.write_text("\n".join([*lines, "[1, 2]", "{broken", '{"other": 1}', ""]))
    found, notes = judged_values(fitted, path)
    assert found.shape == (3, 6) and np.isnan(found[1, 1]) and found[2, 5] == 7.5
    assert notes == [
        "ignored from here on: 'batch'.",
        "line 4 of a.jsonl is not an object of JSON: it is skipped.",
        "line 5 of a.jsonl is not an object of JSON: it is skipped.",
        "line 6 of a.jsonl has none of the model's sensors: it is skipped.",
    ]


def test_bad_lines_are_named_and_bad_cells_are_missing_sensors(fitted, tmp_path):
    X, path = rows_of(4, 3), tmp_path / "a.csv"
    lines = lines_of(X, time=False)
    good = lines[0].rstrip("\n").split(",")
    parts = [",".join([*good[:2], "Bad Input", *good[3:]]), "1,2,3", '1,"2,3,4,5,6', "\udcff,1"]
    parts += [",".join([*good[:2], word, *good[3:]]) for word in ("NA", "<5", "inf", "-999", "1e2")]
    text = header(time=False) + "".join(lines[:2]) + "\n" + "\n".join(parts) + "\n"
    path.write_bytes(text.encode(errors="surrogateescape"))
    found, notes = judged_values(fitted, path)
    assert len(found) == 8
    assert found[:, 2].tolist()[3:] == pytest.approx([np.nan] * 3 + [-999, 100], nan_ok=True)
    assert [words.split(":")[0] for words in notes] == [
        "line 5 of a.csv",
        "line 6 of a.csv has 3 fields, where 6 are expected",
        "line 7 of a.csv has a quote that is never closed",
        "line 8 of a.csv is not utf-8 text",
    ]
    assert "'pressure' holds 'Bad Input', which is no number" in notes[0]


@pytest.mark.parametrize(
    ("given", "found"), [(None, "2026-03-02 06:00:05"), ("", "")], ids=["found", "none"]
)
def test_a_column_that_is_called_like_time_tells_when_rows_were(fitted, tmp_path, given, found):
    path = tmp_path / "a.csv"
    write(path, rows_of(3, 3))
    heard = Heard(fitted, path, time=given)
    heard.go_on()
    times = heard.watch.state.recent
    assert (times[1] == found) if found else ("2026-03-02" not in times[1])
    assert ("not in the model, and ignored: 'time'." in heard.notes) == (given == "")
    heard.watch.close()


def test_a_header_again_and_another_one(fitted, tmp_path):
    X, path = rows_of(6, 3), tmp_path / "a.csv"
    write(path, X[:2])
    with path.open("a") as file:
        file.write(header() + "".join(lines_of(X[2:4])))
        file.write(header(SENSORS[::-1]) + "".join(lines_of(X[4:], SENSORS[::-1])))
    found, notes = judged_values(fitted, path)
    np.testing.assert_array_equal(found, X)
    assert notes == [
        "line 4 of a.csv is the header again.",
        "line 7 of a.csv is another header.",
    ]


def test_semicolons_decimal_commas_and_a_byte_order_mark(fitted, tmp_path):
    X, path = rows_of(5, 3), tmp_path / "a.csv"
    text = (header() + "".join(lines_of(X))).replace(",", ";").replace(".", ",")
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    found, notes = judged_values(fitted, path)
    np.testing.assert_array_equal(found, X)
    assert notes == []


def test_rows_without_a_header(fitted, tmp_path):
    X, path = rows_of(5, 3), tmp_path / "a.csv"
    path.write_text("".join(lines_of(X)))
    found, notes = judged_values(fitted, path, columns=("time", *SENSORS))
    np.testing.assert_array_equal(found, X)
    assert notes == ["a.csv has no header: columns are as in the model."]
    with pytest.raises(TableError, match="7 columns where the model has 6 sensors"):
        judged_values(fitted, path)
    path.write_text("one,two\n1,2\n")
    with pytest.raises(TableError, match="names none of the model's sensors"):
        judged_values(fitted, path)
    path.write_text(header([*SENSORS, "flow"]))
    with pytest.raises(TableError, match="two columns 'flow'"):
        judged_values(fitted, path)


# --- alarms and the log ----------------------------------------------------------------------


def test_alarms_are_the_monitors_episodes(fitted, tmp_path):
    path, log = tmp_path / "a.csv", tmp_path / "log.csv"
    write(path, faulty())
    heard = Heard(copy.copy(fitted), path, log=log)
    assert heard.go_on() == 400
    heard.watch.save()
    heard.watch.close()
    fitted.update(named_rows(fitted, faulty()))
    wanted = fitted.episodes_
    begins = [line for line in heard.alarms if "begins" in line]
    ends = [line for line in heard.alarms if "ends" in line]
    assert len(begins) == len(wanted) == heard.watch.state.seen
    assert len(ends) == sum(one.end is not None for one in wanted)
    for line, one in zip(begins, wanted, strict=True):
        assert f"row {one.start + 1}: alarm begins" in line
    first = next(line for line in begins if "row 101:" in line)
    assert first.startswith("2026-03-02 06:08:20") and "× its limit: flow " in first
    logged = pl.read_csv(log)
    assert logged["row"].to_list() == list(range(1, 401))
    again = fitted.chart(named_rows(fitted, faulty()))
    np.testing.assert_allclose(logged["spe"], again.statistics["spe"], rtol=1e-6)
    np.testing.assert_array_equal(logged["alarm"], again.alarms)
    assert logged["sensors"][110].startswith("flow ")


def test_rows_one_by_one_raise_the_same_alarms_as_all_at_once(fitted, tmp_path):
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    write(one, faulty())
    together = Heard(copy.copy(fitted), one)
    together.go_on()
    other.write_text(header())
    single = Heard(copy.copy(fitted), other)
    with other.open("a") as file:
        for line in lines_of(faulty()):
            file.write(line)
            file.flush()
            single.go_on()
    assert single.alarms == together.alarms and single.alarms
    together.watch.close()
    single.watch.close()


def test_an_episode_that_ends_in_a_later_piece_is_told(fitted, tmp_path):
    path, X = tmp_path / "a.csv", rows_of(60, 1)
    X[20, 1] += 30
    path.write_text(header() + "".join(lines_of(X[:21])))
    heard = Heard(fitted, path)
    heard.go_on()
    assert heard.watch.state.open.first == 21
    for i in range(21, 60):
        with path.open("a") as file:
            file.writelines(lines_of(X[i : i + 1], first=i))
        heard.go_on()
    ends = [line for line in heard.alarms if "ends" in line]
    assert heard.watch.state.open is None and "up to" in ends[0]
    heard.watch.close()


def test_a_watch_of_years_remembers_the_latest_episodes_only(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(judging, "KEPT", 3)
    path, X = tmp_path / "a.csv", rows_of(240, 1)
    X[10::40, 1] += 30
    write(path, X)
    heard = Heard(fitted, path)
    heard.go_on()
    assert heard.watch.state.seen >= 6
    assert len(heard.watch.monitor.episodes_) <= 4
    assert len([line for line in heard.alarms if "ends" in line]) == heard.watch.state.seen
    heard.watch.close()


# --- the window of the page ------------------------------------------------------------------


def test_the_window_is_bounded_and_has_the_last_rows(fitted, tmp_path):
    path = tmp_path / "a.csv"
    write(path, faulty())
    heard = Heard(fitted, path)
    window = Window(heard.watch, "m.dpca", "a.csv")
    window.size = 150  # the ring is larger, but only so much of it is used
    heard.go_on()
    found = window.answer(0)
    assert (found["rows"], found["first"], len(found["times"])) == (400, 250, 150)
    assert window.answer(399)["times"] == found["times"][-1:]
    assert found["open"]["first"] > 300 and found["open"]["last"] is None
    assert any(one["first"] == 101 for one in found["past"])
    table = pl.read_csv(window.table(100, 380).encode())
    assert table["row"].to_list() == list(range(281, 381))
    np.testing.assert_allclose(table["flow"], faulty()[280:380, 1])
    heard.watch.close()


def test_what_is_expected_of_a_sensor_is_what_the_others_say(fitted):
    X = rows_of(40, 8)
    X[10, 2] = X[20, 4] = np.nan
    found = expected_of(fitted, X, 2)
    moved = X.copy()
    moved[:, 2] = 1000.0
    np.testing.assert_allclose(expected_of(fitted, moved, 2), found, rtol=1e-6)
    there = X.copy()
    there[:, 2] = found
    parts = np.abs(fitted.contributions(named_rows(fitted, there))[:, 2])
    assert np.max(np.asarray(parts)) < 1e-12
    relation = np.corrcoef(found[~np.isnan(X[:, 2])], X[~np.isnan(X[:, 2]), 2])[0, 1]
    assert relation > 0.8
