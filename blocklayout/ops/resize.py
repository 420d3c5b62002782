"""Resize and Upsample: by resampling where the library looks at the same elements, else by products and copies.

Source: operator Resize-19, ONNX 1.17; ``cpu/resampling_utils.hpp``, oneDNN v3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from blocklayout import dnnl, ir
from blocklayout.layout import MemoryDesc
from blocklayout.layout.permutation import Perm, inverse
from blocklayout.ops._answers import MOVED, has_one_output, in_order, is_known, is_source
from blocklayout.ops._gradients import along
from blocklayout.ops._layouts import Digit, Follower, argument, n_elements, paired
from blocklayout.ops.conv import Conv, over_repeated
from blocklayout.ops.reduction import Steps
from blocklayout.ops.slice import SteppedSlice
from blocklayout.ops.views import Identity
from blocklayout.resource_limits import check_affordable

Coordinates = NDArray[np.floating]

_EPSILON = 5e-7
"""Of an extent: the precision of a coordinate in 32 bits."""

_LEAST_TOLERANCE = 1e-5


class Axis(Struct, frozen=True):
    """One dimension to resize: both extents, and the model's scale, which need not be their ratio."""

    src: int
    dst: int
    scale: float


def _align_corners(axis: Axis, dst: Coordinates) -> Coordinates:
    # The corners are those of the extent that the scale gives, whole or not: so ONNX's suite wants it.
    extent = axis.src * axis.scale
    return np.zeros_like(dst) if extent == 1 else dst * (axis.src - 1) / (extent - 1)


def _half_pixel(axis: Axis, dst: Coordinates) -> Coordinates:
    return (dst + 0.5) / axis.scale - 0.5


TRANSFORMATIONS: Mapping[str, Callable[[Axis, Coordinates], Coordinates]] = {
    "half_pixel": _half_pixel,
    "align_corners": _align_corners,
    "asymmetric": lambda axis, dst: dst / axis.scale,
    "half_pixel_symmetric": lambda axis, dst: (
        axis.src / 2 * (1 - axis.dst / (axis.scale * axis.src)) + _half_pixel(axis, dst)
    ),
    "pytorch_half_pixel": lambda axis, dst: _half_pixel(axis, dst) if axis.dst > 1 else np.zeros_like(dst),
    "tf_half_pixel_for_nn": lambda axis, dst: (dst + 0.5) / axis.scale,
}
"""The source's coordinates for the destination's, by the value of ``coordinate_transformation_mode``."""

