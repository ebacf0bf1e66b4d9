"""The types that model files may hold, with what is asked of their fields.

A type that is not here (or registered by the estimators) is neither written nor read.
"""

from __future__ import annotations

from collections.abc import Iterable

from dualpca.data import Moments
from dualpca.files.checkpoints import Checkpoint
from dualpca.files.encoding import Stored, any_fields
from dualpca.files.lazy import Registry
from dualpca.gaussian import Factors, LoadingPosterior, Reference, Selection, SpikedGaussian, Sums
from dualpca.generation import densities
from dualpca.kernels import KERNELS, Precomputed, Product, Scaled, Sum, Uncertain
from dualpca.models.canonical import Canonical, View
from dualpca.models.chain import Chain
from dualpca.models.dual import MapSpace, PointSpace
from dualpca.models.emissions import Emissions, Prior
from dualpca.models.hidden_markov import HiddenMarkov
from dualpca.models.kernel_space import KernelSpace
from dualpca.models.mixture import Mixture, MixtureSelection
from dualpca.models.mixture_stream import MixtureStream
from dualpca.models.probabilistic_kernel import Correction, Placement
from dualpca.models.streaming import Running, Stream
from dualpca.models.twin import Twin, TwinPlacement
from dualpca.operators import (
    Explicit,
    Fourier,
    Landmarks,
    Mapped,
    MappedSubspace,
    Spectrum,
    Subspace,
    UncertainSubspace,
)
from dualpca.preimages import PREIMAGES

EXPANSION = {
    "kernel": "Kernel",
    "coefficients": "(n, q)",
    "base": "(n,)",
    "tilt": "(q,)",
    "offset": "float",
}

LINEAR: dict[str, Stored] = {
    "Checkpoint": any_fields(Checkpoint),
    "Reference": Stored(Reference, {"n": "float", "divisor": "float", "dof": "float | None"}),
    "Moments": Stored(Moments, {"n": "float", "mean": "(d,)", "scatter": "(d, d)"}),
    "Factors": Stored(Factors, {"W": "(d, q)", "mu": "(d,)", "psi": "(d,)"}),
    "Sums": Stored(
        Sums,
        {
            "zz": "(d, q, q)",
            "z": "(d, q)",
            "n": "(d,)",
            "xz": "(d, q)",
            "x": "(d,)",
            "xx": "(d,)",
            "all_zz": "(q, q)",
            "all_z": "(q,)",
            "all_n": "() | float",
            "loglikelihood": "() | float",
        },
    ),
    "Running": Stored(
        Running,
        {
            "factors": "Factors",
            "average": "Factors",
            "origin": "(d,)",
            "sums": "Sums",
            "weight": "float",
            "seen": "(d,)",
            "n_iter": "int",
            "converged": "bool",
        },
    ),
    "Stream": Stored(
        Stream,
        {
            "q": "int",
            "noise": "float | int | None",
            "tol": "float | int",
            "max_iter": "int",
            "moments": "Moments | None",
            "rows": "(b, d) | None",
            "weights": "(b,) | None",
            "running": "Running | None",
        },
    ),
    "LoadingPosterior": Stored(
        LoadingPosterior,
        {
            "W": "(d, q)",
            "rows": "(d, q, q) | (1, q, q)",
            "angle": "(q, q)",
            "growth": "(q,)",
            "tangent": "bool",
        },
    ),
    "Selection": Stored(
        Selection,
        {
            "candidates": "whole (k,)",
            "q2": "(k,)",
            "q2_error": "(k,)",
            "loglikelihood": "(k,)",
            "loglikelihood_error": "(k,)",
            "chosen": "int",
            "unit": "text",
        },
    ),
    "View": Stored(View, {"mu": "(d,)", "F": "(d, r)", "H": "(d, r)", "Q": "(r, q)"}),
    "Canonical": Stored(Canonical, {"x": "View", "y": "View", "rho": "(q,)"}),
}

