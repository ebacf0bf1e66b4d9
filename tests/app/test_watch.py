"""`dualpca monitor` and `dualpca watch` as people call them; kills, pipes, memory."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

import dualpca as dp
from dualpca.app.cli._live import open_watch
from dualpca.app.live import following, judging
from tests.app.live_cases import SENSORS, faulty, header, lines_of, monitor, rows_of, write
from tests.conftest import rest_slow

ENTRY = [sys.executable, "-c", "from dualpca.app.cli import main; main()"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model file as `dualpca monitor` writes it."""
    place = tmp_path_factory.mktemp("model")
    names = {"columns": ["time", *SENSORS], "time": "time"}
    table = {"columns": SENSORS}
    dp.save(monitor(), place / "plant.dpca", metadata={"table": table, "monitor": names})
    return place / "plant.dpca"


@pytest.fixture
def folder(model, tmp_path):
    (tmp_path / "plant.dpca").write_bytes(model.read_bytes())
    write(tmp_path / "live.csv", faulty())
    return tmp_path


def json_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def watched(inside, *words, cwd):
    """Run a watch to its end, and return its alarms and what it said."""
    status, printed, said = inside("watch", "plant.dpca", *words, cwd=cwd)
    assert status == 0, said
    return printed.splitlines(), said


# --- monitor ---------------------------------------------------------------------------------


def test_a_monitor_of_a_table_leaves_time_and_text_out_and_sets_a_bad_episode_aside(
    inside, tmp_path
):
    X = rows_of(400, 0)
    X[200:230, 2] += 25
    X[7, 1] = np.nan
    write(tmp_path / "normal.csv", X)
    frame = pl.read_csv(tmp_path / "normal.csv").with_columns(operator=pl.lit("Ann"))
    frame.write_csv(tmp_path / "normal.csv")
    status, printed, said = inside("monitor", "normal.csv", "-o", "plant.dpca", cwd=tmp_path)
    assert status == 0, said
    assert "Wrote plant.dpca: 400 rows of 6 sensors, 1 missing entry; RobustPPCA" in printed
    assert "1 episode was set aside" in printed
    assert "rows 201 to 230 (2026-03-02 06:16:40 to 2026-03-02 06:19:05)" in printed
    assert "pressure" in printed and "One false alarm in 370 ordinary rows" in printed
    assert "'time' is the time of the rows" in said and "'operator'" in said
    fitted, metadata = dp.load(tmp_path / "plant.dpca", return_metadata=True)
    assert list(fitted.feature_names_in_) == SENSORS
    assert metadata["monitor"]["time"] == "time"
    write(tmp_path / "live.csv", faulty())
    alarms, said = watched(inside, "live.csv", "--once", cwd=tmp_path)
    assert "alarm begins" in alarms[0] and "Judged 400 rows" in said


def test_the_options_of_a_monitor(inside, tmp_path):
    frame = pl.DataFrame(rows_of(150, 0), schema=SENSORS, orient="row")
    frame.write_parquet(tmp_path / "normal.parquet")
    options = ("-m", "factor", "-q", 2, "--arl", 200, "--statistics", "t2,spe", "--no-trim")
    options += ("--set", "smoothing=0.2", "-x", "pH", "--json")
    status, printed, said = inside("monitor", "normal.parquet", *options, cwd=tmp_path)
    assert (status, said) == (0, "")
    found = json.loads(printed)
    assert (found["model"], found["n_components"], found["arl"]) == ("FactorAnalysis", 2, 200)
    assert list(found["limits"]) == ["t2", "spe"] and found["columns"] == SENSORS[:5]
    assert found["output"] == "normal.dpca" and found["time"] is None


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (("normal.csv", "-m", "kpca"), 2, "there are robust, ppca, factor"),
        (("normal.csv", "--set", "depth=3"), 2, "no parameter 'depth'"),
        (("normal.csv", "--set", "depth"), 2, "name=value"),
        (("normal.csv", "--one-hot", "pH"), 2, "categories are left out"),
        (("normal.csv", "--time", "clock"), 3, "no such column"),
        (("none.csv",), 3, "No such file"),
        (("normal.csv", "-o", "normal.csv"), 2, "is read by this command"),
        (("normal.csv", "--arl", "1"), 1, "arl"),
    ],
)
def test_what_a_monitor_refuses(inside, tmp_path, words, status, why):
    write(tmp_path / "normal.csv", rows_of(60, 0))
    found = inside("monitor", *words, cwd=tmp_path)
    assert found[0] == status and why in found[2], found


# --- watch -----------------------------------------------------------------------------------


