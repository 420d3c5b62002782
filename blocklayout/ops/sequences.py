"""Lists of tensors, and values that may be absent: a program is cut there, and Python's lists and None are they."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from blocklayout import ir

_Made = Callable[[ir.NodeInfo], ir.ArraysFunction]


def _place(node: ir.NodeInfo, position: np.ndarray | None, n: int, n_places: int) -> int:
    """A place in a sequence of ``n`` elements; that behind the last one without a position."""
    place = n if position is None else int(position.item())
    if not -n <= place < n_places:
        raise node.wrong(f"the position is {place}", f"a sequence of {n} has {-n} to {n_places - 1}")
    return place + n if place < 0 else place


def _insert(node: ir.NodeInfo, sequence: Sequence[Any], tensor: Any, position: ir.Given = None) -> tuple[list[Any]]:
    place = _place(node, position, len(sequence), len(sequence) + 1)
    return ([*sequence[:place], tensor, *sequence[place:]],)


def _erase(node: ir.NodeInfo, sequence: Sequence[Any], position: np.ndarray | None = None) -> tuple[list[Any]]:
    n = len(sequence)
    place = n - 1 if position is None and n else _place(node, position, n, n)
    return ([*sequence[:place], *sequence[place + 1 :]],)


def _at(node: ir.NodeInfo, sequence: Sequence[Any], position: np.ndarray) -> Any:
    return sequence[_place(node, position, len(sequence), len(sequence))]


def _split(node: ir.NodeInfo) -> ir.ArraysFunction:
    keeps = node.int_attr("keepdims", 1) != 0

    def split(x: np.ndarray, sizes: np.ndarray | None = None) -> tuple[list[Any]]:
        axis = node.axis_attr("axis", x.ndim, 0)
        extent = x.shape[axis]
        if sizes is None:
            parts = [np.take(x, [index], axis) for index in range(extent)]
            return (parts if keeps else [part.squeeze(axis) for part in parts],)
        if sizes.ndim:
            bounds = np.cumsum(sizes)
            if sizes.size and (sizes.min() < 0 or bounds[-1] != extent):
                raise node.wrong(f"split is {sizes.tolist()}", f"its sum must be {extent}, the extent of axis {axis}")
            return (np.split(x, bounds[:-1], axis),)
        size = int(sizes.item())
        if size <= 0:
            raise node.wrong(f"split is {size}", "it must be positive")
        return (np.split(x, range(size, extent, size), axis),)

    return split


def _concat(node: ir.NodeInfo) -> ir.ArraysFunction:
    join = np.stack if node.flag_attr("new_axis") else np.concatenate

    def concat(sequence: Sequence[np.ndarray]) -> np.ndarray:
        try:
            return join(list(sequence), axis=node.int_attr("axis", 0))
        except ValueError as error:
            shapes = [list(each.shape) for each in sequence]
            raise node.wrong(f"its sequence holds tensors of {shapes}: {error}", "they must fit together") from None

    return concat


def _element(node: ir.NodeInfo, held: Any) -> tuple[Any]:
    if held is None:
        raise node.wrong("its input is empty", "ask OptionalHasElement before")
    return (held,)


_FUNCTIONS: Mapping[str, _Made] = {
    "ConcatFromSequence": _concat,
    "Optional": lambda _: lambda held=None: (held,),
    "OptionalGetElement": lambda node: partial(_element, node),
    "OptionalHasElement": lambda _: lambda held=None: np.array(held is not None),
    "SequenceAt": lambda node: partial(_at, node),
    "SequenceConstruct": lambda _: lambda *tensors: ([*tensors],),
    "SequenceEmpty": lambda _: lambda: ([],),
    "SequenceErase": lambda node: partial(_erase, node),
    "SequenceInsert": lambda node: partial(_insert, node),
    "SequenceLength": lambda _: lambda sequence: np.array(len(sequence)),
    "SplitToSequence": _split,
}


class OfSequences(ir.Facts, frozen=True):
    """Reads or writes a list of tensors, or a value that may be absent."""

    op_types = tuple(_FUNCTIONS)

    on_arrays = staticmethod(lambda node: _FUNCTIONS[node.op_type](node))
