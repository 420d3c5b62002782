"""Weights that are made of others when they are packed."""

from __future__ import annotations

import numpy as np
from msgspec import Struct


class TapSums(Struct, frozen=True, tag=True):
    """Weights with which a deconvolution of a tensor is another's convolution of it with each element repeated.

    The convolution multiplies an element by several taps for one result, since it meets it several times in a row.
    Here these taps are one, their sum.

    Attributes:
        repeats: How often each element stands in a row, along each spatial dimension.
        dilations: Distance between two taps of the convolution; 1 is dense.
    """

    repeats: tuple[int, ...]
    dilations: tuple[int, ...]

    def dims(self, weights: tuple[int, ...]) -> tuple[int, ...]:
        """Extents of the sums, of those of the weights, whose last are spatial."""
        n_channels = len(weights) - len(self.repeats)
        spatial = zip(weights[n_channels:], self.repeats, self.dilations, strict=True)
        return *weights[:n_channels], *((k - 1) * d + n for k, n, d in spatial)

    def of(self, weights: np.ndarray) -> np.ndarray:
        """The sums, in f32 at least, of weights in any strides.

        Example:
            >>> TapSums((2,), (1,)).of(np.array([[[1, 10, 100]]], np.float32))
            array([[[100., 110.,  11.,   1.]]], dtype=float32)
        """
        first = weights.ndim - len(self.repeats)
        sums = np.flip(weights, tuple(range(first, weights.ndim)))
        for axis, n_repeats, distance in zip(range(first, weights.ndim), self.repeats, self.dilations, strict=True):
            taps = np.moveaxis(sums, axis, 0)
            reach = (len(taps) - 1) * distance + 1
            made = np.zeros((reach + n_repeats - 1, *taps.shape[1:]), np.result_type(taps.dtype, np.float32))
            for place in range(n_repeats):
                made[place : place + reach : distance] += taps
            sums = np.moveaxis(made, 0, axis)
        return sums


class TapsAsChannels(Struct, frozen=True, tag=True):
    """Weights with which a convolution goes on by one pixel where another goes on by several.

    Pixels in a row are one with as many channels, those of the first one first; so are the weights' taps, and zeros
    fill the first and the last of them.

    Attributes:
        stride: How many pixels are one, of the last spatial dimension.
        before: Zeros in front.
        n_taps: How many there are then.
    """

    stride: int
    before: int
    n_taps: int

    def dims(self, weights: tuple[int, ...]) -> tuple[int, ...]:
        """Extents of these weights, of those of the others, (OC, IC, kernel...)."""
        return weights[0], weights[1] * self.stride, *weights[2:-1], self.n_taps

    def of(self, weights: np.ndarray) -> np.ndarray:
        """These weights, of the others.

        Example:
            >>> TapsAsChannels(2, 1, 2).of(np.array([[[1, 2, 3]]], np.float32))
            array([[[0., 2.],
                    [1., 3.]]], dtype=float32)
        """
        behind = self.stride * self.n_taps - self.before - weights.shape[-1]
        around = [(0, 0)] * (weights.ndim - 1) + [(self.before, behind)]
        taps = np.pad(weights, around).reshape(*weights.shape[:-1], self.n_taps, self.stride)
        return np.moveaxis(taps, -1, 1).reshape(self.dims(weights.shape))


MadeWeights = TapSums | TapsAsChannels
"""How weights are made of others."""
