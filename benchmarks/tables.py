"""The tables of all sections, by the names that `page.md` calls them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from statistics import geometric_mean

from benchmarks.markup import NOTHING, Column, Results, folded, rows_of, shown, table, text, value
from benchmarks.run import Row
from benchmarks.sections import SECTIONS, SEEN, UNSEEN

# --- PCA and kernel PCA --------------------------------------------------------------------------


def contest(results: Results, section: str) -> str:
    """Return ours beside the best peer, one line a contestant of ours."""
    found = []
    for part in SECTIONS[section].parts:
        rows = rows_of(results, section, part)
        best = next((row for row in rows if row["best"]), {})
        found += [row | {"peer": best} for row in rows if row["ours"]]

    def both(key: str, form: str) -> Callable[[Row], str]:
        def show(row: Row) -> str:
            pair = (row[key], row["peer"].get(key))
            return "-" if pair == (None, None) else ", ".join(shown(x, form) for x in pair)

        return show

    columns = [
        text("task", "name"),
        Column("dualpca", lambda row: row["who"].removeprefix("dualpca "), number=False),
        Column("best peer", lambda row: row["peer"].get("who", "-"), number=False),
        Column("s: ours, theirs", both("seconds", ".3g")),
        value("ratio", "ratio", ".2f"),
        Column("error: ours, theirs", both("error", ".0e")),
        Column("extra MB: ours, theirs", both("megabytes", ".0f")),
    ]
    return table(columns, found) if found else NOTHING


def everyone(results: Results, section: str) -> str:
    rows = rows_of(results, section)
    columns = [
        text("task", "name"),
        text("contestant", "who"),
        Column("s", lambda row: shown(row["seconds"], ".4g") if row["seconds"] else row["note"]),
        value("ratio", "ratio", ".2f"),
        value("error", "error", ".1e"),
        text("error of", "error_of"),
        value("extra MB", "megabytes", ".0f"),
    ]
    return folded("All contestants", table(columns, rows)) if rows else ""


# --- small tables --------------------------------------------------------------------------------

METHODS = r"fit_transform|predict_proba|score_samples|transform|predict|score|steps|fit"


def operation(name: str) -> str:
    """Return what a cell does, from its name."""
    found = re.search(rf"\b({METHODS})\b", name)
    one = re.search(r"\bone row\b|\b1 row\b|transform 1 by", name)
    return (found[1] if found else "other") + (", one row" if one else "")


def condensed(results: Results) -> str:
    """Return one line for each model and operation: how many cells, range and mean of ratios."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows_of(results, "small"):
        groups.setdefault((row["group"], operation(row["name"])), []).append(row["ratio"])
    found = [
        {"model": model, "call": call, "count": len(ratios), "slower": sum(r > 1 for r in ratios)}
        | {"mean": geometric_mean(ratios), "low": min(ratios), "high": max(ratios)}
        for (model, call), ratios in groups.items()
    ]
    columns = [text("model", "model"), text("call", "call"), value("comparisons", "count", "d")]
    columns += [value("ratio, geometric mean", "mean", ".2f"), value("smallest", "low", ".2f")]
    columns += [value("largest", "high", ".2f"), value("slower", "slower", "d")]
    return table(columns, found) if found else NOTHING


def loaded(results: Results) -> str:
    """Return how ratios change while other processes keep the cores busy."""
    quiet = {(row["group"], row["name"]): row["ratio"] for row in rows_of(results, "small")}
    groups: dict[str, list[tuple[float, float]]] = {}
    for row in rows_of(results, "load"):
        if (row["group"], row["name"]) in quiet:
            pair = (quiet[row["group"], row["name"]], row["ratio"])
            groups.setdefault(row["group"], []).append(pair)
    found = []
    for model, pairs in groups.items():
        before, after = map(list, zip(*pairs, strict=True))
        change = [b / a for a, b in pairs]
        means = map(geometric_mean, (before, after, change))
        row = dict(zip(("quiet", "busy", "change"), means, strict=True))
        found.append(row | {"model": model, "count": len(pairs), "most": max(change)})
    columns = [text("model", "model"), value("comparisons", "count", "d")]
    columns += [value("ratio on a quiet machine", "quiet", ".2f")]
    columns += [value("on a busy one", "busy", ".2f"), value("busy / quiet", "change", ".2f")]
    return table([*columns, value("largest", "most", ".2f")], found) if found else NOTHING


