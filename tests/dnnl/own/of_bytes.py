"""Convolutions of bytes by code of ours, against numpy's in double precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from blocklayout import dnnl
from blocklayout.dtypes import to_numpy
from tests.dnnl.running import Array, convolve, execute

TYPES = ("u8", "s8")
ZEROS = (("src", 0), ("dst", 0))
RELU = dnnl.Eltwise("relu")
TAILS = ((), (RELU,), (dnnl.Eltwise("clip", 0, 6),), (dnnl.Eltwise("hardswish", 1 / 6, 0.5),))


def operands(spec: dnnl.Spec) -> dict[str, Array]:
    """Any bytes, and scales and zero points that spread results over all of them."""
    rng, found = np.random.default_rng(len(spec.descs)), {}
    for name, desc in spec.descs:
        if name.startswith("scale"):
            values: Any = rng.uniform(0.01, 0.05, desc.dims)
        elif name.startswith("zero_point"):
            values = rng.integers(1, 20, desc.dims)
        elif desc.dtype == "f32":
            values = rng.standard_normal(desc.dims)
        else:
            limits = np.iinfo(to_numpy(desc.dtype))
            values = rng.integers(limits.min, limits.max, desc.dims, endpoint=True)
        found[name] = values.astype(to_numpy(desc.dtype))
    return found


def check(spec: dnnl.Spec, given: Mapping[str, Array] | None = None) -> None:
    """Each byte is the nearest to the number, but for errors in f32 of this."""
    values = operands(spec) | dict(given or {})
    del values["dst"]

    def number(name: str, default: float) -> Any:
        return values[name].astype(np.float64) if name in values else np.array([default])

    src = values["src"] - number("zero_point_src", 0)
    kernel = spec.desc("weights").dims[-2:]
    weights = values["weights"].reshape(spec.desc("dst").dims[1], -1, *kernel).astype(np.float64)
    n_groups = spec.desc("src").dims[1] // weights.shape[1]
    expected = convolve(src, weights, spec.param("strides"), spec.param("pads"), (0, 0), n_groups)
    expected *= number("scale_src", 1) * number("scale_weights", 1)[:, None, None]
    expected += number("bias", 0)[:, None, None]
    for function in spec.attr.post_ops:
        assert isinstance(function, dnnl.Eltwise)
        if function.algorithm == "eltwise_hardswish":
            expected *= np.clip(function.alpha * expected + function.beta, 0, 1)
        else:
            expected = np.clip(expected, 0, function.beta or np.inf)
    expected = expected / number("scale_dst", 1) + number("zero_point_dst", 0)
    limits = np.iinfo(to_numpy(spec.desc("dst").dtype))
    got = execute(spec, values)["dst"].astype(np.float64)
    assert np.abs(got - np.clip(expected, limits.min, limits.max)).max() <= 0.501
