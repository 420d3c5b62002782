"""Nodes that no primitive computes, by their operators' functions in numpy: packed into steps of a plan, and run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from blocklayout import ir
from blocklayout.errors import BlockLayoutError, InputError, PlanError
from blocklayout.layout import MemoryDesc
from blocklayout.ops import facts_of


def operator_of(node: ir.NodeInfo) -> ir.Plain | None:
    """The operator that computes a node by its function in numpy; ``None`` where it has none."""
    facts = facts_of(node.op_type)
    if facts.in_numpy(node) is None:
        return None
    places = {value.name: arg for arg, value in (ir.arguments(node.inputs) | ir.results(node.outputs)).items()}

    def written(values: tuple[ir.Value | None, ...]) -> list[Any]:
        return [None if value is None else (places[value.name], value.shape) for value in values]

    said = {
        "name": node.name,
        "opset": node.opset,
        "attrs": dict(node.attrs),
        "inputs": written(node.inputs),
        "outputs": written(node.outputs),
    }
    try:
        text = json.dumps(said, sort_keys=True)
    except TypeError:  # an attribute is an array
        return None
    last = {places[node.required(index, f"input {index}").name] for index in facts.channels_last}
    descs = tuple(
        (arg, MemoryDesc(desc.dims, desc.dtype, "channels_last") if arg in last else desc)
        for arg, desc in ir.row_major_descs(node.inputs, node.outputs)
    )
    spec = ir.HostSpec("numpy", descs, node.op_type, text)
    return ir.Elementwise(spec) if _is_elementwise(facts, node) else ir.Plain(spec)


def _is_elementwise(facts: type[ir.Facts], node: ir.NodeInfo) -> bool:
    if facts.broadcasts_from is not None:
        return facts.broadcasts_from == 0
    return facts.is_elementwise and all(prod(node.shape(index)) == 1 for index in range(1, len(node.inputs)))


def compute_of(spec: ir.HostSpec) -> ir.Compute:
    """The function that runs a step.

    Raises:
        PlanError: It holds no node that is computed so here.
    """
    try:
        said = json.loads(spec.node)
        descs = dict(spec.descs)
        sources, outs = ([None if each is None else (each[0], tuple(each[1])) for each in said[key]] for key in _SIDES)
        inputs, outputs = (tuple(each and _value(*each, descs) for each in side) for side in (sources, outs))
        attrs = {key: tuple(each) if isinstance(each, list) else each for key, each in said["attrs"].items()}
        node = ir.NodeInfo(said["name"], spec.label, attrs, inputs, outputs, said["opset"])
        facts = facts_of(spec.label)
        function = facts.in_numpy(node)
    except _OF_DAMAGE as error:
        raise PlanError(f"the plan's step of {spec.label} is none: {error}") from error
    if function is None:
        raise PlanError(f"the plan has numpy compute {spec.label} of {spec.descs[0][1]}; nothing here does")
    row = descs["dst"].dims if descs["dst"].inner_blks else None
    scalar = None if _is_elementwise(facts, node) else ()  # one element in a row serves a function of elements

    def seen_as(shape: tuple[int, ...]) -> tuple[int, ...] | None:
        if row not in (None, shape):
            return ()  # a number beside a row
        return None if shape else scalar

    read, written = ([each and (each[0], seen_as(each[1])) for each in side] for side in (sources, outs))

    def compute(arrays: Mapping[str, np.ndarray]) -> None:
        given = [None if each is None else _seen(arrays, *each) for each in read]
        out = tuple(None if each is None else _seen(arrays, *each) for each in written)
        try:
            with np.errstate(all="ignore"):
                function(*given, out=out if len(out) > 1 else out[0])
        except BlockLayoutError:
            raise
        except Exception as error:  # indices out of range, and the like
            shapes = ", ".join("-" if each is None else f"{each.dtype} {list(each.shape)}" for each in given)
            raise InputError(f"node {node.name!r}: {spec.label} of {shapes}: {error}") from error

    return compute


_SIDES = ("inputs", "outputs")
_OF_DAMAGE = (BlockLayoutError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of a step that somebody changed: other types of JSON, fewer inputs, attributes out of range."""


def _value(arg: str, shape: tuple[int, ...], descs: Mapping[str, Any]) -> ir.Value:
    desc = descs[arg]
    if (shape or (1,)) != desc.dims:
        raise ValueError(f"{arg} is {desc}, not {list(shape)}")
    return ir.Value(arg, shape, desc.dtype)


def _seen(arrays: Mapping[str, np.ndarray], arg: str, shape: tuple[int, ...] | None) -> np.ndarray:
    return arrays[arg] if shape is None else arrays[arg].reshape(shape)
