"""Elements at places that another tensor names, read, written and marked; and those beside a diagonal."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np

from blocklayout import ir

Index = tuple[np.ndarray, ...]
_REDUCTIONS: Mapping[str, np.ufunc | None] = {
    "none": None,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def take(x: np.ndarray, places: np.ndarray, out: np.ndarray, axis: int) -> None:
    """Slices at places along one dimension, counted from its end where negative."""
    check_places(places, x.shape[axis])
    # Of the modes that need no copy of the result, this one counts from the end.
    np.take(x, places, axis=axis, out=out, mode="wrap")


def check_places(places: np.ndarray, extent: int) -> None:
    """Raise IndexError where one is out of range."""
    if places.size and not (-extent <= places.min() and places.max() < extent):
        what = f"indices are {places.min()} to {places.max()}"
        raise IndexError(f"{what}; an extent of {extent} has {-extent} to {extent - 1}")


class GatherElements(ir.Facts, frozen=True):
    """Elements at a place of their own along one dimension."""

    op_types = ("GatherElements",)

    keeps_rows = staticmethod(lambda node, rows: rows == {0, 1} and node.axis_attr("axis", len(node.shape(0)), 0) != 0)

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        bl, (x, places), axis = call.bl, call.sources, call.node.int_attr("axis", 0)
        given: Any = bl.zeros(x.shape, x.dtype), places
        return (lambda grad: bl.op("ScatterElements", *given, grad, axis=axis, reduction="add"),)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        axis = node.axis_attr("axis", len(node.shape(0)), 0)

        def gather(x: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
            np.take(x.reshape(-1), _along(places, axis, x.shape), out=out, mode="clip")  # which needs no copy of it

        return gather


class GatherND(ir.Facts, frozen=True):
    """Slices at places of several coordinates."""

    op_types = ("GatherND",)

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        bl, (x, places) = call.bl, call.sources
        given: Any = bl.zeros(x.shape, x.dtype), places
        is_whole = not call.node.int_attr("batch_dims", 0)
        return (lambda grad: bl.op("ScatterND", *given, grad, reduction="add"),) if is_whole else super().backward(call)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        n_batch = node.int_attr("batch_dims", 0)

        def gather(x: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
            grid = np.ogrid[tuple(slice(n) for n in places.shape[:-1])]
            out[...] = x[(*grid[:n_batch], *_coordinates(places))]

        return gather


class Scatter(ir.Facts, frozen=True):
    """A tensor with other elements at some places; they are combined with those there, if that is asked for."""

    op_types = ("Scatter", "ScatterElements", "ScatterND")

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        function = _REDUCTIONS[node.string_attr("reduction", tuple(_REDUCTIONS))]
        axis = node.axis_attr("axis", len(node.shape(0)), 0) if node.op_type != "ScatterND" else None
        return partial(_scatter, axis=axis, function=function)


def _scatter(
    x: np.ndarray, places: np.ndarray, updates: np.ndarray, out: np.ndarray, axis: int | None, function: np.ufunc | None
) -> None:
    np.copyto(out, x)
    if axis is None and function is None:
        out[_coordinates(places)] = updates
        return
    # Along one dimension numpy takes a third of the time that it takes along several.
    numbers = (_in_slices(places, out.shape) if axis is None else _along(places, axis, out.shape)).reshape(-1)
    if function is None:
        out.reshape(-1)[numbers] = updates.reshape(-1)
    else:
        function.at(out.reshape(-1), numbers, updates.reshape(-1))  # which counts places that are named twice


def _along(places: np.ndarray, axis: int, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers, in row-major order, of the elements at ``places`` along one dimension, and at their own along others."""
    extent, step = shape[axis], prod(shape[axis + 1 :])
    check_places(places, extent)
    found: np.ndarray = np.multiply(places % extent if places.min(initial=0) < 0 else places, step, dtype=np.int64)
    grid = np.ogrid[tuple(slice(n if dim != axis else 1) for dim, n in enumerate(places.shape))]
    found += sum(own * prod(shape[dim + 1 :]) for dim, own in enumerate(grid))  # in place: memory costs more than sums
    return found


