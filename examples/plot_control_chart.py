"""
A process through time: control chart and contributions
=======================================================

A reactor reports eight sensors every ten minutes. :class:`~dualpca.Monitor` learns from a week of
normal operation; the charts then show the next three days, in which a thermometer begins to drift
and a valve sticks.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from dualpca import Monitor, plots

SENSORS = {  # how each follows throughput, outdoor temperature and quality of the feed
    "feed flow": (1.0, 0.0, 0.0),
    "coolant flow": (0.7, 0.6, 0.3),
    "coolant temperature": (0.0, 1.0, 0.0),
    "reactor temperature": (0.5, 0.2, 0.7),
    "reactor pressure": (0.6, 0.0, 0.6),
    "stirrer power": (0.4, 0.0, -0.8),
    "product flow": (0.9, 0.0, -0.2),
    "purity": (-0.3, 0.0, 0.9),
}
relation = np.array(list(SENSORS.values())).T
rng = np.random.default_rng(3)


def operation(start, rows):
    """Return readings of normal operation, every ten minutes."""
    readings = rng.normal(size=(rows, 3)) @ relation + 0.3 * rng.normal(size=(rows, 8))
    times = pd.date_range(start, periods=rows, freq="10min", name="time")
    return pd.DataFrame(readings, columns=list(SENSORS), index=times)


# %%
# Phase I: a week of normal operation
# -----------------------------------
# Limits are such that ordinary rows raise a false alarm every 1000 rows on average, which is once a
# week.

normal = operation("2026-03-02", 7 * 144)
monitor = Monitor(arl=1000).fit(normal)
print({name: round(limit, 1) for name, limit in monitor.limits_.items()})

# %%
# Phase II: three days with two faults
# ------------------------------------
# From noon of the first day the thermometer of the reactor reads higher and higher, until it is
# replaced in the evening. On the third day the coolant valve sticks for two hours. For one hour
# nothing was recorded, and the purity sensor was away for a night.

later = operation("2026-03-09", 3 * 144)
later.loc["2026-03-09 12:00":"2026-03-09 20:00", "reactor temperature"] += np.linspace(0, 2, 49)
later.loc["2026-03-11 09:00":"2026-03-11 11:00", "coolant flow"] = 1.5
later.loc["2026-03-10 06:00":"2026-03-10 07:00"] = np.nan
later.loc["2026-03-10 18:00":"2026-03-11 05:00", "purity"] = np.nan

chart = monitor.chart(later, time=later.index)
for episode in chart.episodes:
    print(episode)

# %%
# The control chart
# -----------------
# T² and SPE judge every row by itself: T² misses both faults, and SPE is late for the drift. Moving
# averages add up what lasts: MEWMA of the components, and the residual of every sensor. While the
# purity sensor is away, the limits of T² and SPE are those of the other seven.

plots.control_chart(chart)
plt.show()

# %%
# Which sensor, and since when
# ----------------------------
# Contributions over time: red is higher than the other sensors say, blue is lower, and grey is
# missing.

plots.contributions_over_time(monitor, later)
plt.show()