def test_once_goes_on_where_it_stopped(inside, folder):
    alarms, said = watched(inside, "live.csv", "--once", "--log", "log.csv", cwd=folder)
    assert "Judged 400 rows" in said and (folder / "plant.live.state").exists()
    seen = [line for line in alarms if "begins" in line]
    assert any("row 101: alarm begins" in line for line in seen)
    half, rest = (
        lines_of(rows_of(1, 9), first=400)[0][:20],
        lines_of(rows_of(1, 9), first=400)[0][20:],
    )
    with (folder / "live.csv").open("a") as file:
        file.write(half)
    alarms, said = watched(inside, "live.csv", "--once", "--log", "log.csv", cwd=folder)
    assert alarms == [] and "has no end yet" in said and "resumed after row 400" in said
    with (folder / "live.csv").open("a") as file:
        file.write(rest)
    path = folder / "live.csv"  # the same file by another name
    alarms, said = watched(inside, path, "--once", "--log", "log.csv", cwd=folder)
    assert "Judged 1 row:" in said
    assert pl.read_csv(folder / "log.csv")["row"].to_list() == list(range(1, 402))


def test_alarms_as_json_lines_and_in_a_file(inside, folder):
    words = ("live.csv", "--once", "--json", "--alarms", "alarms.jsonl", "--log", "log.jsonl")
    lines, _ = watched(inside, *words, cwd=folder)
    *events, end = map(json.loads, lines)
    assert end["event"] == "stopped" and (end["rows"], end["in_alarm"]) == (400, True)
    assert json_lines(folder / "alarms.jsonl") == events
    begin = next(one for one in events if one["row"] == 101)
    assert begin["event"] == "begin" and begin["value"] > begin["limit"]
    assert max(begin["sensors"], key=begin["sensors"].get) == "flow"
    over = next(one for one in events if one["event"] == "end" and one["first"] == 101)
    assert over["rows"] == over["row"] - 100 and over["peak"] > 1
    logged = json_lines(folder / "log.jsonl")
    assert [one["row"] for one in logged] == list(range(1, 401))
    assert logged[100]["alarm"] is True and "flow" in logged[100]["sensors"]


def test_from_now_skips_what_is_there(inside, folder):
    _, said = watched(inside, "live.csv", "--once", "--from-now", cwd=folder)
    assert "Judged 0 rows" in said
    with (folder / "live.csv").open("a") as file:
        file.writelines(lines_of(rows_of(2, 9), first=400))
    _, said = watched(inside, "live.csv", "--once", "--from-now", cwd=folder)
    assert "Judged 2 rows" in said


def test_begun_anew_and_with_another_model(inside, folder):
    watched(inside, "live.csv", "--once", cwd=folder)
    _, said = watched(inside, "live.csv", "--once", "--fresh", cwd=folder)
    assert "Judged 400 rows" in said
    other = monitor()
    other.set_params(arl=100).fit(pl.DataFrame(rows_of(200, 4), schema=SENSORS, orient="row"))
    other.save(folder / "plant.dpca")
    with (folder / "live.csv").open("a") as file:
        file.writelines(lines_of(rows_of(3, 9), first=400))
    _, said = watched(inside, "live.csv", "--once", cwd=folder)
    assert "has changed: rows after 400 are judged by the new model" in said
    assert "Judged 3 rows" in said


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (("plant.dpca", "none.csv", "--once"), 3, "No such file"),
        (("ppca.dpca", "live.csv", "--once"), 4, "expected a Monitor"),
        (("live.csv", "live.csv", "--once"), 4, "not a valid dualpca model file"),
        (("plant.dpca", "live.csv", "--once", "--page"), 2, "--once ends at once"),
        (("plant.dpca", "live.csv", "--log", "live.csv"), 2, "is read by this command"),
        (("plant.dpca", "live.csv", "--log", "x", "--alarms", "x"), 2, "files of their own"),
        (("plant.dpca", "live.csv", "--once", "--state", "plant.dpca"), 2, "is read by"),
        (("plant.dpca", "live.csv", "--once", "--state", "junk"), 4, "not a state"),
        (("plant.dpca", "live.csv", "--once", "--log", "no/x.csv"), 5, "create it first"),
    ],
)
def test_what_a_watch_refuses(inside, folder, words, status, why):
    dp.PPCA(2).fit(rows_of(50, 0)).save(folder / "ppca.dpca")
    (folder / "junk").write_text("junk")
    found = inside("watch", *words, cwd=folder)
    assert found[0] == status and why in found[2], found


