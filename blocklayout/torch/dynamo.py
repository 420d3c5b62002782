"""Dynamo's graphs as graphs of ATen overloads, node by node: AOTAutograd, which traces them anew, takes longer."""

from __future__ import annotations

import operator
import re
from inspect import signature
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from blocklayout.torch.graph import is_lowered, shares_memory

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

_OPERATORS = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "matmul": "matmul", "neg": "neg"}
_OPERATORS |= {f"i{name}": f"{_OPERATORS[name]}_" for name in ("add", "sub", "mul", "truediv")}

_FUNCTIONS = """
    relu relu6 hardtanh silu mish hardswish hardsigmoid elu leaky_relu softmax log_softmax dropout
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d max_pool1d max_pool2d max_pool3d
    batch_norm layer_norm group_norm
"""
_NAMESAKES = frozenset(_FUNCTIONS.split())
"""Functions of ``torch.nn.functional`` in Python that ATen has with the same names, also of arguments."""

_LISTS = ("view", "reshape", "permute", "expand", "repeat", "flip")
"""Methods that take integers one by one, where ATen takes a list."""


def as_aten(graph_module: GraphModule) -> GraphModule | None:
    """A graph of Dynamo's in ATen overloads that are lowered; ``None`` where AOTAutograd has to trace it.

    That is for functions that are not known here, for writes that others see, and where outputs share memory with
    inputs or with each other. ``meta["val"]`` of the nodes has extents, types and strides.
    """
    import torch
    from torch.fx import Graph, GraphModule, map_arg

    graph = Graph()
    made: dict[Node, Any] = {}
    owners: dict[Node, Any] = {}  # the nodes in whose memory results are; None for that of inputs
    for node in graph_module.graph.nodes:
        value = node.meta.get("example_value")
        if node.target is torch._C._log_api_usage_once:  # noqa: SLF001 - modules of torchvision call it
            continue
        if node.op == "output":
            of_outputs = [owners.get(made.get(each)) for each in node.args[0]]
            if None in of_outputs or len({*of_outputs}) < len(of_outputs):
                return None
            graph.output(tuple(made[each] for each in node.args[0]))
        elif node.op == "placeholder" and isinstance(value, torch.Tensor):
            made[node] = graph.placeholder(node.name)
            made[node]._rename(path(node))  # noqa: SLF001 - FX has no other way
            owners[made[node]] = None
        else:
            call = _aten_call(node)
            if call is None:
                return None
            target, args, kwargs = map_arg(call, made.__getitem__)
            made[node] = graph.create_node("call_function", target, args, kwargs, node.name)
            owners[made[node]] = owners[args[0]] if shares_memory(target) else made[node]
        if node in made:
            made[node].meta = {**node.meta, "val": value}
    is_known = all(each.op != "call_function" or is_lowered(each) for each in graph.nodes)
    return GraphModule(graph_module, graph) if is_known else None


def _aten_call(node: Node) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
    """The overload that a node calls, and its arguments as its schema has them; ``None`` where that is not known."""
    import torch
    from torch.fx import map_arg

    if node.op not in ("call_function", "call_method"):
        return None
    target: Any = node.target
    name, args, kwargs = getattr(target, "__name__", target), node.args, dict(node.kwargs)
    module = getattr(target, "__module__", None)
    if target is operator.getitem:
        is_part = isinstance(args[1], int) and isinstance(args[0].meta["example_value"], tuple | list)
        return (target, args, {}) if is_part else None
    if node.op == "call_method":
        if name in _LISTS and all(isinstance(each, int) for each in args[1:]):
            args = (args[0], args[1:])
    elif module == "_operator":
        name = _OPERATORS.get(name)
    elif name in _NAMESAKES and module == "torch.nn.functional":
        name, args, kwargs = _by_name(name, target, args, kwargs)
    elif not isinstance(target, BuiltinFunctionType):
        return None
    packet = getattr(torch.ops.aten, name or "", None)
    if packet is None:
        return None
    examples = map_arg((args, kwargs), lambda each: each.meta["example_value"])
    try:
        overload = torch._C._jit_resolve_packet(f"aten::{name}", *examples[0], **examples[1])  # noqa: SLF001 - no other
    except RuntimeError:
        return None
    return _in_order(getattr(packet, overload or "default"), args, kwargs)


def _by_name(name: str, target: Any, args: Any, kwargs: Any) -> tuple[str | None, tuple[Any, ...], dict[str, Any]]:
    """Name and arguments of ATen's namesake of a function, all but the first by their names."""
    import torch

    bound = signature(getattr(torch.nn.functional, f"_{name}", target)).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    first = given.pop("input")
    is_inplace, has_indices = given.pop("inplace", False), given.pop("return_indices", False)
    given.pop("_stacklevel", None)
    if given.get("stride", 0) is None:
        del given["stride"]
    if name == "dropout":
        given["train"] = given.pop("training")
    if name == "batch_norm":
        given["cudnn_enabled"] = False
    if isinstance(size := given.get("output_size"), int):
        given["output_size"] = [size] * int(name[-2])
    return None if has_indices else f"{name}_" if is_inplace else name, (first,), given


def _in_order(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """A call with its arguments in the order of the schema, but for those that it takes by name alone."""
    places = [each for each in overload._schema.arguments if not each.kwarg_only]  # noqa: SLF001 - PyTorch's own
    while any(each.name in kwargs for each in places[len(args) :]):
        place = places[len(args)]
        args = (*args, kwargs.pop(place.name, place.default_value))
    return overload, args, kwargs


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
