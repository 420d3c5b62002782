"""Images of other extents: upsampling, sampling at given places, images of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from blocklayout.dtypes import FLOATS
from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import NodeWriter, integers, lowers

_NEAREST: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
_EXACT: dict[str, Any] = {
    "mode": "nearest",
    "coordinate_transformation_mode": "half_pixel",
    "nearest_mode": "round_prefer_ceil",
}
_SMOOTH = {"upsample_linear1d": "linear", "upsample_bilinear2d": "linear", "upsample_trilinear3d": "linear"}
_SMOOTH |= {"upsample_bicubic2d": "cubic", "_upsample_bilinear2d_aa": "linear", "_upsample_bicubic2d_aa": "cubic"}
_PIXELS = [f"{name}{rank}d" for rank in (1, 2, 3) for name in ("upsample_nearest", "_upsample_nearest_exact")]


@lowers(*(f"aten.{name}.{overload}" for name in _PIXELS for overload in ("default", "vec")))
def _nearest(w: NodeWriter, x: BuildValue, output_size: Sequence[int] | None, *scales: Any) -> Any:
    del output_size
    is_exact = "exact" in w.overload
    given = scales[0] if len(scales) == 1 and isinstance(scales[0], list) else scales
    factors = [*(given or ()), *[None] * len(x.shape)]
    for axis in range(2, len(x.shape)):
        extent, n = x.shape[axis], w.shape[axis]
        places = _places(extent, n, factors[axis - 2], is_exact=is_exact)
        usual = (2 * np.arange(n) + is_exact) * extent // (2 * n)
        if not np.array_equal(places, usual):  # by a scale that is not that of the extents, or by rounding
            x = w.op("Gather", x, places, axis=axis)
    attrs = _EXACT if is_exact else _NEAREST
    return x if x.shape == w.shape else w.op("Resize", x, None, None, integers(w.shape), **attrs)


def _places(extent: int, n: int, scale: float | None, *, is_exact: bool) -> np.ndarray:
    """Where PyTorch takes each of ``n`` pixels from."""
    import torch

    overload = torch.ops.aten._upsample_nearest_exact1d if is_exact else torch.ops.aten.upsample_nearest1d  # noqa: SLF001
    places: np.ndarray = overload(torch.arange(extent, dtype=torch.float32)[None, None], [n], scale).numpy()
    return places.reshape(n).astype(np.int64)


@lowers(*(f"aten.{name}.{overload}" for name in _SMOOTH for overload in ("default", "vec")))
def _smooth(w: NodeWriter, x: BuildValue, output_size: Sequence[int] | None, align_corners: bool, *scales: Any) -> Any:
    del output_size
    name = w.overload.split(".")[1]
    if w.dtype not in FLOATS:
        raise w.refuse("interpolation of integers, which PyTorch rounds in its own way")
    if align_corners and name.endswith("_aa"):
        raise w.refuse("antialiasing with aligned corners")
    attrs = {
        "mode": _SMOOTH[name],
        "coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel",
        "cubic_coeff_a": -0.5 if name == "_upsample_bicubic2d_aa" else -0.75,
        "antialias": 1 if name.endswith("_aa") else None,
        "exclude_outside": 1 if name.endswith("_aa") else None,
    }
    return _resize(w, x, scales, attrs)


def _resize(w: NodeWriter, x: BuildValue, scales: Sequence[Any], attrs: dict[str, Any]) -> Any:
    given = scales[0] if len(scales) == 1 and isinstance(scales[0], list) else list(scales)
    attrs = {key: each for key, each in attrs.items() if not (key == "cubic_coeff_a" and attrs["mode"] != "cubic")}
    rank = len(x.shape) - 2
    by_scales = attrs["coordinate_transformation_mode"] != "align_corners"
    if by_scales and len(given) == rank and any(given) and not all(given):
        raise w.refuse("scales for some dimensions")
    if by_scales and len(given) == rank and all(given):  # coordinates are by these, not by the extents
        factors = [1.0, 1.0, *map(float, given)]
        by_extents = [result / extent for result, extent in zip(w.shape, x.shape, strict=True)]
        if any(abs(factor - other) > 1e-7 * other for factor, other in zip(factors, by_extents, strict=True)):
            if any(
                int(extent * factor) != result for extent, factor, result in zip(x.shape, factors, w.shape, strict=True)
            ):
                raise w.refuse(f"scales {given}, which do not make {w.shape} of {x.shape}")
            return w.op("Resize", x, None, w.constant(factors, "f32"), None, **attrs)
    return w.op("Resize", x, None, None, integers(w.shape), **attrs)


@lowers("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default", "aten.grid_sampler.default")
def _grid_sampler(
    w: NodeWriter, x: BuildValue, grid: BuildValue, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    if (interpolation_mode, padding_mode) == (2, 1):
        raise w.refuse("cubic interpolation with borders, where PyTorch repeats pixels and ONNX moves places")
    return w.op(
        "GridSample",
        x,
        grid,
        mode=("linear", "nearest", "cubic")[interpolation_mode],
        padding_mode=("zeros", "border", "reflection")[padding_mode],
        align_corners=int(align_corners),
    )


@lowers("aten.col2im.default")
def _col2im(w: NodeWriter, x: BuildValue, *args: Sequence[int]) -> Any:
    output_size, kernel_size, dilation, padding, stride = args
    batched = x if len(x.shape) == 3 else w.reshape(x, (1, *x.shape))
    attrs: dict[str, Any] = {"dilations": dilation, "pads": [*padding, *padding], "strides": stride}
    return w.reshape(w.op("Col2Im", batched, integers(output_size), integers(kernel_size), **attrs), w.shape)
