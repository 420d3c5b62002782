"""Problems of each operator family, as networks have them: few and many channels, large and small images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from blocklayout import Builder, dnnl

if TYPE_CHECKING:
    from blocklayout.dnnl import Desc, Spec
    from blocklayout.model import BuildValue

    Dims = tuple[int, ...]
    Build = Callable[[Builder, BuildValue], BuildValue]

SIZES = ((32, 112), (128, 28), (512, 7))
"""Channels and extents of images: early, in the middle and late in a network."""

_GENERATOR = np.random.default_rng(0)


@dataclass(frozen=True)
class Problem:
    """One operator on one image.

    Attributes:
        family: What kind of operator.
        dims: Extents (N, C, H, W) of its first source.
        build: Puts the operator behind its source; ``None`` where ``ask`` does instead.
        ask: The primitive for a source that has a layout, for what no operator of ONNX's is.
    """

    family: str
    dims: Dims
    build: Build | None = None
    ask: Callable[[Desc], Spec] | None = None

    @property
    def name(self) -> str:
        """Family and extents."""
        return f"{self.family} {'x'.join(map(str, self.dims))}"


def problems(batch: int, sizes: tuple[tuple[int, int], ...] = SIZES) -> Iterator[Problem]:
    """Every family at every size.

    Args:
        batch: Images at a time.
        sizes: Channels and extents.
    """
    for channels, extent in sizes:
        dims = (batch, channels, extent, extent)
        yield from (Problem(family, dims, build) for family, build in _convolutions(channels, extent).items())
        yield from (Problem(family, dims, build) for family, build in _windows(extent).items())
        yield from (Problem(family, dims, build) for family, build in _elementwise(dims).items())
        yield from (Problem(family, dims, build) for family, build in _others(channels).items())
        yield Problem("inner product", dims, ask=_inner_product)


def _convolutions(channels: int, extent: int) -> dict[str, Build]:
    def conv(kernel: int, groups: int = 1, **more: int) -> Build:
        weights = _weights(channels, channels // groups, kernel, kernel)
        pads = more.get("dilations", 1) * (kernel // 2)
        return lambda _, x: x.conv(weights, group=groups, pads=pads, **more)

    transposed = _weights(channels, channels, 2, 2)
    found = {
        "convolution 1x1": conv(1),
        "convolution 3x3": conv(3),
        "convolution 3x3 strides 2": conv(3, strides=2),
        "convolution 3x3 in 8 groups": conv(3, 8),
        "convolution 3x3 depthwise": conv(3, channels),
        "convolution 5x5 depthwise strides 2": conv(5, channels, strides=2),
        "deconvolution 2x2 strides 2": lambda _, x: x.conv_transpose(transposed, strides=2),
    }
    return found | ({"convolution 3x3 dilations 2": conv(3, dilations=2)} if extent > 4 else {})


def _windows(extent: int) -> dict[str, Build]:
    scales = np.array([1, 1, 2, 2], np.float32)
    found = {
        "max pooling 3x3 strides 2": lambda _, x: x.max_pool(3, strides=2, pads=1),
        "average pooling 2x2 strides 2": lambda _, x: x.average_pool(min(2, extent), strides=2),
        "global average pooling": lambda _, x: x.global_average_pool(),
        "resampling nearest": lambda b, x: b.op("Resize", x, None, scales, mode="nearest"),
        "resampling linear": lambda b, x: b.op("Resize", x, None, scales, mode="linear"),
        "padding": lambda b, x: b.op("Pad", x, np.array([0, 0, 1, 1, 0, 0, 1, 1])),
    }
    if extent % 2:
        return found
    return found | {"pixel unshuffle": lambda b, x: b.op("SpaceToDepth", x, blocksize=2)}


def _elementwise(dims: Dims) -> dict[str, Build]:
    batch, channels, _, _ = dims
    vector = _weights(1, channels, 1, 1)
    return {
        "relu": lambda _, x: x.relu(),
        "gelu": lambda _, x: x.gelu(),
        "hard swish": lambda _, x: x.hard_swish(),
        "prelu": lambda b, x: b.op("PRelu", x, vector[0]),
        "add, as large": lambda b, x: x + b.input("other", dims),
        "add, one for each channel": lambda _, x: x + vector,
        "multiply, one for each image and channel": lambda b, x: x * b.input("gate", (batch, channels, 1, 1)),
        "concatenation": lambda b, x: b.concat([x, b.input("other", dims)]),
    }


def _others(channels: int) -> dict[str, Build]:
    vectors = [np.abs(_weights(channels)) + 0.5 for _ in range(4)]
    return {
        "batch normalisation": lambda b, x: b.op("BatchNormalization", x, *vectors),
        "instance normalisation": lambda b, x: b.op("InstanceNormalization", x, *vectors[:2]),
        "group normalisation": lambda b, x: b.op("GroupNormalization", x, *vectors[:2], num_groups=8),
        "layer normalisation of channels": lambda _, x: _layer_normalised(x),
        "lrn": lambda _, x: x.lrn(5),
        "softmax over channels": lambda _, x: x.softmax(axis=1),
        "mean over channels": lambda _, x: x.mean((1,), keepdims=True),
        "sum over the image": lambda b, x: b.op("ReduceSum", x, np.array([2, 3])),
        "matmul of images": lambda _, x: x @ _weights(x.shape[-1], 64),
        "channel shuffle": lambda _, x: _shuffled(x),
        "pixel shuffle": lambda b, x: b.op("DepthToSpace", x, blocksize=2, mode="CRD"),
    }


def _layer_normalised(x: BuildValue) -> BuildValue:
    ones = np.ones(x.shape[1], np.float32)
    return x.transpose((0, 2, 3, 1)).layer_norm(ones, ones).transpose((0, 3, 1, 2))


def _shuffled(x: BuildValue) -> BuildValue:
    batch, channels, *image = x.shape
    return x.reshape((batch, 2, channels // 2, *image)).transpose((0, 2, 1, 3, 4)).reshape((batch, channels, *image))


def _inner_product(src: Desc) -> Spec:
    n_channels, *image = src.dims[1:]
    return dnnl.inner_product(src, dnnl.AnyDesc((256, n_channels, *image), src.dtype))


def _weights(*shape: int) -> np.ndarray:
    return _GENERATOR.standard_normal(shape, dtype=np.float32)