# --- the other sections --------------------------------------------------------------------------

NAME, WHO = text("table", "name"), text("who", "who")
SECONDS, RATIO = value("s", "seconds"), value("ratio", "ratio", ".2f")
BESIDE = [
    value("ms", "seconds", ".3g", 1000),
    value("error", "error", ".0e"),
    Column("fastest other as accurate", lambda row: row["peer"] or "none", number=False),
    value("its ms", "theirs", ".3g", 1000),
    RATIO,
    Column("all others: ms (error)", lambda row: others(row["others"]), number=False),
]


def others(found: dict[str, list[float | None]]) -> str:
    """Return times and errors of the contestants; a dash for one that cannot do it."""
    return "; ".join(
        f"{who} {shown(spent, '.3g', 1000)} ({shown(error, '.0e')})"
        for who, (spent, error) in found.items()
    )


def q_range(row: Row) -> str:
    low, high = row.get("q") or (None, None)
    if low is None:
        return str(row["who"])
    return f"{row['who']} (q = {low})" if low == high else f"{row['who']} (q = {low} to {high})"


COLUMNS: dict[str, list[Column]] = {
    "missing": [
        NAME,
        WHO,
        value("s a step", "step_seconds"),
        RATIO,
        value("steps", "steps", "d"),
        value("s, whole fit", "seconds"),
        value("ratio of fits", "whole_fit_ratio", ".3f"),
        value("log-likelihood", "loglikelihood", ".0f"),
        text("note", "note"),
    ],
    "mixture": [
        NAME,
        WHO,
        value("s a step", "step_seconds"),
        RATIO,
        value("steps", "steps", "d"),
        value("s, whole fit", "seconds"),
        value("ratio of fits", "whole_fit_ratio", ".2f"),
        value("held-out log-density a row", "held_out", ".2f"),
        text("note", "note"),
    ],
    "imputation": [
        text("table, what was removed", "name"),
        Column("method", q_range, number=False),
        value("RMSE", "rmse", ".2f"),
        value("outside, %", "outside", ".1f", 100),
        value("90 % interval covers, %", "covered", ".0f", 100),
        value("its width", "width", ".2f"),
        value("bias", "bias", ".2f"),
        value("pooled 95 % covers, %", "pooled", ".0f", 100),
        value("missing part 95 % covers, %", "missing_part", ".0f", 100),
        value("its width", "widths", ".2f"),
        value("s", "seconds", ".2g"),
        value("by mice pmm's", "by_mice", ".2f"),
        RATIO,
    ],
    "robust": [
        text("table, rows replaced", "name"),
        text("method", "who"),
        value("angle, °", "angle", ".2f"),
        value("by the clean fit's", "by_clean", ".2f"),
        value("clean rows flagged, %", "wrong", ".1f", 100),
        value("replaced rows flagged, %", "right", ".1f", 100),
        value("s", "seconds", ".2g"),
        RATIO,
    ],
    "mixed:time": [
        NAME,
        value("CopulaPPCA(), s", "seconds", ".2g"),
        value("Imputer(), s", "imputer", ".2g"),
        value("mice, s", "mice", ".2g"),
        value("CopulaPPCA() by mice", "by_mice", ".2f"),
        value("Imputer() by mice", "imputer_by_mice", ".2f"),
    ],
    "mixed:speed": [NAME, WHO, SECONDS, RATIO, value("extra MB", "megabytes", ".0f")],
    "chains:speed": [text("sequence", "name"), WHO, value("s an iteration", "seconds"), RATIO],
    "chains:speakers": [
        text("speakers", "name"),
        value("settings tried", "settings", "d"),
        text("chosen", "chosen"),
        value("CV log-probability", "log_probability", ".3f"),
        value("CV accuracy", "accuracy", ".3f"),
        value("test accuracy", "test", ".3f"),
    ],
    "chains:motions": [
        text("motions", "name"),
        text("chosen on the training stream", "chosen"),
        value("its index there", "training", ".3f"),
        value("on test streams", "tests", ".3f"),
    ],
    "draws": [
        NAME,
        value("fit, s", "fit_seconds"),
        value("draws", "draws", "d"),
        value("drawing, s", "seconds"),
        value("extra MB", "megabytes", ".0f"),
    ],
    "parts:file": [
        text("PCA(5) from a .npy file", "name"),
        text("file", "state"),
        value("reading it, s", "read", ".1f"),
        value("fit, s", "fit", ".1f"),
        value("peak of the process, MiB", "peak", ".0f", 2**-20),
    ],
    "parts:dask-ml": [
        NAME,
        WHO,
        SECONDS,
        RATIO,
        value("difference of variances", "difference", ".0e"),
    ],
    "parts:scaling": [
        NAME,
        value("workers on 2 cores", "workers", "d"),
        value("PCA, s", "pca_seconds"),
        value("PPCA with NaN, 10 steps, s", "ppca_seconds"),
    ],
    "gpu:kernel": [
        text("fit", "name"),
        SECONDS,
        value("memory beyond the data, GiB", "gigabytes", ".1f"),
        value("error of eigenvalues", "error", ".0e"),
        value("largest residual / eigenvalue", "residual", ".0e"),
    ],
    "gpu:linear": [text("fit", "name"), *BESIDE],
    "gpu:sparse": [text("fit", "name"), *BESIDE],
    "gpu:large": [
        text("fit", "name"),
        SECONDS,
        value("memory beyond the data, GiB", "gigabytes", ".1f"),
        value("largest residual / eigenvalue", "residual", ".0e"),
    ],
    "gpu:asked": [
        text("question", "name"),
        value("ms", "seconds", ".3g", 1000),
        value("error", "error", ".0e"),
    ],
    "gpu:flat": [text("fit", "name"), SECONDS, value("steps", "steps", "d")],
    "gpu:shared": [
        text("work", "name"),
        value("points", "points", ",d"),
        value("shares", "shares", "d"),
        value("slowest share, s", "seconds"),
        value("copies, s", "copies"),
        value("times as fast, on as many GPUs", "speedup", ".1f"),
    ],
    "gpu:stored": [
        text("fit", "name"),
        SECONDS,
        value("torch.linalg.eigh, s", "eigh"),
        value("torch.lobpcg, s", "lobpcg"),
        RATIO,
        value("lobpcg's difference of eigenvalues", "lobpcg_error", ".0e"),
        value("largest difference of ours", "error", ".0e"),
    ],
    "gpu:missing": [
        text("fit", "name"),
        value("GPU, s", "seconds"),
        value("2 CPU cores, s", "host"),
    ],
    "gpu:passes": [
        text("kernel", "name"),
        Column("products", lambda row: PRECISION[row["mode"]], number=False),
        SECONDS,
        value("error", "error", ".0e"),
        value("of the chip's matrix product, %", "share", ".0f", 100),
        value("which has TFLOP/s", "tflops", ".0f"),
    ],
}
PRECISION = {
    "half": "float16",
    "halfx3": "three of float16 parts",
    "tf32": "TF32",
    "tf32x3": "3×TF32",
}


