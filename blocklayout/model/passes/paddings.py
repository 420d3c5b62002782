"""What a Pad adds, in every version of the operator set."""

from __future__ import annotations

from msgspec import Struct

from blocklayout.model.graph import Graph, Node

_FIRST_OPSET_OF_INPUTS = 11


class Padding(Struct, frozen=True):
    """Elements of one value around a tensor.

    Attributes:
        begin: How many before each dimension; negative numbers take some away.
        end: How many behind each.
        value: What they are.
    """

    begin: tuple[int, ...]
    end: tuple[int, ...]
    value: float

    @property
    def is_spatial(self) -> bool:
        """Whether it adds to the dimensions behind batch and channels, and to no other."""
        return not any(self.begin[:2] + self.end[:2]) and min(self.begin + self.end, default=0) >= 0

    @property
    def pads(self) -> tuple[int, ...]:
        """As windows have them: beginnings of the spatial dimensions, then their ends."""
        return self.begin[2:] + self.end[2:]


def read_padding(graph: Graph, pad: Node) -> Padding | None:
    """What a Pad adds; ``None`` if it reflects or wraps, or is known at run time only."""
    if pad.attr("mode", "constant") != "constant":
        return None
    ndims = len(graph.shape(pad.inputs[0]))
    if graph.opset < _FIRST_OPSET_OF_INPUTS:
        pads = tuple(int(each) for each in pad.attr("pads", ()))
        return Padding(pads[:ndims], pads[ndims:], float(pad.attr("value", 0.0)))
    given = [graph.constant(name) for name in pad.inputs[1:4]]
    if any(array is None for name, array in zip(pad.inputs[1:4], given, strict=True) if name):
        return None
    pads_array, value, axes = (*given, None, None, None)[:3]
    if pads_array is None:
        return None
    numbers = [int(each) for each in pads_array.reshape(-1)]
    chosen = range(ndims) if axes is None else [int(axis) % ndims for axis in axes.reshape(-1)]
    begin, end = [0] * ndims, [0] * ndims
    for index, axis in enumerate(chosen):
        begin[axis], end[axis] = numbers[index], numbers[index + len(numbers) // 2]
    return Padding(tuple(begin), tuple(end), 0.0 if value is None or not value.size else float(value.reshape(-1)[0]))
