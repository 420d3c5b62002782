"""Conversion of element types where oneDNN has none: by numpy, with oneDNN's rounding and saturation."""

from __future__ import annotations

import numpy as np

from blocklayout.dtypes import FLOATS, from_numpy, to_numpy


def convert(array: np.ndarray, dtype: str) -> np.ndarray:
    """The values in another data type, which there is or a LayoutError; the array itself if it is in that one.

    To integers they round to the nearest, ties to the even one, and saturate; NaN becomes 0. To floating point they
    round likewise, and overflow to infinity. To ``bool`` all but zero is true.

    Example:
        >>> convert(np.array([-1.5, 0.5, 200.4]), "s8").tolist()
        [-2, 0, 127]
    """
    target, given = to_numpy(dtype), from_numpy(array.dtype)
    if given == dtype:
        return array
    with np.errstate(all="ignore"):
        if dtype in FLOATS or "bool" in (given, dtype):
            return array.astype(target)
        return _saturated(array.astype(np.float64), target) if given in FLOATS else _clipped(array, target)


def _clipped(array: np.ndarray, target: np.dtype) -> np.ndarray:
    own, wanted = np.iinfo(array.dtype), np.iinfo(target)
    clipped: np.ndarray = np.clip(array, max(own.min, wanted.min), min(own.max, wanted.max))
    return clipped.astype(target)


def _saturated(array: np.ndarray, target: np.dtype) -> np.ndarray:
    info = np.iinfo(target)
    rounded = np.rint(array)
    made: np.ndarray = np.nan_to_num(rounded, nan=0).astype(target)
    made[rounded >= float(info.max)] = info.max  # as a float, the largest of 64 bits is one more than there is
    made[rounded <= float(info.min)] = info.min
    return made
