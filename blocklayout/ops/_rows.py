"""Whether operators compute each row, an index along dimension 0, apart from the others: by what they name."""

from __future__ import annotations

from blocklayout.ir import NodeInfo


def of_source(node: NodeInfo, rows: frozenset[int]) -> bool:
    """An operator whose only result follows, row by row, from the first source, and from all of the other inputs."""
    return rows == {0} and not any(node.outputs[1:])


def repeated(node: NodeInfo, rows: frozenset[int]) -> bool:
    """An operator that repeats elements along dimensions."""
    before, after = node.shape(0), node.result.shape
    return rows == {0} and len(before) == len(after) and before[:1] == after[:1]


def beside_axis(node: NodeInfo, rows: frozenset[int], default: int = -1) -> bool:
    """An operator that works along the dimension of its attribute ``axis``, or along all from that on."""
    return rows == {0} and int(node.attrs.get("axis", default)) % len(node.shape(0)) != 0
