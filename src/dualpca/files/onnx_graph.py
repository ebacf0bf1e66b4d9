"""ONNX graphs, node by node. The `onnx` package is imported when a graph is begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualpca.errors import expected

Host = np.ndarray[Any, Any]

TYPES = {"float64": "DOUBLE", "float32": "FLOAT"}
OPSET, IR = 17, 8
"""Old enough for runtimes of 2022."""

COMPACT = 1e3
"""Largest ‖b‖² for a matrix product, in units of 1/γ: distances then err by some 1e-12."""

LARGEST = 2**31 - 2**20
"""Bytes of a protobuf message, with some to spare."""


class Graph:
    """A graph from X to Y that grows by nodes; inside all is float64.

    Parameters
    ----------
    dtype : {'float64', 'float32'}
        Of X and Y.
    """

    def __init__(self, dtype: str) -> None:
        self.onnx = load_onnx()
        self.outer = getattr(self.onnx.TensorProto, TYPES[dtype])
        self.inner = self.onnx.TensorProto.DOUBLE
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.size = 0

    def rows(self, d: int) -> str:
        """Begin with the input, and return its name in float64."""
        value = self.onnx.helper.make_tensor_value_info
        self.input = value("X", self.outer, ["rows", d])
        return self.add("Cast", "X", to=self.inner) if self.outer != self.inner else "X"

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def constant(self, values: Host) -> str:
        """Keep floats in the graph and return their name."""
        return self._keep(np.ascontiguousarray(values, dtype=np.float64))

    def integers(self, values: Sequence[int]) -> str:
        """Keep whole numbers in the graph and return their name."""
        return self._keep(np.asarray(values, dtype=np.int64))

    def _keep(self, values: Host) -> str:
        self.size += values.nbytes
        if self.size > LARGEST:
            remedy = "Fit with landmarks (eigen_solver='nystrom') or fewer rows."
            raise ValueError(expected("the graph", f"below {LARGEST} bytes", self.size, remedy))
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(values, name))
        return name

    def squared_distances(self, rows: str, points: Host, widths: Host) -> str:
        """Add Σ_c ((x_c − y_c) w_c)² of rows and points, in the way that keeps its digits."""
        origin = points.mean(axis=0)
        B = (points - origin) * widths
        if float(np.max(np.sum(B * B, axis=1))) > COMPACT:
            return by_columns(self, rows, points, widths)
        centred = self.add("Sub", rows, self.constant(origin))
        return by_product(self, self.add("Mul", centred, self.constant(widths)), B)

    def finish(self, found: str, q: int, props: Mapping[str, str]) -> bytes:
        """End with a value as output, check the whole, and return it as bytes."""
        helper = self.onnx.helper
        self.nodes.append(helper.make_node("Cast", [found], ["Y"], to=self.outer))
        output = helper.make_tensor_value_info("Y", self.outer, ["rows", q])
        graph = helper.make_graph(self.nodes, "transform", [self.input], [output], self.constants)
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(
            graph, producer_name="dualpca", opset_imports=[opset], ir_version=IR
        )
        helper.set_model_props(model, dict(sorted(props.items())))
        self.onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString(deterministic=True))


def load_onnx() -> Any:
    """Return the package, or say which extra brings it."""
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise ImportError(
            "to_onnx needs the onnx package, not installed here. Install the extra: "
            "pip install 'dualpca[onnx]'"
        ) from error
    return onnx


def by_product(graph: Graph, rows: str, B: Host) -> str:
    """Add ‖a‖² + ‖b‖² − 2aᵀb, never below 0, of rows (m, d) and points (n, d): one product."""
    norms = graph.add("ReduceSumSquare", rows, axes=[1], keepdims=1)
    cross = graph.add("MatMul", rows, graph.constant(-2 * B.T))
    half = graph.add("Add", cross, graph.constant(np.sum(B * B, axis=1)))
    return graph.add("Max", graph.add("Add", half, norms), graph.constant(np.zeros(())))


def by_columns(graph: Graph, rows: str, points: Host, widths: Host) -> str:
    """Add Σ_c ((x_c − y_c) w_c)², a column at a time: exact wherever the points are."""
    count = graph.add("Shape", rows, start=0, end=1)
    shape = graph.add("Concat", count, graph.integers([len(points)]), axis=0)
    zeros = graph.add("Expand", graph.constant(np.zeros((1, 1))), shape)
    inputs = (zeros, rows, graph.constant(points), graph.constant(widths))
    attributes = {"body": _column(graph), "num_scan_inputs": 3, "scan_input_axes": [1, 1, 0]}
    return graph.add("Scan", *inputs, **attributes)


def _column(graph: Graph) -> Any:
    """Return the graph of one column's step: D + ((x − y) w)²."""
    helper, kind = graph.onnx.helper, graph.inner
    node, value = helper.make_node, helper.make_tensor_value_info
    axes = [graph.onnx.numpy_helper.from_array(np.array([i]), f"axis{i}") for i in (0, 1)]
    nodes = [
        node("Unsqueeze", ["x", "axis1"], ["column"]),
        node("Unsqueeze", ["y", "axis0"], ["line"]),
        node("Sub", ["column", "line"], ["gap"]),
        node("Mul", ["gap", "w"], ["scaled"]),
        node("Mul", ["scaled", "scaled"], ["square"]),
        node("Add", ["D", "square"], ["sum"]),
    ]
    given = [value("D", kind, None), *(value(name, kind, None) for name in ("x", "y", "w"))]
    return helper.make_graph(nodes, "column", given, [value("sum", kind, None)], axes)
