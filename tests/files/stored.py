"""Models that are stored with every release, and what they say; run as a script it stores them.

python -m tests.files.stored
"""

import base64
import tempfile
from pathlib import Path

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dualpca as dp

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 1)) @ rng.normal(size=(1, 3)) + 0.1 * rng.normal(size=(12, 3))
ROW = np.array([[1.0, 2.0, 4.0]])
METADATA = {"table": {"columns": ["a", "b", "c"], "scales": [1.0, 0.5, 2]}, "note": "σ²"}

MAKE = {
    "ppca": lambda: dp.PPCA(1).fit(X),
    "kernel": lambda: dp.KernelPCA(1, kernel="rbf").fit(X),
    "dual": lambda: dp.DualPPCA(1).fit(X),
    "mixture": lambda: dp.MixturePPCA(2, [1, 2], random_state=0).fit(X),
    "chain": lambda: dp.HiddenMarkovPCA(2, 1, kernel="rbf", n_directions=3).fit(X),
    "classes": lambda: dp.SequenceClassifier(dp.HiddenMarkovPCA(1, 1)).fit(
        [X[:6], X[6:]], ["up", "down"]
    ),
    "generator": lambda: dp.Generator(dp.PPCA(1), density="mixture", n_mixtures=2).fit(X),
    "pipeline": lambda: make_pipeline(StandardScaler(), dp.PPCA(1)).fit(X),
}
ANSWERS = {
    **dict.fromkeys(("ppca", "mixture", "chain", "pipeline"), lambda model: model.score(ROW)),
    "dual": lambda model: model.score_samples(ROW)[0],
    "kernel": lambda model: model.transform(ROW)[0, 0],
    "classes": lambda model: model.predict_log_proba([ROW])[0, 0],
    "generator": lambda model: model.density_.log_density(model.estimator_.transform(ROW))[0],
}


def main():
    folder = Path(__file__).parent / "stored_models"
    for kind, make in MAKE.items():
        model = make()
        with tempfile.TemporaryDirectory() as place:
            path = Path(place, "m.dpca")
            dp.save(model, path, metadata=METADATA)
            words = base64.encodebytes(path.read_bytes()).decode()
        answer = f"{float(ANSWERS[kind](model))!r}\n"
        (folder / f"{dp.__version__}-{kind}.txt").write_text(words + answer)


if __name__ == "__main__":
    main()
