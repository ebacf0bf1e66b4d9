"""The sections: what runs them, with how many threads, what they need and into what they part.

Parts are in the order in which they run, so that a budget leaves out the large ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

NUMBERS = (
    *("sleep", "chorizon", "Boston", "Cars93", "UScrime", "Glass", "Vehicle", "USairpollution"),
    *("windspeed", "decathlon", "state", "bfi"),
)
SEEN = ("titanic", "survey", "birthwt", "boys", "salaries", "airquality")
"""Public tables of numbers and categories on which choices were made."""

UNSEEN = ("penguins", "wages", "pbc", "houses", "scat", "work")
"""Public tables that nobody had looked at when the last choice was made."""

MORE = ("chile", "beps", "copula", "clusters")
"""Further ones, two of them simulated."""

FROM_R = ("mice", "Amelia", "MASS", "carData", "AER", "modeldata", "palmerpenguins", "survival")


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    parts: tuple[str, ...]
    threads: int = 2
    module: str = ""
    peers: tuple[str, ...] = ()  # packages whose versions are noted
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by part; "" is all parts

    def needs_of(self, part: str) -> tuple[str, ...]:
        return self.needs.get("", ()) + self.needs.get(part, ())


def cases(kernel: bool) -> tuple[str, ...]:
    shapes = tuple(f"{n}-{kind}" for n in (1000, 3000, 10000) for kind in ("surface", "sphere"))
    if kernel:
        return (*shapes, "transform", "inverse", "landmarks", "100000-surface")
    fits = ("tall-500", "tall-500-float32", "tall-2000", "wide-20000", "tall-50")
    return ("import", "score", "streaming", *fits)


SMALL = ("pca", "kernels", "models", "missing")
LIST = (
    Section("pca", "PCA, streaming, densities and import", cases(kernel=False), module="fits"),
    Section("kernels", "Kernel PCA", cases(kernel=True), module="fits"),
    Section("small", "Small tables, default settings", SMALL, peers=("hmmlearn", "ppca-rs")),
    Section("load", "Small tables on a busy machine", SMALL, module="small"),
    Section("preimages", "Pre-images", ("digits",)),
    Section(
        "missing",
        "Missing values",
        ("5,000×100", "2,000×500", "20,000×100", "1,000,000×100"),
        peers=("ppca-rs",),
        needs={"": ("ppca_rs",)},
    ),
    Section(
        "imputation",
        "Imputation beside mice and Amelia",
        ("swiss", "airquality", "wine"),
        threads=1,
        peers=("mice", "Amelia"),
        needs={"": ("mice", "Amelia")},
    ),
    Section(
        "numbers",
        "Twelve tables of numbers, default settings",
        NUMBERS,
        threads=1,
        peers=("mice",),
        needs={"": ("mice", "VIM", "MASS", "mlbench", "HSAUR3", "FactoMineR", "psych")},
    ),
    Section(
        "mixed",
        "Tables of numbers and categories",
        ("speed", "time", *SEEN, *UNSEEN, *MORE),
        threads=1,
        peers=("gcimpute", "mice", "Amelia"),
        needs={"": ("gcimpute",)} | {name: FROM_R for name in ("time", *SEEN, *UNSEEN, *MORE)},
    ),
    Section(
        "robust",
        "Outliers beside PcaHubert",
        ("500×10", "200×20", "100×200"),
        threads=1,
        peers=("rrcov",),
        needs={"": ("rrcov",)},
    ),
    Section("mixture", "Mixtures", ("apart", "close"), peers=("ppca-rs",)),
    Section(
        "chains",
        "Hidden Markov models",
        ("speed", "motions", "speakers"),
        threads=1,
        peers=("hmmlearn",),
        needs={
            "": ("hmmlearn",),
            "motions": ("basic_motions.npz",),
            "speakers": ("japanese_vowels.npz",),
        },
    ),
    Section(
        "search",
        "Kernel search",
        ("digits", "oil flow", "diabetes", "breast cancer", "MNIST"),
        peers=("optuna",),
        needs={"": ("optuna",), "oil flow": ("oil_flow.npz",), "MNIST": ("mnist10k.npz",)},
    ),
    Section("draws", "Draws of kernel values", ("50,000×10",)),
    Section(
        "parts",
        "Data larger than memory, and Dask",
        ("file", "scaling", "dask-ml"),
        peers=("dask", "dask-ml"),
        needs={"scaling": ("dask",), "dask-ml": ("dask", "dask_ml")},
    ),
    Section(
        "gpu",
        "GPU",
        (
            *("linear", "kernel", "stored", "passes", "asked", "sparse", "missing", "flat"),
            *("choice", "reference", "shared", "large"),
        ),
        peers=("torch", "triton"),
        needs={"": ("GPU",)},
    ),
)
SECTIONS = {section.name: section for section in LIST}