def listing(results: Results, place: str) -> str:
    """Return a plain table of a section, or of a part of one."""
    section, _, part = place.partition(":")
    rows = [
        r for r in rows_of(results, section, *[part] if part else ()) if "coefficients" not in r
    ]
    return table(COLUMNS[place], rows) if rows else NOTHING


def details(results: Results, place: str) -> str:
    return folded("All rows", listing(results, place))


RANGES: dict[str, dict[str, tuple[str, str, float]]] = {  # heading: key, format, factor
    "imputation": {
        "RMSE": ("rmse", ".2f", 1),
        "90 % interval covers, %": ("covered", ".0f", 100),
        "absolute bias": ("bias", ".1f", 1),
        "pooled 95 % covers, %": ("pooled", ".0f", 100),
        "s, by mice pmm's": ("by_mice", ".2f", 1),
        "ratio": ("ratio", ".2f", 1),
    },
    "robust": {
        "angle by the clean fit's": ("by_clean", ".2f", 1),
        "clean rows flagged, %": ("wrong", ".1f", 100),
        "replaced rows flagged, %": ("right", ".0f", 100),
        "ratio": ("ratio", ".2f", 1),
    },
}


def ranges(results: Results, section: str) -> str:
    """Return one line a method: the smallest and the largest value over all tables."""
    groups: dict[str, list[Row]] = {}
    for row in rows_of(results, section):
        if "coefficients" not in row:
            groups.setdefault(row["who"], []).append(row)

    def span(key: str, form: str, factor: float) -> Callable[[Row], str]:
        def show(row: Row) -> str:
            known = [abs(one[key]) * factor for one in row["rows"] if one.get(key) is not None]
            return f"{min(known):{form}} to {max(known):{form}}" if known else "-"

        return show

    columns = [text("method", "who")]
    columns += [Column(head, span(*how)) for head, how in RANGES[section].items()]
    rows = [{"who": who, "rows": rows} for who, rows in groups.items()]
    return table(columns, rows) if rows else NOTHING