def test_two_watches_cannot_share_a_state(inside, folder):
    command = [*ENTRY, "watch", "plant.dpca", "live.csv", "--json"]
    one = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert one.stdout.readline()  # an alarm: it runs
        status, _, said = inside("watch", "plant.dpca", "live.csv", "--once", cwd=folder)
        assert status == 2 and "in use by another" in said
    finally:
        one.send_signal(signal.SIGTERM)
        out, _ = one.communicate(timeout=60)
    assert one.returncode == 0
    end = json.loads(out.splitlines()[-1])
    assert (end["event"], end["rows"]) == ("stopped", 400)


def test_a_pipe_is_judged_as_it_comes_and_ctrl_c_stops(folder):
    command = [*ENTRY, "watch", "plant.dpca", "-", "--json", "--log", "log.csv"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    one = subprocess.Popen(command, cwd=folder, text=True, **pipes)
    X = rows_of(40, 1)
    X[20, 1] += 30
    one.stdin.write(header() + "".join(lines_of(X[:30])))
    one.stdin.flush()
    began = json.loads(one.stdout.readline())
    assert (began["event"], began["row"]) == ("begin", 21)
    one.send_signal(signal.SIGINT)
    said = one.communicate(timeout=60)[1]
    assert one.returncode == 0 and "Judged 30 rows" in said, said
    done = subprocess.run(
        command,
        cwd=folder,
        text=True,
        input=header() + "".join(lines_of(X[30:])).rstrip("\n"),
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["row"] == 40
    assert pl.read_csv(folder / "log.csv")["row"].to_list() == list(range(1, 41))


def test_a_reader_of_the_alarms_that_goes_ends_the_watch(folder):
    shell = f"{sys.executable} -c 'from dualpca.app.cli import main; main()' watch plant.dpca "
    shell += "live.csv --once --log log.csv | head -n 1; exit ${PIPESTATUS[0]}"
    done = subprocess.run(["bash", "-c", shell], cwd=folder, capture_output=True, timeout=60)
    assert done.returncode == 141, done.stderr
    again = subprocess.run(
        [*ENTRY, "watch", "plant.dpca", "live.csv", "--once", "--log", "log.csv"],
        cwd=folder,
        capture_output=True,
        timeout=60,
    )
    assert again.returncode == 0
    assert pl.read_csv(folder / "log.csv")["row"].to_list() == list(range(1, 401))


KILLS = """
import os, signal, sys, time, random
import sklearn.base
import dualpca, dualpca.app.cli._live, dualpca.app.live.judging as judging
from dualpca.app.cli import main
dualpca.load("plant.dpca")
judging.Watch.__init__.__kwdefaults__.update(seconds=float(sys.argv[2]), rows=300)
kills, words = int(sys.argv[1]), sys.argv[3:]

def child(*words):
    found = os.fork()
    if not found:
        sys.argv = ["dualpca", *words]
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        main()
    return found

begun = time.monotonic()
os.waitpid(child("watch", "plant.dpca", "short.csv", "--once", "--state", "none"), 0)
took = time.monotonic() - begun
chance, hits = random.Random(0), 0
for _ in range(kills):
    one = child(*words)
    time.sleep(chance.uniform(0.2, 1.5) * min(took, 2.0))
    os.kill(one, signal.SIGKILL)
    hits += os.WIFSIGNALED(os.waitpid(one, 0)[1])
print(hits)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that are forked and killed")
@pytest.mark.parametrize("pace", rest_slow([(4, 0.0), (60, 0.0), (60, 0.05)], {(4, 0.0)}))
def test_killed_at_any_moment_no_row_is_lost_or_judged_twice(folder, inside, pace):
    kills, seconds = pace
    n = 400 * kills
    X = np.tile(faulty(), (n // 400 + 1, 1))[:n]
    path = folder / "live.csv"
    outputs = ("--log", "log.csv", "--alarms", "alarms.txt")
    write(path, X)
    write(folder / "short.csv", X[:20])
    watched(inside, "live.csv", "--once", *outputs, "--state", "none", cwd=folder)
    wanted = [(folder / name).read_bytes() for name in ("log.csv", "alarms.txt")]
    assert wanted[0].count(b"\n") == n + 1
    for name in ("log.csv", "alarms.txt"):
        (folder / name).unlink()
    path.write_text(header())
    words = ["watch", "plant.dpca", "live.csv", *outputs]
    command = [sys.executable, "-c", KILLS, str(kills), str(seconds), *words]
    running = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        grow(path, lines_of(X))
        hits = int(running.communicate(timeout=500)[0])
    finally:
        running.kill()
        running.communicate()
    assert hits == kills
    _, said = watched(inside, "live.csv", "--once", *outputs, cwd=folder)
    assert "resumed after row" in said
    assert [(folder / name).read_bytes() for name in ("log.csv", "alarms.txt")] == wanted


def grow(path, lines):
    """Append lines in pieces that end anywhere."""
    chance, at = random.Random(1), 0
    while at < len(lines):
        more = chance.randrange(1, 400)
        text = "".join(lines[at : at + more])
        cut = chance.randrange(len(text))
        for part in (text[:cut], text[cut:]):
            with path.open("a") as file:
                file.write(part)
            time.sleep(0.01)
        at += more


class Crash(BaseException):
    """Ends a watch as abruptly as a kill."""


def judged(folder, crash_at=None, monkeypatch=None):
    """Judge what is there, with a crash before or after some write to the disk."""
    reading = dict.fromkeys(("time", "id", "separator", "decimal")) | {"encoding": "utf-8"}
    count = 0

    def crashing(work, after):
        def worked(*given, **more):
            nonlocal count
            found = work(*given, **more) if after else None
            count += 1
            if count == crash_at:
                raise Crash
            return found if after else work(*given, **more)

        return worked

    with monkeypatch.context() as patch:
        for owner, name in (
            (judging.Out, "write"),
            (judging.os, "fsync"),
            (judging.dualpca, "save"),
        ):
            for after in (False, True):
                patch.setattr(owner, name, crashing(getattr(owner, name), after))
        one = None
        try:
            one = open_watch(
                *("plant.dpca", "live.csv", "state", "log.csv", "alarms.txt", reading),
                anew=False,
                skip=False,
                as_json=False,
            )
            one.seconds = 0.0
            one.save()
            while one.step(0.0):
                pass
            one.save()
        except Crash:
            pass
        finally:
            if one is not None:
                one.close()
    return count


@pytest.mark.parametrize("each", rest_slow([11, 1], {11}))
def test_a_crash_at_any_write_loses_no_row_and_judges_none_twice(folder, monkeypatch, capsys, each):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(following, "CHUNK", 4096)  # several pieces
    points = judged(folder, monkeypatch=monkeypatch)
    outputs = [folder / name for name in ("log.csv", "alarms.txt")]
    wanted = [one.read_bytes() for one in outputs]
    assert points > 50 and wanted[0].count(b"\n") == 401 and wanted[1]
    for k in range(1, points + 1, each):
        for one in (*outputs, folder / "state"):
            one.unlink(missing_ok=True)
        judged(folder, k, monkeypatch)
        judged(folder, k + 20, monkeypatch)
        judged(folder, monkeypatch=monkeypatch)
        assert [one.read_bytes() for one in outputs] == wanted, k
    capsys.readouterr()


def resident(process):
    """Return how many MB a process has in memory."""
    with open(f"/proc/{process.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="memory is read from /proc")
@pytest.mark.parametrize("n", rest_slow([20_000, 360_000], {20_000}))
def test_memory_does_not_grow(folder, n):
    """Half of the rows come first; the other half must not need more memory."""
    block = "".join(lines_of(faulty(4000)))
    (folder / "live.csv").write_text(header())
    words = ["watch", "plant.dpca", "live.csv", "--page", "--no-open", "--log", "log.csv", "--json"]
    one = subprocess.Popen([*ENTRY, *words], cwd=folder, stdout=subprocess.DEVNULL)
    try:
        sizes = []
        for part in range(n // 4000):
            with (folder / "live.csv").open("a") as file:
                file.write(block)
            wanted = 1 + 4000 * (part + 1)
            until(lambda count=wanted: count_lines(folder / "log.csv") >= count)
            sizes.append(resident(one))
    finally:
        one.send_signal(signal.SIGINT)
        assert one.wait(60) == 0
    print(f"\n{n} rows: {sizes[0]:.0f} to {sizes[-1]:.0f} MB")
    assert max(sizes) - sizes[len(sizes) // 2] < 12


def until(test, seconds=120):
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, "took too long"
        time.sleep(0.02)


def count_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_the_chart_of_a_monitor_is_a_picture_that_is_written_whole(inside, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    from dualpca.app import plots

    drawn = []
    monkeypatch.setattr(
        plots, "control_chart", lambda fitted: drawn.append(fitted) or Figure(), raising=False
    )
    write(tmp_path / "normal.csv", rows_of(80, 0))
    words = ("normal.csv", "--statistics", "t2,spe", "--chart")
    status, printed, said = inside("monitor", *words, "chart.svg", cwd=tmp_path)
    assert status == 0, said
    assert "Wrote chart.svg" in printed and b"<svg" in (tmp_path / "chart.svg").read_bytes()
    assert isinstance(drawn[0], dp.Monitor)
    status, _, said = inside("monitor", *words, "chart.doc", cwd=tmp_path)
    assert status == 2 and "expected one of .png, .svg, .pdf" in said
