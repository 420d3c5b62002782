"""Operators whose results have as many elements as their inputs say: a program is cut there."""

from __future__ import annotations

import math
from io import BytesIO

import numpy as np

from blocklayout import ir
from blocklayout.errors import UnsupportedError
from blocklayout.ops._answers import always
from blocklayout.resource_limits import check_affordable, check_time


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
            n = math.ceil(min(max(n, 0), 2.0**63))  # infinity, and all else beyond any address, counts as that
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


# --- the best boxes of each class, without those that overlap a better one


class NonMaxSuppression(ir.Facts, frozen=True):
    """Batch, class and box of each that is left, by decreasing score in each class."""

    op_types = ("NonMaxSuppression",)
    counts_elements = True

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        is_centered = node.flag_attr("center_point_box")

        def select(
            boxes: np.ndarray,
            scores: np.ndarray,
            most: np.ndarray | None = None,
            overlap: np.ndarray | None = None,
            least: np.ndarray | None = None,
        ) -> np.ndarray:
            n_most = 0 if most is None else int(most.item())
            within = ~np.isnan(scores) if least is None else scores > least.astype(scores.dtype).reshape(())
            if n_most <= 0 or not scores.size:
                return np.zeros((0, 3), np.int64)
            places = np.flatnonzero(within)  # many times faster than the nonzero ones of several dimensions
            score = scores.reshape(-1)[places]
            group, box = np.divmod(places, scores.shape[2])
            batch, kind = np.divmod(group, scores.shape[1])
            order = np.lexsort((box, -score, group))
            corners, areas = _corners(boxes[batch[order], box[order]], is_centered=is_centered)
            most_shared = np.zeros((), boxes.dtype) if overlap is None else overlap.astype(boxes.dtype).reshape(())
            kept = order[_left(group[order], corners, areas, most_shared, n_most)]
            return np.stack([batch[kept], kind[kept], box[kept]], 1)

        return select


def _corners(boxes: np.ndarray, *, is_centered: bool) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest coordinates, of shape (4, boxes), and areas."""
    one, two = (boxes[:, :2], boxes[:, 2:])
    if is_centered:
        half = two / 2
        one, two = one - half, one + half
    least, most = np.minimum(one, two), np.maximum(one, two)
    return np.concatenate([least, most], 1).T, (most - least).prod(1)


def _left(group: np.ndarray, corners: np.ndarray, areas: np.ndarray, overlap: np.ndarray, n_most: int) -> np.ndarray:
    """Indices of the boxes that stay, ascending: in each round the best box of every group, which drops others.

    Groups are ascending, and boxes of a group by decreasing score; corners have the shape (4, boxes). A box is dropped
    where it shares more than ``overlap`` of the union.
    """
    left, boxes = np.arange(len(group)), np.concatenate([corners, areas[None]])
    stay = [left[:0]]
    for _ in range(n_most):
        if not left.size:
            break
        check_time(f"NonMaxSuppression, {left.size} boxes are left")
        first = np.flatnonzero(np.diff(group, prepend=-1))
        stay.append(left[first])
        best = np.repeat(boxes[:, first], np.diff(first, append=left.size), axis=1)
        sides = np.minimum(boxes[2:4], best[2:4]) - np.maximum(boxes[:2], best[:2])
        np.maximum(sides, 0, out=sides)
        inner = sides[0] * sides[1]
        drops = inner / (boxes[4] + best[4] - inner) > overlap  # of two without area, neither does
        drops[first] = True
        rest = np.flatnonzero(~drops)
        left, group, boxes = left[rest], group[rest], boxes.take(rest, axis=1)
    return np.sort(np.concatenate(stay))


# --- the pixels of an encoded picture, which Pillow decodes

_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}
"""Pillow's, by the node's ``pixel_format``."""


class ImageDecoder(ir.Facts, frozen=True):
    """Height x width x channels of bytes; without elements where the stream is no picture, as ONNX has it."""

    op_types = ("ImageDecoder",)
    counts_elements = True

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        pixel_format = node.string_attr("pixel_format", tuple(_MODES))

        def decode(stream: np.ndarray) -> np.ndarray:
            try:
                from PIL import Image
            except ImportError:
                raise UnsupportedError(
                    f"node {node.name!r}: Pillow decodes pictures for ImageDecoder, and is not installed: "
                    "pip install 'blocklayout[image]'"
                ) from None
            mode = _MODES[pixel_format]
            try:
                with Image.open(BytesIO(stream.tobytes())) as image:
                    pixels = np.atleast_3d(np.asarray(image.convert(mode)))
            except Exception:  # noqa: BLE001 - readers of formats raise anything
                return np.zeros((0, 0, len(mode)), np.uint8)
            return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels

        return decode
