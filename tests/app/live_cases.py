"""A plant with sixteen sensors, its monitor, and tables of its rows."""

import datetime

import numpy as np
import polars as pl

import dualpca as dp
from dualpca.app.live.following import FileTail
from dualpca.app.live.judging import Out, State, Watch
from dualpca.app.live.records import Layout, Records
from dualpca.app.tables.columns import Preparation

SENSORS = ["temperature", "flow", "pressure", "level", "valve", "pH"]
START = datetime.datetime(2026, 3, 2, 6, 0)


def rows_of(n, seed):
    """Return rows of ordinary operation: two causes, six sensors."""
    relation = np.random.default_rng(5).normal(size=(2, len(SENSORS)))
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(n, 2)) @ relation + 0.4 * rng.normal(size=(n, len(SENSORS)))
    return np.round(found * np.arange(1, 7) + 10 * np.arange(1, 7), 4)


def faulty(n=400, seed=1):
    """Return rows of which 100 to 130 have a wrong flow, and 300 on a drifting level."""
    found = rows_of(n, seed)
    found[100:130, 1] += 12
    found[300:, 3] += 0.3 * np.arange(n - 300)
    return np.round(found, 4)


def monitor():
    """Return a monitor of ordinary operation."""
    frame = pl.DataFrame(rows_of(300, 0), schema=SENSORS, orient="row")
    return dp.Monitor(random_state=0).fit(frame)


def lines_of(X, names=SENSORS, time=True, first=0):
    """Return rows as lines of CSV, without a header."""
    order = [SENSORS.index(name) for name in names]
    found = []
    for i, row in enumerate(np.asarray(X)[:, order], first):
        cells = ["" if np.isnan(x) else f"{x:.4f}" for x in row]
        cells = [str(START + datetime.timedelta(seconds=5 * i)), *cells] if time else cells
        found.append(",".join(cells) + "\n")
    return found


def header(names=SENSORS, time=True):
    return ",".join([*(["time"] if time else []), *names]) + "\n"


def write(path, X, names=SENSORS):
    """Write rows as CSV with a column of times."""
    path.write_text(header(names) + "".join(lines_of(X, names)))


class Heard:
    """A watch of a file, and what it says."""

    def __init__(self, fitted, path, *, time="time", log=None, state=None, **options):
        self.notes, self.alarms = [], []
        layout = Layout(Preparation(tuple(SENSORS)), time=time, **options)
        records = Records(layout, path.name, self.notes.append)
        tail = FileTail(str(path), self.notes.append)
        out = None if log is None else Out(str(log), None, True)
        self.watch = Watch(
            fitted,
            records,
            tail,
            State("", str(path)),
            None if state is None else str(state),
            self.alarms.append,
            log=out,
        )

    def go_on(self):
        """Judge what there is; return the rows that were judged."""
        before = self.watch.state.rows
        while self.watch.step(0.0):
            pass
        return self.watch.state.rows - before
