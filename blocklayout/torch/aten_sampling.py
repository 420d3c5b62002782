"""Images of other extents: upsampling, sampling at given places, images of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from blocklayout.dtypes import FLOATS
from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import NodeWriter, lowers

_SMOOTH = {"upsample_linear1d": "linear", "upsample_bilinear2d": "linear", "upsample_trilinear3d": "linear"}
_SMOOTH |= {"upsample_bicubic2d": "cubic", "_upsample_bilinear2d_aa": "linear", "_upsample_bicubic2d_aa": "cubic"}
_PIXELS = [f"{name}{rank}d" for rank in (1, 2, 3) for name in ("upsample_nearest", "_upsample_nearest_exact")]


def _listed(scales: tuple[Any, ...]) -> Sequence[float | None]:
    """Scales that come in a list, or one by one."""
    return scales[0] if isinstance(scales[0], list) else scales


@lowers(*(f"{name}.{overload}" for name in _PIXELS for overload in ("default", "vec")))
def _nearest(w: NodeWriter, x: BuildValue, _: Sequence[int] | None, *scales: Any) -> Any:
    is_exact = "exact" in w.name
    factors = [*_listed(scales), None, None]
    for axis in range(2, len(x.shape)):
        extent, n = x.shape[axis], w.shape[axis]
        places = _places(extent, n, factors[axis - 2], is_exact=is_exact)
        usual = (2 * np.arange(n) + is_exact) * extent // (2 * n)
        if not np.array_equal(places, usual):  # by a scale that is not that of the extents, or by rounding
            x = w.op("Gather", x, places, axis=axis)
    at, nearest = ("half_pixel", "round_prefer_ceil") if is_exact else ("asymmetric", "floor")
    attrs: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": at, "nearest_mode": nearest}
    return x if x.shape == w.shape else w.op("Resize", x, None, None, w.shape, **attrs)


def _places(extent: int, n: int, scale: float | None, *, is_exact: bool) -> np.ndarray:
    """Where PyTorch takes each of ``n`` pixels from."""
    import torch

    overload = torch.ops.aten._upsample_nearest_exact1d if is_exact else torch.ops.aten.upsample_nearest1d  # noqa: SLF001
    places: np.ndarray = overload(torch.arange(extent, dtype=torch.float32)[None, None], [n], scale).numpy()
    return places.reshape(n).astype(np.int64)


@lowers(*(f"{name}.{overload}" for name in _SMOOTH for overload in ("default", "vec")))
def _smooth(w: NodeWriter, x: BuildValue, _: Sequence[int] | None, align_corners: bool, *scales: Any) -> Any:
    mode, is_antialiased, given = _SMOOTH[w.name], w.name.endswith("_aa"), _listed(scales)
    if w.dtype not in FLOATS:
        raise w.refuse("interpolation of integers, which PyTorch rounds in its own way")
    if align_corners and is_antialiased:
        raise w.refuse("antialiasing with aligned corners")
    attrs: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel",
        "cubic_coeff_a": None if mode != "cubic" else -0.5 if is_antialiased else -0.75,
        "antialias": 1 if is_antialiased else None,
        "exclude_outside": 1 if is_antialiased else None,
    }
    if not align_corners and any(given):  # coordinates are by these, not by the extents
        if not all(given):
            raise w.refuse("scales for some dimensions")
        factors = [1.0, 1.0, *(float(each or 1) for each in given)]
        pairs = [*zip(x.shape, w.shape, factors, strict=True)]
        if any(abs(factor * extent / result - 1) > 1e-7 for extent, result, factor in pairs):
            if any(int(extent * factor) != result for extent, result, factor in pairs):
                raise w.refuse(f"scales {given}, which do not make {w.shape} of {x.shape}")
            return w.op("Resize", x, None, factors, None, **attrs)
    return w.op("Resize", x, None, None, w.shape, **attrs)


@lowers("grid_sampler_2d", "grid_sampler_3d", "grid_sampler")
def _grid_sampler(
    w: NodeWriter, x: BuildValue, grid: BuildValue, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    if (interpolation_mode, padding_mode) == (2, 1):
        raise w.refuse("cubic interpolation with borders, where PyTorch repeats pixels and ONNX moves places")
    attrs: dict[str, Any] = {
        "mode": ("linear", "nearest", "cubic")[interpolation_mode],
        "padding_mode": ("zeros", "border", "reflection")[padding_mode],
        "align_corners": int(align_corners),
    }
    return w.op("GridSample", x, grid, **attrs)


@lowers("col2im")
def _col2im(w: NodeWriter, x: BuildValue, *args: Sequence[int]) -> Any:
    output_size, kernel_size, dilation, padding, stride = args
    batched = x if len(x.shape) == 3 else w.reshape(x, (1, *x.shape))
    attrs: dict[str, Any] = {"dilations": dilation, "pads": [*padding, *padding], "strides": stride}
    return w.reshape(w.op("Col2Im", batched, output_size, kernel_size, **attrs), w.shape)
