"""Networks as ONNX graphs: user vectors and item numbers in, scores out; any ONNX runtime computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fedrecgel.errors import ConfigError
from fedrecgel.export.forms import Array, Form

if TYPE_CHECKING:
    from onnx import NodeProto

OPSET, IR_VERSION = 17, 8
"""Of ONNX: old enough for the runtimes of phones."""


class Graph:
    """Nodes in order; each is named after what it puts out."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.tables: dict[str, Array] = {}

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node; returns the name of its output."""
        from onnx import helper

        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def table(self, name: str, values: Array) -> str:
        """A constant."""
        self.tables[name] = values
        return name


def _dot(graph: Graph, tables: Mapping[str, Array]) -> str:
    rows = graph.add("Gather", graph.table("items_table", tables["items"]), "items")
    return graph.add("MatMul", "user", graph.add("Transpose", rows, perm=[1, 0]))


def _mf(graph: Graph, tables: Mapping[str, Array]) -> str:
    biased = graph.table("item_bias", tables["item_bias"][:, 0] + tables["bias"][0, 0])
    p, b_u = _cut(graph, len(tables["start"]) - 1)
    rows = graph.add("Gather", graph.table("item", tables["item"]), "items")
    product = graph.add("MatMul", p, graph.add("Transpose", rows, perm=[1, 0]))
    return graph.add("Add", graph.add("Add", product, b_u), graph.add("Gather", biased, "items"))


def _neumf(graph: Graph, tables: Mapping[str, Array]) -> str:
    u1, u2 = _cut(graph, tables["item_gmf"].shape[1])
    weighted = graph.add("Mul", u1, graph.table("out_gmf", tables["out_gmf"].T))
    gmf_rows = graph.add("Gather", graph.table("item_gmf", tables["item_gmf"]), "items")
    gmf = graph.add("MatMul", weighted, graph.add("Transpose", gmf_rows, perm=[1, 0]))
    half_rows = graph.add("Gather", graph.table("item_half", tables["item_mlp"] @ tables["w1_item"].T), "items")
    user_half = _affine(graph, u2, tables, "w1_user", "b1")
    axis = graph.table("axis", _whole([1]))
    hidden = graph.add("Relu", graph.add("Add", half_rows, graph.add("Unsqueeze", user_half, axis)))
    for layer in ("2", "3"):
        hidden = graph.add("Relu", _affine(graph, hidden, tables, f"w{layer}", f"b{layer}"))
    tower = graph.add("MatMul", hidden, graph.table("out_mlp", tables["out_mlp"][:, 0]))
    return graph.add("Add", graph.add("Add", gmf, tower), graph.table("out_bias", tables["out_bias"][0]))


def _affine(graph: Graph, x: str, tables: Mapping[str, Array], weight: str, bias: str) -> str:
    product = graph.add("MatMul", x, graph.table(weight, tables[weight].T.copy()))
    return graph.add("Add", product, graph.table(bias, tables[bias][0]))


def _cut(graph: Graph, at: int) -> tuple[str, str]:
    """A user vector's first numbers, and the others."""
    axis, end = graph.table("second", _whole([1])), graph.table("end", _whole([1 << 30]))
    middle, begin = graph.table("middle", _whole([at])), graph.table("begin", _whole([0]))
    return graph.add("Slice", "user", begin, middle, axis), graph.add("Slice", "user", middle, end, axis)


def _whole(values: list[int]) -> Array:
    import numpy as np

    return np.array(values, dtype=np.int64)


GRAPHS: dict[str, Callable[[Graph, Mapping[str, Array]], str]] = {"dot": _dot, "mf": _mf, "neumf": _neumf}
"""Forms with a user vector; all others score from a history, which no network does."""


def has_graph(form: Form) -> bool:
    """Whether a form can be written and the extra is installed."""
    return form.kind in GRAPHS and find_spec("onnx") is not None


def onnx_bytes(form: Form, method: str) -> bytes:
    """The file: inputs `user` [C, d] and `items` [M], output `scores` [C, M].

    Raises:
        ConfigError: the form is no network, or the extra is missing.
    """
    if form.kind not in GRAPHS:
        raise ConfigError(
            f"Method '{method}' is no network: it scores from a user's history in closed form. Use --format bundle, "
            f"whose runtime does that, or --format web."
        )
    if find_spec("onnx") is None:
        raise ConfigError("--format onnx needs the extra `export`. Install it: pip install 'fedrecgel[export]'")
    from onnx import TensorProto, checker, helper, numpy_helper

    graph = Graph()
    scores = GRAPHS[form.kind](graph, form.tables)
    named = helper.make_node("Identity", [scores], ["scores"])
    user = helper.make_tensor_value_info("user", TensorProto.FLOAT, ["clients", len(form.tables["start"])])
    items = helper.make_tensor_value_info("items", TensorProto.INT64, ["n_items"])
    out = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["clients", "n_items"])
    constants = [numpy_helper.from_array(value.copy(), name) for name, value in graph.tables.items()]
    whole = helper.make_graph([*graph.nodes, named], method, [user, items], [out], constants)
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(whole, opset_imports=opset, ir_version=IR_VERSION, producer_name="fedrecgel")
    checker.check_model(model)
    return bytes(model.SerializeToString())
