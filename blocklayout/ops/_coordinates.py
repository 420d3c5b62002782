"""Where resizing looks in the source: ONNX's rules, and the library's, which has one.

Source: operator Resize-19, ONNX 1.17; ``cpu/resampling_utils.hpp``, oneDNN v3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Coordinates = NDArray[np.floating]

_EPSILON = 5e-7
"""Of an extent: what 32 bits leave of a coordinate."""

_LEAST_TOLERANCE = 1e-5


class Axis(Struct, frozen=True):
    """One dimension to resize.

    Attributes:
        src: Its extent.
        dst: What it becomes.
        scale: The ratio that the model gives, which need not be the ratio of the extents.
    """

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


def is_linear_like_dnnl(axis: Axis, transformation: str) -> bool:
    """Whether the library interpolates between the same elements with the same weights.

    Example:
        >>> is_linear_like_dnnl(Axis(4, 8, 2.0), "half_pixel"), is_linear_like_dnnl(Axis(4, 8, 2.0), "asymmetric")
        (True, False)
    """
    wanted = np.clip(_wanted(axis, transformation), 0, axis.src - 1)
    given = np.clip(_dnnl_coordinates(axis), 0, axis.src - 1)
    return bool(np.abs(wanted - given).max() <= max(_LEAST_TOLERANCE, _EPSILON * axis.src))


def is_nearest_like_dnnl(axis: Axis, transformation: str, rounding: str) -> bool:
    """Whether the library takes the same elements.

    Example:
        >>> is_nearest_like_dnnl(Axis(4, 8, 2.0), "asymmetric", "floor")
        True
        >>> is_nearest_like_dnnl(Axis(4, 2, 0.5), "half_pixel", "round_prefer_floor")
        False
    """
    wanted = np.clip(ROUNDINGS[rounding](_wanted(axis, transformation)), 0, axis.src - 1)
    # Halves are rounded up; none is below zero. In 64 bits the sum is exact.
    given = np.floor(_dnnl_coordinates(axis).astype(np.float64) + 0.5)
    return np.array_equal(wanted, given)


class Kernel(Struct, frozen=True):
    """How much neighbours count.

    Attributes:
        is_cubic: Whether four count, along cubic curves, instead of two along straight lines.
        cubic_coeff: The parameter of these curves.
        is_antialiased: Whether as many more count as the image is made smaller.
        excludes_outside: Whether neighbours outside the image do not count, instead of being those at the edge.
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


def interpolation_matrix(axis: Axis, transformation: str, kernel: Kernel) -> NDArray[np.float32]:
    """Matrix that resizes one dimension: one row for each new element, one column for each old one.

    Example:
        >>> interpolation_matrix(Axis(2, 3, 1.5), "align_corners", Kernel()).tolist()
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
