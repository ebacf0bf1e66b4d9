"""`transform` as an ONNX graph, for places without Python. The `onnx` package is imported lazily.

Linear models are (x − μ)P. Those on a kernel that declares its nodes (RBF, linear, sums, products
and multiples of these) are k(x, ·)A − t, where A and t hold centring and scale, so kernel values
need not be centred. Everything inside is float64, whatever comes in: float32 rows get the same
answers as from `transform`, which works in float64 too.

Squared distances are ‖a‖² + ‖b‖² − 2aᵀb around the middle of the training points where that keeps
12 digits after the point, one matrix product; elsewhere they are summed column by column, which
loses none. Either way m rows and n points take O(mn) memory, never O(mnd).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dualpca.data import Host
from dualpca.errors import expected, install
from dualpca.kernels import Kernel, onnx_values

TYPES = {"float64": "DOUBLE", "float32": "FLOAT"}
OPSET, IR = 17, 8
"""Old enough for runtimes of 2022."""

COMPACT = 1e3
"""Largest ‖b‖² for a matrix product, in units of 1/γ: distances then err by some 1e-12."""

MOST_BYTES = 2**31 - 2**20
"""Of a protobuf message, with some to spare."""


class Graph:
    """A graph from X to Y that grows by nodes; inside all is float64.

    Parameters
    ----------
    dtype : {'float64', 'float32'}
        Of X and Y.
    """

    def __init__(self, dtype: str) -> None:
        self.onnx = _load_onnx()
        self.outer = getattr(self.onnx.TensorProto, TYPES[dtype])
        self.inner = self.onnx.TensorProto.DOUBLE
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.size = 0

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def constant(self, values: Any) -> str:
        """Keep floats in the graph and return their name."""
        return self._keep(np.ascontiguousarray(values, dtype=np.float64))

    def integers(self, values: Sequence[int]) -> str:
        """Keep whole numbers in the graph and return their name."""
        return self._keep(np.asarray(values, dtype=np.int64))

    def _keep(self, values: Host) -> str:
        self.size += values.nbytes
        if self.size > MOST_BYTES:
            remedy = "Fit with landmarks (eigen_solver='nystrom') or fewer rows."
            raise ValueError(expected("the graph", f"below {MOST_BYTES} bytes", self.size, remedy))
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(values, name))
        return name

    def squared_distances(self, rows: str, points: Host, widths: Host) -> str:
        """Add Σ_c ((x_c − y_c) w_c)² of rows and points, in the way that keeps its digits."""
        origin = points.mean(axis=0)
        B = (points - origin) * widths
        squares = np.sum(B * B, axis=1)
        if float(np.max(squares)) > COMPACT:
            return self._by_columns(rows, points, widths)
        centred = self.add("Sub", rows, self.constant(origin))
        rows = self.add("Mul", centred, self.constant(widths))
        norms = self.add("ReduceSumSquare", rows, axes=[1], keepdims=1)
        cross = self.add("MatMul", rows, self.constant(-2 * B.T))
        half = self.add("Add", cross, self.constant(squares))
        return self.add("Max", self.add("Add", half, norms), self.constant(np.zeros(())))

    def _by_columns(self, rows: str, points: Host, widths: Host) -> str:
        """Add Σ_c ((x_c − y_c) w_c)², one column at a time: exact wherever the points are."""
        count = self.add("Shape", rows, start=0, end=1)
        shape = self.add("Concat", count, self.integers([len(points)]), axis=0)
        zeros = self.add("Expand", self.constant(np.zeros((1, 1))), shape)
        inputs = (zeros, rows, self.constant(points), self.constant(widths))
        attributes = {"body": self._column(), "num_scan_inputs": 3, "scan_input_axes": [1, 1, 0]}
        return self.add("Scan", *inputs, **attributes)

    def _column(self) -> Any:
        """Return the graph of one column's step: D + ((x − y) w)²."""
        helper, from_array = self.onnx.helper, self.onnx.numpy_helper.from_array
        steps = (
            ("Unsqueeze", "x", "axis1", "column"),
            ("Unsqueeze", "y", "axis0", "line"),
            ("Sub", "column", "line", "gap"),
            ("Mul", "gap", "w", "scaled"),
            ("Mul", "scaled", "scaled", "square"),
            ("Add", "D", "square", "sum"),
        )
        nodes = [helper.make_node(kind, [a, b], [out]) for kind, a, b, out in steps]
        given = [helper.make_tensor_value_info(name, self.inner, None) for name in "Dxyw"]
        total = [helper.make_tensor_value_info("sum", self.inner, None)]
        axes = [from_array(np.array([i]), f"axis{i}") for i in (0, 1)]
        return helper.make_graph(nodes, "column", given, total, axes)

    def finish(self, found: str, d: int, q: int, props: Mapping[str, str]) -> bytes:
        """End with a value as output, check the whole, and return it as bytes."""
        helper = self.onnx.helper
        self.nodes.append(helper.make_node("Cast", [found], ["Y"], to=self.outer))
        ends = {"X": d, "Y": q}
        x, y = (helper.make_tensor_value_info(k, self.outer, ["rows", n]) for k, n in ends.items())
        graph = helper.make_graph(self.nodes, "transform", [x], [y], self.constants)
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(
            graph, producer_name="dualpca", opset_imports=[opset], ir_version=IR
        )
        helper.set_model_props(model, dict(sorted(props.items())))
        self.onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString(deterministic=True))


def _load_onnx() -> Any:
    """Return the package; if it is missing, name the extra to install."""
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise ImportError(
            f"to_onnx needs the package onnx, which is not installed: {install('onnx')}."
        ) from error
    return onnx


class AffineProjection(NamedTuple):
    """(x − mean)P: the `transform` of a linear model."""

    mean: Host  # (d,)
    P: Host  # (d, q)


class KernelProjection(NamedTuple):
    """k(x, points)A − tilt: the `transform` of a model on a kernel."""

    points: Host  # (n, d)
    kernel: Kernel
    A: Host  # (n, q)
    tilt: Host  # (q,)


def transform_graph(
    d: int,
    dtype: str,
    scalings: Sequence[tuple[Any, Any]],
    projection: AffineProjection | KernelProjection,
    props: Mapping[str, str],
) -> bytes | None:
    """Return the ONNX file of a projection of standardised rows; None if the kernel has no nodes.

    Parameters
    ----------
    d : int
        Number of features.
    dtype : {'float64', 'float32'}
    scalings : sequence of (means, scales)
        Applied one after another, (x − mean) / scale; None for neither.
    projection : AffineProjection or KernelProjection
    props : mapping
        What the file says of itself.
    """
    graph, rows = Graph(dtype), "X"
    if graph.outer != graph.inner:
        rows = graph.add("Cast", "X", to=graph.inner)
    for means, scales in scalings:
        rows = rows if means is None else graph.add("Sub", rows, graph.constant(means))
        rows = rows if scales is None else graph.add("Div", rows, graph.constant(scales))
    if isinstance(projection, AffineProjection):
        centred = graph.add("Sub", rows, graph.constant(projection.mean))
        found = graph.add("MatMul", centred, graph.constant(projection.P))
        return graph.finish(found, d, projection.P.shape[1], props)
    points, kernel, A, tilt = projection
    values = onnx_values(kernel, graph, rows, points)
    if values is None:
        return None
    product = graph.add("MatMul", values, graph.constant(A))
    return graph.finish(graph.add("Sub", product, graph.constant(tilt)), d, A.shape[1], props)
