"""
Principal coordinates: a map from distances
===========================================

Only distances between towns are known, each about 3 % wrong.
:class:`~dualpca.ProbabilisticKernelPCA` turns them into a map. Every town is then left out in turn,
the map is fitted to the others, and the town is placed by its distances to them.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from dualpca import ProbabilisticKernelPCA

TOWNS = {  # latitude, longitude
    "Lisbon": (38.7, -9.1), "Madrid": (40.4, -3.7), "Paris": (48.9, 2.4), "London": (51.5, -0.1),
    "Dublin": (53.3, -6.3), "Brussels": (50.8, 4.4), "Oslo": (59.9, 10.8), "Rome": (41.9, 12.5),
    "Berlin": (52.5, 13.4), "Vienna": (48.2, 16.4), "Warsaw": (52.2, 21.0), "Athens": (38.0, 23.7),
    "Stockholm": (59.3, 18.1), "Helsinki": (60.2, 24.9), "Budapest": (47.5, 19.0),
    "Istanbul": (41.0, 29.0), "Kyiv": (50.5, 30.5), "Reykjavik": (64.1, -21.9),
}  # fmt: skip
place = np.radians(np.array(list(TOWNS.values())))
lat, lon = place.T
unit = np.c_[np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)]
D = 6371 * np.arccos(np.clip(unit @ unit.T, -1, 1))
off = np.random.default_rng(0).normal(size=D.shape)
D *= 1 + 0.03 * (off + off.T) / np.sqrt(2)
np.fill_diagonal(D, 0.0)
names = np.array(list(TOWNS))
# The atlas: directions and distances as seen from the middle of the towns.
up = unit.mean(axis=0) / np.linalg.norm(unit.mean(axis=0))
east = np.cross([0, 0, 1], up) / np.hypot(up[0], up[1])
seen = np.c_[unit @ east, unit @ np.cross(up, east)]
truth = 6371 * seen * (np.arccos(unit @ up) / np.linalg.norm(seen, axis=1))[:, None]


def laid_on_truth(Z, shown):
    """Return the turn, mirroring and shift that bring a map nearest to the atlas."""
    middle, target = Z.mean(axis=0), truth[shown].mean(axis=0)
    U, _, Vt = np.linalg.svd((Z - middle).T @ (truth[shown] - target))
    return lambda z: (z - middle) @ U @ Vt + target


def fitted(D):
    """Return a map in km."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such distances are not Euclidean, which it says
        return ProbabilisticKernelPCA(2, metric="precomputed").fit(D)


model = fitted(D)
print(f"{100 * model.explained_variance_ratio_.sum():.0f} % of the squared distances fit a plane")
placed = np.empty_like(truth)
for k in range(len(names)):
    rest = np.arange(len(names)) != k
    model = fitted(D[np.ix_(rest, rest)])
    scale = np.sqrt(model.n_samples_)  # coordinates are in units of the kernel over n
    lay = laid_on_truth(model.coordinates_ * scale, rest)
    placed[k] = lay(model.transform(D[[k]][:, rest]) * scale)[0]
off = np.linalg.norm(placed - truth, axis=1)
print(f"towns are placed {np.median(off):.0f} km off (median), {off.max():.0f} at most")

fig, ax = plt.subplots(figsize=(7, 5.5), layout="constrained")
for name, a, b in zip(names, truth, placed, strict=True):
    ax.plot(*np.stack([a, b]).T, color="0.6", lw=1)
    ax.annotate(name, a, xytext=(5, 4), textcoords="offset points", fontsize=9)
ax.plot(*truth.T, "o", mfc="white", color="k", label="where it is")
ax.plot(*placed.T, "*", color="#d55e00", ms=9, label="placed by its distances")
ax.set(aspect="equal", xlabel="km", ylabel="km", xlim=(-2100, 2300))
ax.legend(frameon=False)
plt.show()
