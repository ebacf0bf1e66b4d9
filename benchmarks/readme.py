"""The README's table of ratios, from stored results."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import geometric_mean
from typing import NamedTuple

from benchmarks.markup import Column, Results, rows_of, table, text
from benchmarks.results import Standing, cells
from benchmarks.run import Row
from benchmarks.sections import SECTIONS, SEEN, UNSEEN

START, END = "<!-- benchmarks:start -->", "<!-- benchmarks:end -->"


class Line(NamedTuple):
    """A task of the README: parts of a section, and the contestant."""

    task: str
    section: str
    parts: tuple[str, ...]
    who: str
    key: str = "ratio"


LIBRARY = {"hmmlearn": "hmmlearn", "ppca-rs": "ppca-rs"}
"""Whose a peer of the small tables is, where it is not one of scikit-learn's."""

KERNELS_1000 = ("1000-surface", "1000-sphere")
KERNELS_10000 = ("10000-surface", "10000-sphere")
LINES = (
    Line("PCA, 1,000,000×50", "pca", ("tall-50",), "dualpca PCA(20)"),
    Line("PCA, 100,000×500", "pca", ("tall-500",), "dualpca PCA(20)"),
    Line("PCA, 100,000×500, float32", "pca", ("tall-500-float32",), "dualpca PCA(20)"),
    Line("PCA, 2,000×20,000", "pca", ("wide-20000",), "dualpca PCA(20)"),
    Line("the same, `tol=1e-8`", "pca", ("wide-20000",), "dualpca PCA(20, tol=1e-8)"),
    Line("`partial_fit`, 100,000×500", "pca", ("streaming",), "dualpca PCA.partial_fit"),
    Line("densities, 5,000×2,000", "pca", ("score",), "dualpca PPCA.score_samples"),
    Line("kernel PCA, 1,000 rows", "kernels", KERNELS_1000, "dualpca KernelPCA"),
    Line("the same, `tol=1e-8`", "kernels", KERNELS_1000, "dualpca KernelPCA(tol=1e-8)"),
    Line("kernel PCA, 10,000 rows", "kernels", KERNELS_10000, "dualpca KernelPCA"),
    Line("the same, `tol=1e-8`", "kernels", KERNELS_10000, "dualpca KernelPCA(tol=1e-8)"),
    Line(
        'kernel PCA, 100,000 rows, `eigen_solver="nystrom"`',
        "kernels",
        ("landmarks",),
        "dualpca nystrom, k-means",
    ),
    Line(
        "PPCA with missing values, one EM step",
        "missing",
        ("5,000×100", "2,000×500", "20,000×100"),
        "dualpca",
    ),
    Line("mixture of ten, one EM step", "mixture", ("apart", "close"), "dualpca"),
    Line("the same, whole fit", "mixture", ("apart", "close"), "dualpca", "whole_fit_ratio"),
    Line("hidden Markov model, one iteration", "chains", ("speed",), "dualpca, q = 9"),
)


def readme_rows(results: Results) -> Iterator[Row]:
    for line in LINES:
        rows = rows_of(results, line.section, *line.parts)
        ratios = [r[line.key] for r in rows if r["who"] == line.who and r.get(line.key)]
        if ratios:
            low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
            yield {
                "task": line.task,
                "ratio": low if low == high else f"{low} to {high}",
                "peer": peers_of(rows, line),
            }
    yield from small_tables(results)


def peers_of(rows: list[Row], line: Line) -> str:
    """Return whom the ratio is to: the best peer of each part, or the fastest."""
    theirs = [row for row in rows if not row["ours"]]
    if any("best" in row for row in theirs):
        names = [row["who"] for row in theirs if row["best"]]
    else:
        key = "step_seconds" if line.key == "ratio" and "step_seconds" in theirs[0] else "seconds"
        tables = dict.fromkeys(row["name"] for row in theirs)
        names = [
            min((r for r in theirs if r["name"] == name), key=lambda r: r[key])["who"]
            for name in tables
        ]
    first, *others = dict.fromkeys(name.replace("sklearn", "scikit-learn") for name in names)
    return " or ".join([first, *(name.removeprefix("scikit-learn ") for name in others)])


