"""`dualpca report`: a model and a table on one HTML page."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import polars as pl
import typer

from dualpca.app.cli._options import (
    Data,
    Encoding,
    Format,
    Identifier,
    Json,
    Level,
    Model,
    Page,
    Seed,
)
from dualpca.app.cli._running import run
from dualpca.app.cli._session import load_model, names_of, preparation_of
from dualpca.app.tables import tables
from dualpca.app.tables.dialects import TableError
from dualpca.arrays import progress


def report(
    model: Model,
    data: Data,
    output: Page = Path("report.html"),
    color: Annotated[
        str | None, typer.Option("--color", help="Column that rows are coloured by.")
    ] = None,
    image: Annotated[
        str | None, typer.Option("--image", help="Rows are images, such as 8x8 (height, width).")
    ] = None,
    curve: Annotated[
        bool, typer.Option("--curve", help="Columns are points of a curve, in order.")
    ] = False,
    title: Annotated[str | None, typer.Option(help="Of the page.")] = None,
    level: Level = 0.95,
    id_column: Identifier = None,
    kind: Format = None,
    encoding: Encoding = "utf-8",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Write what a model says of a table as one HTML page, with figures, for a browser."""
    asked = Asked(model, data, output, color, image, curve, title, level)
    asked = asked._replace(id_column=id_column, kind=kind, encoding=encoding, seed=seed)

    def work() -> dict[str, Any]:
        start = time.perf_counter()
        return written(asked) | {"seconds": time.perf_counter() - start}

    def words(found: dict[str, Any]) -> str:
        return (
            f"Wrote {found['output']} ({found['bytes'] / 1e6:.1f} MB): {found['rows']:,} rows, "
            f"{len(found['sections'])} sections. Open it in a browser."
        )

    run("report", as_json, work, words)


class Asked(NamedTuple):
    """What was asked for on the command line."""

    model: str
    data: str
    output: Path
    color: str | None = None
    image: str | None = None
    curve: bool = False
    title: str | None = None
    level: float = 0.95
    id_column: str | None = None
    kind: str | None = None
    encoding: str = "utf-8"
    seed: int = 0

    def command(self) -> str:
        """Return the command that makes the same page."""
        words = ["dualpca", "report", self.model, self.data, "-o", str(self.output)]
        for name, plain in self._field_defaults.items():
            value = getattr(self, name)
            if value != plain:
                option = {"id_column": "--id", "kind": "--format"}.get(name, f"--{name}")
                words += [option] if value is True else [option, str(value)]
        return shlex.join(words)


def written(asked: Asked) -> dict[str, Any]:
    """Make the page and write it; return what is to be told."""
    from dualpca.app import report as pages
    from dualpca.app.report.sections import SECTIONS

    pages.check_target(asked.output)  # before any work: an hour's report should not end there
    subject = _subject(asked)
    made = {"command": asked.command(), "data": asked.data, "model file": asked.model}
    name = Path(asked.data).name if asked.data != "-" else "The table"
    title = asked.title or f"{name}, seen by {subject.kind}"
    with progress.task("section", len(SECTIONS)) as tick:
        page = pages.build(subject, tick, title, made)
    size = pages.write_text(asked.output, pages.render(page))
    found = {"output": str(asked.output), "bytes": size, "rows": subject.n, "columns": subject.d}
    sections = {"sections": [one.title for one in page.sections]}
    return found | sections | {"left_out": dict(page.left_out)}


def _subject(asked: Asked) -> Any:
    """Read the model and the table, and return what the report is about."""
    from dualpca.app.report.writing import subject_of

    fitted, metadata = load_model(asked.model)
    table = metadata.get("table", {})
    frame = tables.read(asked.data, asked.kind, asked.encoding)
    ids = asked.id_column or _present(frame, table.get("identifier"))
    for option, name in (("--id", ids), ("--color", asked.color)):
        if name is not None and name not in frame.columns:
            raise TableError(f"{option} {name}: no such column; there are {frame.columns[:10]}.")
    rows, units = _rows(fitted, frame, metadata, ids)
    shape = shape_of(asked.image, table)
    return subject_of(
        fitted,
        rows,
        color=asked.color,
        ids=ids,
        image=shape,
        curve=asked.curve,
        level=asked.level,
        seed=asked.seed,
        units=units,
    )


def _present(frame: pl.DataFrame, name: Any) -> str | None:
    return name if isinstance(name, str) and name in frame.columns else None


def shape_of(image: str | None, table: dict[str, Any]) -> tuple[int, int] | None:
    """Return height and width of images: as given, or as the model file says."""
    if image is None:
        known = table.get("image_shape")
        return (int(known[0]), int(known[1])) if known and len(known) == 2 else None
    match = re.fullmatch(r"(\d+)\s*[x×,]\s*(\d+)", image.strip().lower())
    if match is None:
        raise TableError(f"--image {image}: expected height and width, such as 8x8.")
    return int(match[1]), int(match[2])


def _rows(
    model: Any, frame: pl.DataFrame, metadata: dict[str, Any], ids: str | None
) -> tuple[pl.DataFrame, str]:
    """Return the table with the model's columns as the model takes them, and their units."""
    own = "in the table's own units"
    if names_of(model) is None:
        return frame, own
    prep = preparation_of(model, metadata, frame.columns, ids)
    found = prep.rows(frame)
    rest = [frame[name] for name in frame.columns if name not in found.columns]
    units = own if prep.means is None else "in standard deviations from their averages"
    return found.with_columns(rest), units


COMMANDS = {"report": report}
