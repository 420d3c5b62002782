"""Operators of subgraphs, functions in their attributes as sessions of their own, and of values that are no tensors.

A program is cut there. Python's lists are sequences, and None is a value that is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from blocklayout import ir
from blocklayout.resource_limits import check_affordable


class If(ir.Facts, frozen=True):
    """One of two subgraphs."""

    op_types = ("If",)

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        def run(condition: np.ndarray) -> tuple[Any, ...]:
            if condition.size != 1:
                raise node.wrong(f"the condition has extents {list(condition.shape)}", "it must be one bool")
            return tuple(node.attrs["then_branch" if condition.item() else "else_branch"]())

        return run


class Loop(ir.Facts, frozen=True):
    """A subgraph again and again, on its results of the last time."""

    op_types = ("Loop",)

    @classmethod
    def carried(cls, node: ir.NodeInfo, inputs: Sequence[str], outputs: Sequence[str]) -> Iterable[tuple[str, str]]:
        del node
        return zip(inputs[2:], outputs[1:], strict=False)  # behind the iteration's number, and the condition

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        body = node.attrs["body"]

        def run(most: np.ndarray | None = None, condition: np.ndarray | None = None, *state: Any) -> tuple[Any, ...]:
            is_obeyed = condition is not None or most is None  # as ONNX has it, only where it is asked for
            goes_on, n_held = condition is None or bool(condition.item()), 0
            empty = body.results[1 + len(state) :]
            rows: list[list[Any]] = [[] for _ in empty]
            for index in count() if most is None else range(int(most.item())):
                if not goes_on:
                    break
                again, *results = body(np.array(index), np.array(goes_on), *state)
                goes_on = not is_obeyed or bool(again.item())
                state = tuple(results[: len(state)])
                for row, result in zip(rows, results[len(state) :], strict=True):
                    row.append(result)
                    n_held += result.nbytes
                check_affordable((2 * n_held,), 1, f"node {node.name!r}: the rows of its results")
            return *state, *(np.stack(row) if row else none for row, none in zip(rows, empty, strict=True))

        return run


class Scan(ir.Facts, frozen=True):
    """A subgraph for each slice along a dimension, with its results of the last time."""

    op_types = ("Scan",)

    @classmethod
    def carried(cls, node: ir.NodeInfo, inputs: Sequence[str], outputs: Sequence[str]) -> Iterable[tuple[str, str]]:
        n_state = len(inputs) - node.int_attr("num_scan_inputs", 1)
        is_batched = node.opset < _FIRST_WITHOUT_BATCH
        return () if is_batched else zip(inputs[:n_state], outputs, strict=False)

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        body, n_scanned = node.attrs["body"], node.int_attr("num_scan_inputs", 1)

        def numbers(name: str, n: int) -> tuple[int, ...]:
            return node.ints_attr(name, n, 0, -(2**31))

        def run(*given: Any) -> tuple[Any, ...]:
            state, sources = given[: len(given) - n_scanned], given[len(given) - n_scanned :]
            empty = body.results[len(state) :]
            axes, ways = numbers("scan_input_axes", n_scanned), numbers("scan_input_directions", n_scanned)
            turned = (np.moveaxis(x, axis, 0) for x, axis in zip(sources, axes, strict=True))
            slices = [x[::-1] if way else x for x, way in zip(turned, ways, strict=True)]
            if len({len(x) for x in slices}) > 1:
                raise node.wrong(f"it scans {[len(x) for x in slices]} slices", "they must be equally many")
            rows: list[list[Any]] = [[] for _ in empty]
            for parts in zip(*slices, strict=True):
                results = body(*state, *parts)
                state = tuple(results[: len(state)])
                for row, result in zip(rows, results[len(state) :], strict=True):
                    row.append(result)
            n_rows = len(rows)
            ends = zip(numbers("scan_output_axes", n_rows), numbers("scan_output_directions", n_rows), strict=True)
            return *state, *(
                np.stack(row[::-1] if way else row, axis) if row else none
                for row, none, (axis, way) in zip(rows, empty, ends, strict=True)
            )

        return run if node.opset >= _FIRST_WITHOUT_BATCH else _batched(node, run)


_FIRST_WITHOUT_BATCH = 9


def _batched(node: ir.NodeInfo, run: ir.ArraysFunction) -> ir.ArraysFunction:
    """As operator set 8 has it: dimension 0 is a batch, dimension 1 is scanned."""

    def run_each(lengths: np.ndarray | None, *given: Any) -> tuple[Any, ...]:
        if lengths is not None or any(node.attrs.get("directions", ())):
            raise node.wrong("it has sequence_lens or directions", "upgrade the model to operator set 9")
        results = [run(*map(np.asarray, each)) for each in zip(*given, strict=True)]
        return tuple(map(np.stack, zip(*results, strict=True)))

    return run_each


class SequenceMap(ir.Facts, frozen=True):
    """A subgraph for each element of a sequence."""

    op_types = ("SequenceMap",)

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        body = node.attrs["body"]

        def run(sequence: Any, *others: Any) -> tuple[Any, ...]:
            found: list[list[Any]] = [[] for _ in body.results]
            for index, each in enumerate(sequence):
                own = (other[index] if isinstance(other, list) else other for other in others)
                for row, result in zip(found, body(each, *own), strict=True):
                    row.append(result)
            return tuple(found)

        return run


# --- lists of tensors, and values that may be absent

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