def small_tables(results: Results) -> Iterator[Row]:
    """Yield the geometric mean over small tables, default against default."""
    rows = rows_of(results, "small")
    if rows:
        task = f"small tables, defaults, geometric mean of {len(rows)} comparisons"
        mean = geometric_mean([row["ratio"] for row in rows])
        slower = sum(row["ratio"] > 1 for row in rows)
        peers = dict.fromkeys(LIBRARY.get(row["peer"], "scikit-learn") for row in rows)
        peer = f"{', '.join(peers)}; slower in {slower}"
        yield {"task": task, "ratio": f"{mean:.2f}", "peer": peer}


def readme_table(results: Results) -> str:
    columns = [text("task", "task"), Column("ratio", lambda row: row["ratio"])]
    return table([*columns, text("compared with", "peer")], list(readme_rows(results)))


def sentences(results: Results) -> str:
    """Return what is no ratio: all losses, how good filled values are, when, and large fits."""
    told = [*losses(results), *filled(results)]
    kernels = [row for row in rows_of(results, "gpu", "kernel") if "tol=" not in row["name"]]
    large = [row for row in kernels if "1,000,000" in row["name"]]
    if large:
        card = results["gpu"]["kernel"].about["gpu"]
        low, high = (f"{end(row['seconds'] for row in large):.0f}" for end in (min, max))
        told.append(f"Kernel PCA of 1,000,000×64 takes {low} to {high} s on one {card}.")
    gains = [row["gain_linear"] for row in rows_of(results, "search")]
    lost = sum(gain <= 0 for gain in gains)
    if lost:
        told.append(
            f"A kernel is not always worth it: in {lost} of {len(gains)} tasks a searched kernel "
            "was no better than linear PCA."
        )
    return " ".join([*told, *when(results)])


def losses(results: Results) -> Iterator[str]:
    """Yield how many of all comparisons on the page are lost."""
    standing = Standing.of([c for name in SECTIONS for c in cells(name, results.get(name, {}))])
    if standing.count:
        yield (
            f"dualpca is slower in {len(standing.behind)} of all {standing.count:,} comparisons, "
            "tables with categories and GPUs included."
        )


def filled(results: Results) -> Iterator[str]:
    """Yield on how many public tables the filled values are the best, within their error."""
    ours = [row for row in rows_of(results, "numbers") if row["ours"]]
    public = {*SEEN, *UNSEEN}
    mixed = [row for row in rows_of(results, "mixed") if "splits" in row and "best" in row]
    mixed = [row for row in mixed if row["name"].split()[0] in public]
    if ours and mixed:
        good = sum(bool(row["numbers_good"]) for row in ours)
        asked = [
            {what for what in ("numbers", "levels") if row.get(f"{what}_gap")} for row in mixed
        ]
        both = sum(set(row["best"]) >= want for row, want in zip(mixed, asked, strict=True))
        yield (
            "Beside other imputers, its filled values are the best, or within one standard error "
            "of the best, on "
            f"{good} of {len(ours)} tables of numbers and {both} of {len(mixed)} with categories."
        )


def when(results: Results) -> Iterator[str]:
    """Yield when all of that was measured."""
    days = sorted(part.about["date"] for parts in results.values() for part in parts.values())
    if days:
        yield f"Measured from {days[0]} to {days[-1]}."


def with_table(readme: str, results: Results) -> str:
    """Return the README with its table between the markers replaced."""
    before, start, rest = readme.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"README.md needs the lines {START} and {END} around its table.")
    return f"{before}{START}\n{readme_table(results)}\n\n{sentences(results)}\n{END}{after}"
