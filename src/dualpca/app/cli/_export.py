"""`dualpca export`: a model's transform for other programs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import dualpca
from dualpca.app.cli._options import Json, Model
from dualpca.app.cli._running import run
from dualpca.app.tables.dialects import TableError
from dualpca.data import target_of


def export(
    model: Model,
    output: Annotated[str, typer.Option("--output", "-o", help="ONNX file to write.")],
    dtype: Annotated[
        str, typer.Option("--dtype", help="Of rows and coordinates: float64 or float32.")
    ] = "float64",
    as_json: Json = False,
) -> None:
    """Write what `transform` does as an ONNX graph, standardisation included."""

    def work() -> dict[str, Any]:
        target_of(output)
        fitted, metadata = dualpca.load(model, return_metadata=True)
        try:
            data = dualpca.to_onnx(fitted, output, dtype=dtype, metadata=metadata)
        except ImportError as error:
            raise TableError(str(error)) from None
        size = {"bytes": len(data), "features": int(fitted.n_features_in_), "dtype": dtype}
        return {"output": output, "model": type(fitted).__name__, **size}

    def words(found: dict[str, Any]) -> str:
        rows = f"X ({found['dtype']}, {found['features']} columns)"
        return f"Wrote {found['output']}: {found['model']} from {rows} to Y."

    run("export", as_json, work, words)


COMMANDS = {"export": export}
