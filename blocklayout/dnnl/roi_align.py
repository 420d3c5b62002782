"""Weighted sums of windows of images, in C of our own, as RoiAlign computes them of each region."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.native import native
from blocklayout.dnnl.threads import team


def write_region_means(
    pixels: np.ndarray,
    images: np.ndarray,
    begins: Sequence[np.ndarray],
    weights: Sequence[np.ndarray],
    results: np.ndarray,
) -> bool:
    """Write the weighted sums of each region's bins; whether C could: in f32 without holes, windows in the images.

    Args:
        pixels: Shape (images, height, width, channels).
        images: The image of each region.
        begins: The first row of each region's window, and the first column.
        weights: Of the rows and of the columns of windows: (regions, bins, rows or columns). Zero beyond the image.
        results: Shape (regions, channels, bins down, bins across).

    Example:
        >>> import numpy as np
        >>> from blocklayout import dnnl
        >>> pixels, means = np.ones((1, 4, 4, 8), np.float32), np.empty((1, 8, 1, 1), np.float32)
        >>> halves = np.full((1, 1, 2), 0.5, np.float32)  # one region, one bin of two rows and two columns
        >>> zero = np.zeros(1, np.int64)
        >>> is_done = dnnl.write_region_means(pixels, zero, (zero, zero), (halves, halves), means)
        >>> not is_done or bool((means == 1).all())
        True
    """
    code: Any = native()
    if code is None or any(each.dtype != np.float32 or not each.flags.c_contiguous for each in (pixels, results)):
        return False
    places = [np.array(each, np.int64) for each in (images, *begins)]  # copies, which nobody changes once checked
    if any(((each < 0) | (each >= extent)).any() for each, extent in zip(places, pixels.shape, strict=False)):
        return False
    down, across = (np.ascontiguousarray(each, np.float32) for each in weights)
    functions = team()
    n_threads = functions.bl_width() if functions is not None else 1
    windows = {
        "n_channels": pixels.shape[3],
        "n_rows": pixels.shape[1],
        "n_columns": pixels.shape[2],
        "n_bins": results.shape[2:],
        "n_taps": (down.shape[2], across.shape[2]),
        "n_threads": n_threads,
    }
    sums = np.empty((n_threads, *results.shape[1:]), np.float32)
    code.bl_region_means(
        ffi.new("bl_windows_t *", windows),
        len(results),
        *(ffi.from_buffer("int64_t[]", each) for each in places),
        *(ffi.from_buffer("float[]", each) for each in (down, across, pixels, sums, results)),
    )
    return True
