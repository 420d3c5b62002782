"""Fourier transforms of signals whose last dimension is 1, real numbers, or 2, real and imaginary parts.

An STFT takes real signals without such a dimension, too, as onnxruntime does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from blocklayout import ir


class DFT(ir.Facts, frozen=True):
    """The discrete transform along one dimension, forwards or back."""

    op_types = ("DFT",)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        usual = node.int_attr("axis", 1) if node.opset < 20 else -2
        is_inverse, is_onesided = node.flag_attr("inverse"), node.flag_attr("onesided")

        def transform(x: np.ndarray, length: ir.Given = None, axis: ir.Given = None, *, out: np.ndarray) -> None:
            along = (usual if axis is None else int(axis.item())) % x.ndim
            n = x.shape[along] if length is None else int(length.item())
            if is_inverse and is_onesided:
                n = out.shape[along]
                out[..., 0] = np.fft.irfft(_numbers(x), n, along)
            elif is_inverse:
                _write(np.fft.ifft(_numbers(x), n, along), out)
            else:
                _write(_forwards(_numbers(x), n, along, is_onesided=is_onesided), out)

        return transform


class STFT(ir.Facts, frozen=True):
    """The transforms of overlapping frames of a signal, each multiplied with a window."""

    op_types = ("STFT",)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        is_onesided = bool(node.int_attr("onesided", 1))

        def transform(
            signal: np.ndarray, step: np.ndarray, window: ir.Given = None, length: ir.Given = None, *, out: np.ndarray
        ) -> None:
            values = _numbers(signal.reshape((*signal.shape, 1)) if signal.ndim == 2 else signal)
            default = values.shape[1] if window is None else len(window)
            n = default if length is None else int(length.item())
            width = n if window is None else len(window)
            frames = np.lib.stride_tricks.sliding_window_view(values, width, 1)
            frames = frames[:, :: int(step.item())][:, : out.shape[1]]
            _write(_forwards(frames if window is None else frames * window, n, 2, is_onesided=is_onesided), out)

        return transform


def _numbers(x: np.ndarray) -> Any:
    """Real or complex numbers, without the last dimension."""
    wide = x if x.dtype in (np.float32, np.float64) else x.astype(np.float32)
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def _forwards(x: Any, n: int, axis: int, *, is_onesided: bool) -> Any:
    if is_onesided and not np.iscomplexobj(x):
        return np.fft.rfft(x, n, axis)
    found = np.fft.fft(x, n, axis)
    return np.take(found, range(n // 2 + 1), axis) if is_onesided else found


def _write(numbers: Any, out: np.ndarray) -> None:
    out[..., 0] = numbers.real
    out[..., 1] = numbers.imag