FEATURES: dict[str, Stored] = {
    "Spectrum": Stored(
        Spectrum,
        {
            "values": "(q,)",
            "vectors": "(n, q)",
            "trace": "float",
            "dim": "int",
            "error": "float",
            "concentration": "float | None",
        },
    ),
    "SpikedGaussian": Stored(SpikedGaussian, {"values": "(q,)", "noise": "float", "dim": "int"}),
    "Subspace": Stored(Subspace, {"points": "points (n, d)", **EXPANSION}),
    "Uncertain": Stored(Uncertain, {"mean": "(n, d)", "covariance": "(n, d, d)"}),
    "UncertainSubspace": Stored(UncertainSubspace, {"rows": "Uncertain", **EXPANSION}),
    "Landmarks": Stored(
        Landmarks, {"kernel": "Kernel", "points": "points (m, d)", "whitening": "(m, r)"}
    ),
    "Fourier": Stored(
        Fourier, {"kernel": "Kernel", "frequencies": "(d, m)", "phases": "(m,)", "gap": "float"}
    ),
    "Explicit": Stored(Explicit, {"kernel": "Kernel"}),
    "Mapped": Stored(Mapped, {"moments": "Moments", "total": "float", "held": "float"}),
    "MappedSubspace": Stored(
        MappedSubspace, {"map": "Landmarks | Fourier | Explicit", "axes": "(m, q)", "mean": "(m,)"}
    ),
    "PointSpace": Stored(
        PointSpace,
        {
            "points": "points (n, d)",
            "kernel": "Kernel",
            "weights": "(n,)",
            "centered": "bool",
            "spectrum": "Spectrum",
            "means": "(n,)",
            "tilt": "(q,)",
            "memory_limit": "float | int",
        },
    ),
    "MapSpace": Stored(MapSpace, {"features": "(n, r)", "axes": "(r, q)", "mean": "(r,)"}),
    "Placement": Stored(Placement, {"weights": "(n, q)", "moment": "(q, q)"}),
    "Correction": Stored(Correction, {"kind": "text | None", "constant": "float"}),
    "Twin": Stored(Twin, {"Z": "(n, q)", "kernel": "Kernel", "gain": "float", "noise": "float"}),
    "TwinPlacement": Stored(TwinPlacement, {"model": "Twin", "S": "(n, n)"}),
}

PARTS: dict[str, Stored] = {
    "KernelSpace": Stored(
        KernelSpace, {"subspace": "Subspace", "variances": "(m,)", "total": "float"}
    ),
    "Prior": Stored(Prior, {"n": "float", "variance": "float"}),
    "Emissions": Stored(
        Emissions,
        {
            "means": "(K, d)",
            "loadings": "tuple K of (d, *)",
            "noises": "(K,)",
            "floor": "float",
            "tied": "bool",
            "prior": "Prior | None",
        },
    ),
    "Mixture": Stored(Mixture, {"weights": "(K,)", "emissions": "Emissions"}),
    "MixtureStream": Stored(
        MixtureStream,
        {
            "K": "int",
            "rows": "(b, d) | None",
            "weights": "(b,) | None",
            "kept": "mixture.Mixture | None",
            "moments": "tuple * of Moments",
            "n": "float",
            "density": "float",
            "like": "(0, d) | None",
        },
    ),
    "MixtureSelection": Stored(
        MixtureSelection,
        {
            "criterion": "text",
            "candidates": "list k of of int; int",
            "scores": "floats",
            "chosen": "of int; int",
        },
    ),
    "Chain": Stored(Chain, {"start": "(S,)", "transitions": "(S, S)"}),
    "HiddenMarkov": Stored(
        HiddenMarkov, {"chain": "Chain", "shares": "(S, M)", "emissions": "Emissions"}
    ),
    "densities.Gaussian": Stored(densities.Gaussian, {"mean": "(q,)", "factor": "(q, q)"}),
    "densities.KernelDensity": Stored(
        densities.KernelDensity, {"centres": "(n, q)", "factor": "(q, q)"}
    ),
    "densities.Mixture": Stored(
        densities.Mixture,
        {
            "weights": "(k,)",
            "parts": "tuple k of densities.Gaussian | tuple k of densities.KernelDensity"
            " | tuple k of densities.Mixture",
        },
    ),
}

ALGEBRA = (Precomputed, Product, Scaled, Sum)


def _own(package: str, classes: Iterable[type]) -> dict[str, Stored]:
    """Return the library's own classes by package and name, whatever else was defined before."""
    home = f"dualpca.{package}."
    return {
        f"{package}.{cls.__name__}": any_fields(cls)
        for cls in classes
        if cls.__module__.startswith(home)
    }


TYPES: Registry[Stored] = Registry(
    {
        **LINEAR,
        **FEATURES,
        **PARTS,
        **_own("kernels", (*KERNELS.values(), *ALGEBRA)),
        **_own("preimages", PREIMAGES.values()),
    }
)
"""Name in the file to type. Kernels and pre-image methods check their own parameters."""
