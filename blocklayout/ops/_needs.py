"""Requirements of primitives that several operators have: ``None`` where a node meets one, else a refusal."""

from __future__ import annotations

from blocklayout.ir import Need, NodeInfo, Refusal

_FLOAT = 1
"""ONNX's number of f32."""


def is_source(lowest: int, highest: int) -> Need:
    """The first input is of floats, and its rank within bounds."""

    def need(node: NodeInfo) -> Refusal | None:
        src = node.input(0)
        return None if src is None else node.of_other_dtype(src) or node.of_other_rank(src, lowest, highest)

    return need


def are_floats(node: NodeInfo) -> Refusal | None:
    """All inputs are of floats."""
    refusals = (node.of_other_dtype(value) for value in node.inputs if value is not None)
    return next(filter(None, refusals), None)


def is_known(index: int, name: str) -> Need:
    """An input, where it is there, is a constant."""

    def need(node: NodeInfo) -> Refusal | None:
        value = node.input(index)
        if value is None or value.data is not None:
            return None
        return node.refused(f"{name} ({value.name}) is computed at run time", "it must be a constant")

    return need


def is_filled(remedy: str) -> Need:
    """The first input has elements."""

    def need(node: NodeInfo) -> Refusal | None:
        src = node.input(0)
        if src is None or 0 not in src.shape:
            return None
        return node.refused(f"{src.name} has extents {list(src.shape)}", remedy)

    return need


def has_one_output(meaning: str) -> Need:
    """Nothing but the first output is read; ``meaning`` names the content of the others."""

    def need(node: NodeInfo) -> Refusal | None:
        extra = [value.name for value in node.outputs[1:] if value is not None]
        if not extra:
            return None
        return node.refused(f"output {', '.join(extra)} ({meaning}) is read", "only the first output is computed")

    return need


def has_f32_statistics(node: NodeInfo) -> Refusal | None:
    """A normalisation's mean and variance are computed in f32."""
    if node.int_attr("stash_type", _FLOAT) == _FLOAT:
        return None
    return node.refused(f"stash_type is {node.attrs['stash_type']}", f"statistics are f32: {_FLOAT}")
