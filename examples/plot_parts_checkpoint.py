"""
Chunked data and a checkpoint
=============================

A table with missing values is read in eight chunks; every step of EM is one pass over them. The fit
is interrupted half-way. Started again with the same line, it resumes from the checkpoint and ends
where the uninterrupted fit does.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from dualpca import PPCA, Batches, Checkpoint

rng = np.random.default_rng(0)
scales = 2.0 / np.arange(1, 13)
X = rng.normal(size=(4000, 12)) * scales @ np.linalg.qr(rng.normal(size=(12, 12)))[0]
X[rng.random(X.shape) < 0.3] = np.nan
parts = np.array_split(X, 8)
passes = []


def reader(fails_after=np.inf):
    """Return a chunked table whose disk fails after so many passes."""

    def read():
        passes.append(1)
        if len(passes) > fails_after:
            raise OSError("the disk failed")
        yield from parts

    return Batches(read)


with tempfile.TemporaryDirectory() as folder:
    whole = PPCA(4, tol=1e-8).fit(reader())
    total = len(passes)
    path = Path(folder) / "fit.checkpoint"
    model = PPCA(4, tol=1e-8, checkpoint=Checkpoint(path, seconds=0))
    passes.clear()
    try:
        model.fit(reader(fails_after=total // 2))
    except OSError as error:
        done = len(passes) - 1
        print(f"{error} after {done} passes; the checkpoint has {path.stat().st_size} bytes")
    passes.clear()
    model.fit(reader())
    print(f"{len(passes)} passes more; uninterrupted: {total}")
    print("largest difference of the loadings:", abs(model.loadings_ - whole.loadings_).max())

fig, (top, bottom) = plt.subplots(
    2, 1, figsize=(6.5, 5), height_ratios=[3, 1.3], layout="constrained"
)
left = whole.loglikelihood_ - np.array(whole.loglikelihoods_)
again = whole.loglikelihood_ - np.array(model.loglikelihoods_)
top.semilogy(left, color="0.75", lw=5, label="uninterrupted")
top.semilogy(again, "o-", color="#0072b2", ms=4, label="interrupted, then resumed")
top.set(xlabel="step", ylabel="log-likelihood\nbelow its maximum", ylim=(1e-7, None))
top.legend(frameon=False)
runs = ["uninterrupted", "until the failure", "resumed"]
bottom.barh(runs, [total, done, len(passes)], color=["0.75", "#d55e00", "#0072b2"])
bottom.invert_yaxis()
bottom.set_xlabel("passes over the chunks, those of the start included")
plt.show()