ROUNDINGS: Mapping[str, Callable[[Coordinates], Coordinates]] = {
    "round_prefer_floor": lambda src: np.ceil(src - 0.5),
    "round_prefer_ceil": lambda src: np.floor(src + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""The element that is taken, by the value of ``nearest_mode``."""


class Neighbours(Struct, frozen=True):
    """How much neighbours count: two along straight lines, or four along Keys' cubic curves.

    Antialiased, as many more count as the image is made smaller. Those outside the image do not count, or are those at
    the edge.
    """

    is_cubic: bool = False
    cubic_coeff: float = -0.75
    is_antialiased: bool = False
    excludes_outside: bool = False

    @property
    def reach(self) -> int:
        """The largest distance that counts."""
        return 2 if self.is_cubic else 1

    def weights(self, distances: Coordinates) -> Coordinates:
        """How much elements at these distances count."""
        far: Coordinates = np.abs(distances)
        if not self.is_cubic:
            straight: Coordinates = np.maximum(1 - far, 0)
            return straight
        a = self.cubic_coeff
        near = ((a + 2) * far - (a + 3)) * far**2 + 1
        further = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
        return np.where(far <= 1, near, np.where(far < 2, further, 0.0))


def interpolation_matrix(axis: Axis, transformation: str, kernel: Neighbours) -> NDArray[np.float32]:
    """Matrix that resizes one dimension: one row for each new element, one column for each old one.

    Example:
        >>> interpolation_matrix(Axis(2, 3, 1.5), "align_corners", Neighbours()).tolist()
        [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    """
    centres = _wanted(axis, transformation)
    scale = min(axis.scale, 1.0) if kernel.is_antialiased else 1.0
    reach = int(np.ceil(kernel.reach / scale))
    neighbours = np.floor(centres)[:, None] + np.arange(-reach, reach + 2)
    weights = kernel.weights((neighbours - centres[:, None]) * scale)
    if kernel.excludes_outside:
        weights = np.where((neighbours < 0) | (neighbours >= axis.src), 0.0, weights)
    totals = weights.sum(axis=1, keepdims=True)
    weights /= np.where(totals == 0, 1.0, totals)
    matrix = np.zeros((axis.dst, axis.src))
    columns = np.clip(neighbours, 0, axis.src - 1).astype(np.intp)
    np.add.at(matrix, (np.arange(axis.dst)[:, None], columns), weights)
    return matrix.astype(np.float32)


def nearest_elements(axis: Axis, transformation: str, rounding: str) -> NDArray[np.int64]:
    """The element that is taken for each new one.

    Example:
        >>> nearest_elements(Axis(3, 5, 5 / 3), "asymmetric", "floor").tolist()
        [0, 0, 1, 1, 2]
    """
    return np.clip(ROUNDINGS[rounding](_wanted(axis, transformation)), 0, axis.src - 1).astype(np.int64)


def equal_steps(taken: NDArray[np.int64], extent: int) -> tuple[int, int] | None:
    """The first of these elements and the distance to the next, where that is always the same.

    ``None`` also where the last step would leave the source, for descriptors have room for whole steps only.

    Example:
        >>> equal_steps(np.array([0, 2, 4]), 6), equal_steps(np.array([0, 0, 1]), 3), equal_steps(np.array([1, 3]), 3)
        ((0, 2), None, None)
    """
    steps = set(np.diff(taken).tolist())
    if len(steps) > 1:
        return None
    step = steps.pop() if steps else 1
    return (int(taken[0]), step) if step * len(taken) <= extent else None


def _wanted(axis: Axis, transformation: str) -> Coordinates:
    return TRANSFORMATIONS[transformation](axis, np.arange(axis.dst, dtype=np.float64))


def _dnnl_coordinates(axis: Axis) -> Coordinates:
    """In 32 bits, as the library computes them."""
    half = np.float32(0.5)
    return (np.arange(axis.dst).astype(np.float32) + half) * np.float32(axis.src) / np.float32(axis.dst) - half


class Interpolate(Follower, frozen=True):
    """Products with a matrix (new, old) along some dimensions, ``matrix_2`` and so on, in every dense layout."""

    axes: tuple[int, ...]

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        pairs = paired(src, dst, self.axes)
        if pairs is None or attr.post_ops:
            return None
        order = [given.dim for given, _ in pairs]
        extents, steps = [given.extent for given, _ in pairs], Steps(src.dtype, problem.n_threads)
        for axis in self.axes:
            index, matrix = order.index(axis), f"matrix_{axis}"
            old, new = (part.extent for part in pairs[index])
            lead, inner = prod(extents[:index]), prod(extents[index + 1 :])
            extents[index] = new
            columns = () if inner == 1 else (inner,)
            given, made = (MemoryDesc((lead, n, *columns), src.dtype) for n in (old, new))
            if inner == 1:
                turned = MemoryDesc((old, new), src.dtype, strides=(1, old))
                steps.add(dnnl.matmul(given, turned, made, n_threads=problem.n_threads), "src", (("weights", matrix),))
            else:
                rows = MemoryDesc((1, new, old), src.dtype)
                steps.add(dnnl.matmul(rows, given, made, n_threads=problem.n_threads), "weights", (("src", matrix),))
        done, temporaries = steps.finished()
        matrices = {name: MemoryDesc(info.dims, src.dtype) for name, info in problem.constants.items()}
        return ir.Recipe(done, temporaries, (("src", src), ("dst", dst), *matrices.items()))


def interpolated(src: ir.Value, matrices: Mapping[int, np.ndarray]) -> ir.Lowered:
    """The operator that multiplies ``src`` with a matrix along each of some dimensions."""
    return Interpolate(tuple(matrices)).bind({"src": src}, {f"matrix_{axis}": m for axis, m in matrices.items()})


_FIRST_OPSET_OF_TRANSFORMATIONS = 11
_FIRST_OPSET_OF_SCALES_INPUT = 9
_FIRST_OPSET_OF_BYTES = 10
_MODES = ("nearest", "linear", "bilinear", "trilinear", "cubic")
_POLICIES = ("stretch", "not_larger", "not_smaller")
_MOST_RESIZED = 3


def _looks_at_elements(node: ir.NodeInfo) -> ir.Refusal | None:
    src = node.required(0, "X")
    if 0 not in (*src.shape, *node.result.shape):
        return None
    return node.refused(f"{src.name} has extents {list(src.shape)}", "there must be something to look at")


def _crops_nothing(node: ir.NodeInfo) -> ir.Refusal | None:
    if node.attrs.get("coordinate_transformation_mode") != "tf_crop_and_resize":
        return None
    return node.refused("coordinate_transformation_mode is tf_crop_and_resize", "crop with a Slice")


def _sizes_are_known(node: ir.NodeInfo) -> ir.Refusal | None:
    scales, sizes = (is_known(_index(node, name), name)(node) for name in ("scales", "sizes"))
    return scales or sizes


def _index(node: ir.NodeInfo, name: str) -> int:
    has_regions = node.op_type == "Resize" and node.opset >= _FIRST_OPSET_OF_TRANSFORMATIONS
    return {"scales": 2 if has_regions else 1, "sizes": 3}[name]


class Resize(Follower, frozen=True):
    """Images of other extents along up to three dimensions, ``axes``, by oneDNN's name of the interpolation."""

    op_types = ("Resize", "Upsample")
    extents_read = (3,)
    needs = (is_source(1, 12, MOVED), has_one_output("nothing"), _looks_at_elements, _crops_nothing, _sizes_are_known)

    algorithm: str
    axes: tuple[int, ...]

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src = node.required(0, "X")
        mode, resized = node.string_attr("mode", _MODES), _resized(node, src)
        mode = mode if mode in ("nearest", "cubic") else "linear"
        if mode != "nearest" and (refusal := node.of_other_dtype(src)):
            return refusal
        axes = tuple(dim for dim, axis in enumerate(resized) if axis.src != axis.dst)
        if not all(_is_like_dnnl(node, mode, axis) for axis in resized) or len(axes) > _MOST_RESIZED:
            if mode == "nearest":
                return _picked(node, src, resized)
            return interpolated(src, _matrices(node, mode, resized))
        if not axes:
            return Identity().bind({"src": src})
        return cls(f"resampling_{mode}", axes).bind({"src": src})

    @classmethod
    def keeps_rows(cls, node: ir.NodeInfo, rows: frozenset[int]) -> bool:
        moves = node.attrs.get("coordinate_transformation_mode") in ("tf_crop_and_resize", "tf_half_pixel_for_nn")
        is_known = _sizes_are_known(node) is None
        return rows == {0} and not moves and is_known and _scales(node, node.shape(0))[0] == 1

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        node, bl, mode = call.node, call.bl, call.node.string_attr("mode", _MODES)
        resized = _resized(node, node.required(0, "X"))
        if mode != "nearest":
            matrices = _matrices(node, mode, resized)
        else:
            taken = [_taken(node, axis)[0] for axis in resized]
            matrices = {dim: np.eye(axis.src, dtype=np.float32)[taken[dim]] for dim, axis in enumerate(resized)}
            kernel = [axis.dst // axis.src for axis in resized]
            repeats = [np.arange(axis.src).repeat(n) for axis, n in zip(resized, kernel, strict=True)]
            if all(map(np.array_equal, taken, repeats)) and kernel[:2] == [1, 1] and 3 <= len(kernel) <= 5:
                return (lambda grad: grad.average_pool(kernel[2:]) * float(prod(kernel)),)
        return (lambda grad: along(bl, grad, {dim: matrix.T for dim, matrix in matrices.items()}),)

    @classmethod
    def selects(cls, node: ir.NodeInfo) -> tuple[int, ...] | None:
        is_nearest = node.string_attr("mode", _MODES) == "nearest" and node.opset >= _FIRST_OPSET_OF_BYTES
        return (0,) if is_nearest and _crops_nothing(node) is None else None

    @classmethod
    def transposed(cls, node: ir.NodeInfo, perm: Perm) -> ir.Transposed | None:
        rest = range(1, len(node.inputs))
        if any(node.has_input(index) and node.constant(index) is None for index in rest):
            return None
        # There are primitives for images, whose batch and channels, the first two dimensions, keep their extents.
        changed = [dim for dim, extent in enumerate(node.shape(0)) if extent != node.result.shape[dim]]
        if min(changed, default=2) >= 2 and min((perm[dim] for dim in changed), default=2) < 2:
            return None
        if "axes" in node.attrs:
            return ir.Transposed(perm, {**node.attrs, "axes": tuple(perm[axis] for axis in node.attrs["axes"])})
        attrs, back = dict(node.attrs), inverse(perm)
        if "scales" in attrs:
            attrs["scales"] = tuple(in_order(np.asarray(attrs["scales"]), back).tolist())
        constants = {index: array for index in rest if (array := node.constant(index)) is not None}
        return ir.Transposed(perm, attrs, {index: in_order(array, back) for index, array in constants.items()})

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        if 3 <= len(problem.dst.dims) <= 5 and min(self.axes) >= 2:
            spec = dnnl.resampling(src, dst, self.algorithm, attr=attr, n_threads=problem.n_threads)
            return ir.Recipe.single(spec)
        views = None if attr.post_ops else self._views(src, dst)
        if views is None:
            return None
        spec = dnnl.resampling(*views, self.algorithm, n_threads=problem.n_threads)
        return ir.Recipe.single(spec, whole=(("src", src), ("dst", dst)))

    def merged(
        self, problem: ir.Problem, reader: ir.BaseOperator, reading: ir.Problem
    ) -> tuple[ir.BaseOperator, Mapping[str, ir.TapSums]] | None:
        src, dst = argument(problem, "src").dims, problem.dst.dims
        if self.algorithm != "resampling_nearest" or not isinstance(reader, Conv) or min(self.axes) < 2:
            return None
        if any(extent % n for extent, n in zip(dst, src, strict=True)):
            return None
        repeats = tuple(extent // n for extent, n in zip(dst[2:], src[2:], strict=True))
        found = over_repeated(reader, repeats, reading)
        return None if found is None else (found[0], {"weights": found[1]})

    def _views(self, src: MemoryDesc, dst: MemoryDesc) -> tuple[MemoryDesc, MemoryDesc] | None:
        pairs = paired(src, dst, self.axes)
        if pairs is None:
            return None
        parts, results = zip(*pairs, strict=True)
        changing = [index for index, part in enumerate(parts) if part.dim in self.axes]
        first, behind = changing[0], changing[-1] + 1
        if behind - first > _MOST_RESIZED:
            return None
        # Dimensions in between that do not change are resized to their own extents.
        return _image(parts, first, behind, src.dtype), _image(results, first, behind, dst.dtype)


def _image(parts: Sequence[Digit], first: int, behind: int, dtype: str) -> MemoryDesc:
    """Digits before the first spatial one as images; those behind the last as channels."""
    spatial = tuple(part.extent for part in parts[first:behind])
    n_images, n_channels = n_elements(parts[:first]), n_elements(parts[behind:])
    if n_channels == 1:
        return MemoryDesc((1, n_images, *spatial), dtype)
    return MemoryDesc((n_images, n_channels, *spatial), dtype, "channels_last")


def _resized(node: ir.NodeInfo, src: ir.Value) -> list[Axis]:
    dims, extents = src.shape, node.result.shape
    if len(dims) != len(extents):
        raise node.wrong(f"output {node.result.name} has rank {len(extents)}", f"{src.name} has rank {len(dims)}")
    scales = _scales(node, dims)
    for dim, extent, scale in zip(dims, extents, scales, strict=True):
        if not scale > 0 or abs(dim * scale - extent) > 1:
            rule = f"{list(dims)} scaled by {[round(number, 4) for number in scales]} is something else"
            raise node.wrong(f"output {node.result.name} has extents {list(extents)}", rule)
    return [Axis(*sizes) for sizes in zip(dims, extents, scales, strict=True)]


def _scales(node: ir.NodeInfo, dims: tuple[int, ...]) -> list[float]:
    """The scale of each dimension, given or by the sizes that are."""
    axes = [int(axis) % len(dims) for axis in node.attrs.get("axes") or range(len(dims))]
    given = _numbers(node, "scales")
    sizes = _numbers(node, "sizes") if not given else []
    if len(given or sizes) != len(axes):
        raise node.wrong(f"{len(given or sizes)} scales or sizes", f"there must be {len(axes)}")
    scales = given or [size / dims[axis] for size, axis in zip(sizes, axes, strict=True)]
    policy = node.string_attr("keep_aspect_ratio_policy", _POLICIES)
    if sizes and policy != "stretch":
        scales = [min(scales) if policy == "not_larger" else max(scales)] * len(axes)
    by_axis = dict(zip(axes, scales, strict=True))
    return [by_axis.get(dim, 1.0) for dim in range(len(dims))]


def _numbers(node: ir.NodeInfo, name: str) -> list[float]:
    if node.op_type == "Upsample" and node.opset < _FIRST_OPSET_OF_SCALES_INPUT:
        return [float(scale) for scale in node.attrs.get(name, ())]
    value = node.input(_index(node, name))
    return [] if value is None else [float(number) for number in np.ravel(node.known(value, name))]


def _is_like_dnnl(node: ir.NodeInfo, mode: str, axis: Axis) -> bool:
    """Whether the library looks at the elements that the model wants, and interpolates with the same weights."""
    if mode == "nearest":
        # Halves are rounded up; none is below zero. In 64 bits the sum is exact.
        given = np.floor(_dnnl_coordinates(axis).astype(np.float64) + 0.5)
        return all(np.array_equal(wanted, given) for wanted in _taken(node, axis))
    if mode == "cubic" or node.flag_attr("antialias"):
        return False
    coordinates = (_wanted(axis, _rules(node, axis)[0]), _dnnl_coordinates(axis))
    wanted, given = (np.clip(each, 0, axis.src - 1) for each in coordinates)
    return bool(np.abs(wanted - given).max() <= max(_LEAST_TOLERANCE, _EPSILON * axis.src))


def _matrices(node: ir.NodeInfo, mode: str, resized: Sequence[Axis]) -> dict[int, NDArray[np.float32]]:
    flags = (node.flag_attr(name) for name in ("antialias", "exclude_outside"))
    kernel = Neighbours(mode == "cubic", node.float_attr("cubic_coeff_a", -0.75), *flags)
    changed = {i: axis for i, axis in enumerate(resized) if axis.src != axis.dst or not np.isclose(axis.scale, 1.0)}
    return {dim: interpolation_matrix(axis, _rules(node, axis)[0], kernel) for dim, axis in changed.items()}


def _taken(node: ir.NodeInfo, axis: Axis) -> list[NDArray[np.int64]]:
    """The elements that are taken, by each way in which coordinates may be rounded."""
    transformation, roundings = _rules(node, axis)
    return [nearest_elements(axis, transformation, rounding) for rounding in roundings]


def _picked(node: ir.NodeInfo, src: ir.Value, resized: list[Axis]) -> ir.Lowered | ir.Refusal:
    """The nearest elements: one copy where they lie in equal steps, else products with rows of one 1 each."""
    taken = []
    for dim, axis in enumerate(resized):
        elements, *others = _taken(node, axis)
        if not all(np.array_equal(elements, other) for other in others):
            what = f"dimension {dim} from {axis.src} to {axis.dst} in opset {node.opset}"
            return node.refused(what, "it does not say how to round: convert the model to opset 11")
        taken.append(elements)
    steps = [equal_steps(elements, extent) for elements, extent in zip(taken, src.shape, strict=True)]
    found = tuple(step for step in steps if step is not None)
    if len(found) == len(steps):
        offsets, distances = zip(*found, strict=True)
        return SteppedSlice(offsets, distances).bind({"src": src})
    if refusal := node.of_other_dtype(src):
        return refusal
    matrices = {}
    for dim, (elements, extent) in enumerate(zip(taken, src.shape, strict=True)):
        if not np.array_equal(elements, np.arange(extent)):
            what = f"node {node.name!r}: the matrix that picks along dimension {dim}"
            check_affordable((len(elements), extent), 4, what)
            matrices[dim] = np.zeros((len(elements), extent), np.float32)
            matrices[dim][np.arange(len(elements)), elements] = 1
    return interpolated(src, matrices)


def _rules(node: ir.NodeInfo, axis: Axis) -> tuple[str, tuple[str, ...]]:
    """How coordinates are transformed, and every way in which they may be rounded."""
    if node.op_type == "Upsample" or node.opset < _FIRST_OPSET_OF_TRANSFORMATIONS:
        # The specification of these opsets does not say which element is taken of several.
        return "asymmetric", ("floor",) if axis.scale >= 1 else ("floor", "ceil")
    transformation = node.string_attr("coordinate_transformation_mode", tuple(TRANSFORMATIONS))
    return transformation, (node.string_attr("nearest_mode", tuple(ROUNDINGS)),)