def _in_slices(places: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Those of the elements of slices at places of several coordinates."""
    index, outer = _coordinates(places), shape[: places.shape[-1]]
    for each, extent in zip(index, outer, strict=True):
        check_places(each, extent)
    n_inner = prod(shape[len(outer) :])
    return np.add.outer(np.ravel_multi_index(index, outer, mode="wrap") * n_inner, np.arange(n_inner))


def _coordinates(places: np.ndarray) -> Index:
    return tuple(np.moveaxis(places, -1, 0))


class TensorScatter(ir.Facts, frozen=True):
    """A cache with new elements along one dimension, from a place on that each of the batch has."""

    op_types = ("TensorScatter",)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        axis = node.axis_attr("axis", len(node.shape(0)), -2)
        is_circular = node.string_attr("mode", ("linear", "circular")) == "circular"

        def write(cache: np.ndarray, new: np.ndarray, begins: np.ndarray | None = None, *, out: np.ndarray) -> None:
            np.copyto(out, cache)
            first = np.zeros(len(new), np.int64) if begins is None else begins
            places = first[:, None] + np.arange(new.shape[axis])
            extent = out.shape[axis]
            places = places % extent if is_circular else places
            check_places(places, extent)
            rows = np.arange(len(new))[:, None]
            np.moveaxis(out, axis, 1)[rows, places] = np.moveaxis(new, axis, 1)

        return write


class OneHot(ir.Facts, frozen=True):
    """One value where the index along a new dimension is that of the source, another elsewhere."""

    op_types = ("OneHot",)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        axis = node.axis_attr("axis", len(node.result.shape), -1)

        def mark(places: np.ndarray, depth: np.ndarray, values: np.ndarray, out: np.ndarray) -> None:
            del depth  # is the result's extent
            n = out.shape[axis]
            own = np.arange(n).reshape((n,) + (1,) * (out.ndim - 1 - axis))
            places = np.expand_dims(np.where(places < 0, places + n, places), axis)
            out[...] = values[0]
            np.copyto(out, values[1], where=own == places)

        return mark


class ReverseSequence(ir.Facts, frozen=True):
    """The first elements along one dimension backwards, as many as each of the batch has."""

    op_types = ("ReverseSequence",)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        axes = node.int_attr("batch_axis", 1), node.int_attr("time_axis", 0)

        def reverse(x: np.ndarray, lengths: np.ndarray, out: np.ndarray) -> None:
            src, dst = (np.moveaxis(array, axes, (0, 1)) for array in (x, out))
            times = np.arange(src.shape[1])
            places = np.where(times < lengths[:, None], lengths[:, None] - 1 - times, times)
            dst[...] = src[np.arange(len(src))[:, None], places]

        return reverse


class Trilu(ir.Facts, frozen=True):
    """The upper or the lower triangle; zeros elsewhere."""

    op_types = ("Trilu",)
    is_quick_on_arrays = True

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        op, others, upper = call.bl.op, call.sources[1:], call.node.int_attr("upper", 1)
        return (lambda grad: op("Trilu", grad, *others, upper=upper),)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        is_upper = bool(node.int_attr("upper", 1))

        def keep(x: np.ndarray, diagonal: np.ndarray | None = None, *, out: np.ndarray) -> None:
            k = 0 if diagonal is None else int(diagonal.item())
            lower = np.tri(x.shape[-2], x.shape[-1], k - is_upper, dtype=bool)
            np.copyto(out, x)
            np.copyto(out, out.dtype.type(0), where=lower if is_upper else ~lower)

        return keep


class EyeLike(ir.Facts, frozen=True):
    """Ones on a diagonal of a matrix of the source's extents."""

    op_types = ("EyeLike",)
    elements_read = ()

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        k = node.int_attr("k", 0)
        return lambda _, out: np.copyto(out, np.eye(out.shape[0], out.shape[1], k), casting="unsafe")