def cleaned(results: Results) -> str:
    """Return the errors of pre-images."""
    rows = rows_of(results, "preimages")
    if not rows:
        return NOTHING

    def error(noise: str) -> Callable[[Row], str]:
        return lambda row: f"{row['errors'][noise]:.4f}"

    columns = [text("method", "name"), value("components", "components", "d")]
    columns += [Column(f"squared error, {noise}", error(noise)) for noise in rows[0]["errors"]]
    return table([*columns, value("s", "seconds", ".2g")], rows)


def coefficients(results: Results) -> str:
    rows = [row for row in rows_of(results, "imputation") if "coefficients" in row]
    if not rows:
        return NOTHING
    first = rows[0]

    def estimate(name: str) -> Callable[[Row], str]:
        return lambda row: "{:.2f} ± {:.2f}".format(*row["coefficients"][name])

    columns = [text(f"{first['name']}: {first['response']} by", "who")]
    columns += [Column(name, estimate(name)) for name in first["coefficients"]]
    return table(columns, rows)


def gaps_filled(results: Results, what: str) -> str:
    """Return a table with a column a method: mean ± standard error, bold where best."""
    rows = [row for row in rows_of(results, "mixed") if "splits" in row]
    tables: dict[str, Row] = {}
    for row in rows:
        tables.setdefault(row["name"], {"name": row["name"]})[row["who"]] = row
    many = Counter(row["who"] for row in rows)  # who was run on a few tables only is left out
    methods = [who for who, count in many.items() if 2 * count > len(tables)]

    def show(who: str) -> Callable[[Row], str]:
        def one(line: Row) -> str:
            row = line.get(who, {})
            if what == "seconds":
                return shown(row.get("seconds"), ".2g")
            if row.get(what) is None:
                return "failed" if row.get("failed") else "-"
            told = f"{row[what]:.3f} ± {row[f'{what}_error']:.3f}"
            return f"**{told}**" if row[f"{what}_good"] else told

        return one

    columns = [text(what, "name"), *(Column(who, show(who)) for who in methods)]
    return table(columns, list(tables.values())) if rows else NOTHING


def verdicts(results: Results) -> str:
    """Return how far ours is from the best other method, table by table."""
    lines, well = [], dict.fromkeys((*SEEN, *UNSEEN), False)
    for row in rows_of(results, "mixed"):
        if "splits" not in row or "best" not in row:
            continue
        pairs = [(what, row.get(f"{what}_gap")) for what in ("numbers", "levels")]
        known = [(what, *gap) for what, gap in pairs if gap]
        good = set(row["best"]) >= {what for what, *_ in known}
        parts = [f"{w} {g:+.3f} ± {shown(e, '.3f')} to {who}" for w, g, e, who in known]
        state = "best, or within one standard error" if good else "worse than the best"
        q = ", ".join(map(str, row["q"]))
        lines.append(f"- {row['name']}, `{row['who']}()`: {state} (q = {q}): {'; '.join(parts)}")
        if (name := row["name"].split()[0]) in well:
            well[name] = good
    count = "Best, or within one standard error of the best, on numbers and on categories: "
    count += f"{sum(well.values())} of {len(well)} public tables, "
    unseen = sum(well[name] for name in UNSEEN)
    count += f"{unseen} of the {len(UNSEEN)} on which `CopulaPPCA` was not settled."
    return "\n".join([*lines, "", count]) if lines else NOTHING


