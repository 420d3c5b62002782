"""Operators whose results have as many elements as their inputs say: a program is cut there."""

from __future__ import annotations

import math

import numpy as np

from blocklayout import ir
from blocklayout.ops._answers import always
from blocklayout.resource_limits import check_affordable


class NonZero(ir.Facts, frozen=True):
    """The places of the elements that are not 0: a row for each dimension."""

    op_types = ("NonZero",)
    counts_elements = True

    on_arrays = staticmethod(
        always(lambda x: np.array(np.nonzero(x)) if x.ndim else np.zeros((0, int(x != 0)), np.int64))
    )


class Compress(ir.Facts, frozen=True):
    """The slices, or the elements of the flat tensor, for which a condition holds."""

    op_types = ("Compress",)
    is_quick_on_arrays = True
    counts_elements = True

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        axis = node.int_attr("axis", 0) if "axis" in node.attrs else None
        return lambda x, condition: np.compress(condition, x, axis)


class Unique(ir.Facts, frozen=True):
    """Elements or slices without repetitions, where each is first, where each went, and how often it was there."""

    op_types = ("Unique",)
    counts_elements = True

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        axis = node.int_attr("axis", 0) if "axis" in node.attrs else None
        is_sorted = node.int_attr("sorted", 1) != 0

        def unique(x: np.ndarray) -> tuple[np.ndarray, ...]:
            values, first, inverse, counts = np.unique(
                x, return_index=True, return_inverse=True, return_counts=True, axis=axis
            )
            inverse = inverse.reshape(-1)
            if not is_sorted:
                order = np.argsort(first, kind="stable")
                values = np.take(values, order, axis or 0)
                first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
            return values, *(each.astype(np.int64, copy=False) for each in (first, inverse, counts))

        return unique


class Range(ir.Facts, frozen=True):
    """Numbers at equal distances."""

    op_types = ("Range",)
    is_quick_on_arrays = True

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        def numbers(start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray:
            if {start.size, limit.size, delta.size} != {1}:
                sizes = f"{start.size}, {limit.size} and {delta.size}"
                raise node.wrong(f"start, limit and delta have {sizes} elements", "each is one number")
            first, end, step = start.item(), limit.item(), delta.item()
            if not step:
                raise node.wrong(f"delta is {step}", "it must not be 0")
            if not all(map(math.isfinite, (first, end, step))):
                raise node.wrong(f"start, limit and delta are {first}, {end} and {step}", "they must be finite")
            n = (end - first) / step if isinstance(step, float) else -((first - end) // step)
            n = math.ceil(min(max(n, 0), 2.0**63))  # what no address reaches, infinity too, counts as that
            check_affordable((n,), start.dtype.itemsize, f"node {node.name!r}: its output")
            found: np.ndarray = np.arange(n, dtype=np.float64 if isinstance(step, float) else np.int64)
            found *= step
            found += first
            return found.astype(start.dtype, copy=False)

        return numbers


class ConstantOfShape(ir.Facts, frozen=True):
    """One number everywhere."""

    op_types = ("ConstantOfShape",)
    is_quick_on_arrays = True

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        value = np.asarray(node.attrs.get("value", np.float32(0)))
        if value.size != 1:
            raise node.wrong(f"attribute value has {value.size} elements", "give one")
        value = value.reshape(())

        def filled(extents: np.ndarray) -> np.ndarray:
            shape = tuple(map(int, extents))
            if min(shape, default=0) < 0:
                raise node.wrong(f"its input holds {list(shape)}", "no extent can be negative")
            check_affordable(shape, value.dtype.itemsize, f"node {node.name!r}: its output")
            return np.full(shape, value, value.dtype)

        return filled
