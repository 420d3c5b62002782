"""Dynamo's graphs as graphs of ATen overloads, with their writes: AOTAutograd, which takes these out, takes longer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from blocklayout.torch.graph import further, is_lowered, shares_memory

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


def as_aten(graph_module: GraphModule) -> GraphModule | None:
    """A graph of Dynamo's in ATen overloads that are lowered; ``None`` where AOTAutograd has to trace it.

    That is for overloads that are not known here, for writes that others see, and where outputs share memory with
    inputs or with each other. ``meta["val"]`` of the nodes has extents, types and strides.
    """
    aten = _traced(graph_module)
    if aten is None:
        return None
    owners: dict[Any, Any] = {}  # the nodes in whose memory results are; None for that of inputs
    for node in aten.graph.nodes:
        if node.op == "call_function":
            if not is_lowered(node):
                return None
            owners[node] = owners.get(node.args[0]) if shares_memory(node.target) else node
    outputs, given = aten.graph.output_node().args[0], graph_module.graph.output_node().args[0]
    of_outputs = [owners.get(each) for each in outputs]
    if None in of_outputs or len({*of_outputs}) < len(of_outputs):
        return None
    if any(
        _kind(one.meta["val"]) != _kind(other.meta["example_value"]) for one, other in zip(outputs, given, strict=True)
    ):
        return None  # by an autocast around
    for outer, inner in zip(*(each.graph.find_nodes(op="placeholder") for each in (graph_module, aten)), strict=True):
        inner._rename(path(outer))  # noqa: SLF001 - FX has no other way
    return aten


def _traced(graph_module: GraphModule) -> GraphModule | None:
    """A graph's overloads as its calls come to them; ``None`` where a node is no call that returns tensors."""
    import torch
    from torch._subclasses import FakeTensor
    from torch.fx import Interpreter
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta

    for node in graph_module.graph.nodes:
        is_known = node.op in ("placeholder", "call_function", "call_method") and "example_value" in node.meta
        if not (is_known or node.op == "output" or node.target is torch._C._log_api_usage_once):  # noqa: SLF001 - torchvision's
            return None
    inputs = [node.meta["example_value"] for node in graph_module.graph.find_nodes(op="placeholder")]
    if not inputs or not all(isinstance(each, FakeTensor) for each in inputs):
        return None
    try:
        with inputs[0].fake_mode, preserve_node_meta():
            given = [each.detach() for each in inputs]
            return make_fx(Interpreter(graph_module).run, further(), pre_dispatch=True)(*given)
    except Exception:  # noqa: BLE001 - AOTAutograd says what is wrong
        return None


def _kind(tensor: Any) -> Any:
    return tensor.dtype, tensor.shape, tensor.stride()


def parameters(graph_module: GraphModule, n_before: int = 0) -> dict[int, str]:
    """Paths of a Dynamo graph's inputs that are parameters and buffers, by their places behind ``n_before`` others."""
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    return {
        place: path(node)
        for place, node in enumerate(placeholders, n_before)
        if "_dynamo_static_input_type" in node.meta.get("tensor_dict", {})
    }


def path(node: Node) -> str:
    """The path of a parameter or buffer in its module, or the name of another input."""
    source = getattr(node, "_dynamo_source", None)
    if source is None:
        return str(node.name)
    words = re.findall(r"\w+", source.name)[1:]  # behind L, for locals, or G
    inner = [word for word in words if word not in ("_modules", "_parameters", "_buffers")]
    return ".".join(inner[1:] if inner != words else inner)  # without the variable that the module is in