def by_default(results: Results, what: str) -> str:
    """Return errors of imputers without options, a column a method; ours bold where none is better.

    `what` is 'numbers' or 'squares'. No better: ours minus the best other is within its standard
    error over the splits.
    """
    rows = rows_of(results, "numbers")
    tables: dict[str, dict[str, Row]] = {}
    for row in rows:
        tables.setdefault(row["name"], {})[row["who"]] = row

    def line(name: str) -> Row:
        found = tables[name]
        ours = next(row for row in found.values() if row["ours"])
        cells = {who: shown(row.get(what), ".3f") for who, row in found.items()}
        if ours[f"{what}_good"]:
            cells[ours["who"]] = f"**{cells[ours['who']]}**"
        gap, error, best = ours[f"{what}_gap"]
        about = f"{ours['model']}, q = {', '.join(map(str, ours['q']))}"
        seconds = {f"{who} s": shown(row.get("seconds"), ".2g") for who, row in found.items()}
        verdict = f"{gap:+.3f} ± {error:.3f} ({best})"
        return {"name": name, "model": about, "gap": verdict} | cells | seconds

    if not rows:
        return NOTHING
    who = list(dict.fromkeys(row["who"] for row in rows))
    columns = [text("table", "name"), text("model", "model"), *(text(one, one) for one in who)]
    columns += [text("ours − best other", "gap")]
    if what == "numbers":
        columns += [text(f"{one}, s", f"{one} s") for one in who]
    good = sum(bool(row[f"{what}_good"]) for row in rows if row["ours"])
    count = f"\n\nBest, or within one standard error of the best: {good} of {len(tables)}."
    return table(columns, [line(name) for name in tables]) + count


def searches(results: Results) -> str:
    rows = rows_of(results, "search")
    if not rows:
        return NOTHING

    def gain(key: str) -> Callable[[Row], str]:
        def show(row: Row) -> str:
            if row.get(key) is None:
                return "-"
            error = row.get(f"{key}_error")
            return f"{row[key]:+.4f}" + (f" ± {error:.4f}" if error is not None else "")

        return show

    gains = ("gain_random", "gain_median", "gain_linear", "gain_inner")
    known = {key: [row[key] for row in rows if row.get(key) is not None] for key in gains}
    mean = {key: sum(found) / len(found) for key, found in known.items() if found}
    heads = ("TPE − random", "TPE − median", "TPE − linear", "inner TPE − random")
    columns = [text("task", "name"), text("measure", "measure")]
    names = ("tpe", "random", "median", "linear")
    columns += [Column(who, lambda row, who=who: score(row, who)) for who in names]
    columns += [Column(head, gain(key)) for head, key in zip(heads, gains, strict=True)]
    return table(columns, [*rows, {"name": "average", "measure": "", **mean}])


def score(row: Row, who: str) -> str:
    return "" if row["name"] == "average" else shown(row.get(who), ".4f")


def choices(results: Results) -> str:
    rows = rows_of(results, "gpu", "choice")
    columns = [text("fit", "name"), value("multiplications", "work", ".1e")]
    columns += [value("2 CPU cores, s", "host", ".2g"), value("GPU, s", "card", ".2g")]
    columns += [Column("CPU / GPU", lambda row: f"{row['host'] / row['card']:.1f}")]
    return table(columns, rows) if rows else NOTHING


def large_fits(results: Results) -> str:
    """Return kernel PCA on the card, with the errors of the independent eigensolver."""
    errors = {row["name"]: row["error"] for row in rows_of(results, "gpu", "reference")}
    rows = [{"error": errors.get(row["name"])} | row for row in rows_of(results, "gpu", "kernel")]
    return table(COLUMNS["gpu:kernel"], rows) if rows else NOTHING


def several_gpus(results: Results) -> str:
    """Return what several GPUs would gain, where that was measured."""
    if not rows_of(results, "gpu", "shared"):
        return ""
    told = (
        "What several GPUs would gain, from shares of a pass that were timed one by one on one "
        "GPU, and copies through the memory of the host:"
    )
    return f"{told}\n\n{listing(results, 'gpu:shared')}\n\n"


TABLES: dict[str, Callable[..., str]] = {
    "by_default": by_default,
    "choices": choices,
    "cleaned": cleaned,
    "coefficients": coefficients,
    "condensed": condensed,
    "contest": contest,
    "details": details,
    "everyone": everyone,
    "gaps_filled": gaps_filled,
    "large_fits": large_fits,
    "loaded": loaded,
    "ranges": ranges,
    "searches": searches,
    "several_gpus": several_gpus,
    "table": listing,
    "verdicts": verdicts,
}
