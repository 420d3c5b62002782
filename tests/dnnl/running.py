"""Runs primitives on poisoned buffers, and computes the same in numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from math import erf
from typing import Any

import numpy as np

from blocklayout import dnnl
from blocklayout.dnnl import arguments, own
from blocklayout.dtypes import to_numpy
from blocklayout.ir import WinogradWeights
from blocklayout.layout import MemoryDesc

Array = np.ndarray

POISON = 0xFF
"""Every byte: NaN as a float, -1 or 255 as an integer."""

LAYOUTS = ("plain", "channels_last", "blocked8", "blocked16")

DIMS = (2, 17, 5, 4)


def desc(dims: tuple[int, ...], layout: str, dtype: str = "f32") -> MemoryDesc:
    """A descriptor in one of ``LAYOUTS``; those that do not exist at this rank are plain."""
    letters = "abcdefghijkl"[: len(dims)]
    if layout == "plain" or len(dims) < 3:
        return MemoryDesc(dims, dtype, letters)
    if layout == "channels_last":
        return MemoryDesc(dims, dtype, f"a{letters[2:]}b")
    return MemoryDesc(dims, dtype, f"aB{letters[2:]}{layout.removeprefix('blocked')}b")


def conv(n_threads: int = 1) -> dnnl.Spec:
    """A convolution of 17 channels into 19, with a bias, in the layouts that the library chooses."""
    src, weights, bias = (dnnl.AnyDesc(dims) for dims in ((1, 17, 8, 8), (19, 17, 3, 3), (19,)))
    return dnnl.convolution(src, weights, None, bias, pads=1, n_threads=n_threads)


def relu(layout: str = "plain") -> dnnl.Spec:
    """A ReLU of ``DIMS``."""
    return dnnl.eltwise(desc(DIMS, layout), None, "relu", n_threads=1)


def random(*dims: int, seed: int = 0, dtype: str = "f32") -> Array:
    """Values of both signs, none near zero, so that no comparison or division is a matter of rounding."""
    generator = np.random.default_rng([seed, *dims])
    sign = generator.choice([-1.0, 1.0], dims)
    return np.asarray(sign * generator.uniform(0.5, 2.0, dims)).astype(to_numpy(dtype))


def poisoned(spec_desc: MemoryDesc) -> dnnl.Memory:
    buffer = dnnl.aligned_empty(spec_desc.nbytes)
    buffer[:] = POISON
    return dnnl.Memory(spec_desc, buffer)


def packed(spec_desc: MemoryDesc, array: Array) -> dnnl.Memory:
    """An array's values in a layout, written by numpy and not by the library."""
    return dnnl.Memory(spec_desc, spec_desc.pack(array))


def execute(spec: dnnl.Spec, given: Mapping[str, Array]) -> dict[str, Array]:
    """The results in logical shape, having checked that their padding is zero.

    Every result's buffer is poisoned before, but where ``given`` has what it holds.
    """
    primitive = dnnl.Primitive(spec)
    memories = {}
    for name, spec_desc in primitive.spec.descs:
        assert isinstance(spec_desc, MemoryDesc)
        memories[name] = packed(spec_desc, given[name]) if name in given else poisoned(spec_desc)
    execution = primitive.bind(memories)
    dnnl.run_parallel(execution.run, spec.n_threads)
    results = {}
    for name in arguments.results(primitive.spec):
        buffer = memories[name].buffer
        assert isinstance(buffer, np.ndarray)
        if name != "workspace":
            assert_padding_is_zero(memories[name].desc, buffer)
            results[name] = memories[name].desc.unpack(buffer)
    return results


def assert_padding_is_zero(spec_desc: MemoryDesc, buffer: Array) -> None:
    elements = buffer[: spec_desc.nbytes].view(np.dtype(f"u{spec_desc.itemsize}")).copy()
    elements[spec_desc.offsets().ravel()] = 0
    assert not elements.any(), f"{np.count_nonzero(elements)} padded elements of {spec_desc} are not zero"


def assert_close(got: Array, expected: Array, tolerance: float = 1e-5) -> None:
    """Within ``tolerance`` of the largest expected value."""
    assert got.shape == expected.shape
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    scale = max(float(np.abs(expected).max(initial=0)), 1e-30)
    assert float(np.abs(got - expected).max(initial=0)) <= tolerance * scale


def check(spec: dnnl.Spec, given: Mapping[str, Array], expected: Array, tolerance: float = 1e-5) -> None:
    """The primitive gives what numpy says, on exact layouts and from plain arrays."""
    assert_close(execute(spec, given)["dst"], expected, tolerance)
    called = dnnl.Primitive(spec)(**given)
    assert_close(called["dst"] if isinstance(called, dict) else called, expected, tolerance)


# What convolutions, deconvolutions and poolings compute, as numpy sees it.


def offer_of(name: str, spec: dnnl.Spec) -> dnnl.Resolved | None:
    """The Spec as an implementation of our own settles it; ``None`` where it does not compute it."""
    return next((each for each in own.offers(spec) if own.name_of(each.spec.impl) == name), None)


def check_convolution(spec: dnnl.Spec, tolerance: float) -> None:
    """Compare a resolved one of two dimensions, or a product, with numpy's in double precision, on poisoned buffers.

    Within ``tolerance`` of the largest sum, of which a clip may leave little.
    """
    descs = [(name, desc) for name, desc in spec.descs if name != "dst" or spec.attr.has_sum]
    given = {name: random(*desc.dims, dtype=desc.dtype) for name, desc in descs}
    exact = {name: array.astype(np.float64) for name, array in given.items()}
    if spec.algorithm == "convolution_winograd_domain":
        taps = given["weights"][..., :3, :3]
        given["weights"], exact["weights"] = WinogradWeights().of(taps).astype(taps.dtype), taps.astype(np.float64)
    if spec.kind == "matmul":
        expected = exact["src"] @ exact["weights"]
    else:
        weights = exact["weights"].reshape(spec.desc("dst").dims[1], -1, *exact["weights"].shape[-2:])
        n_groups = spec.desc("src").dims[1] // weights.shape[1]
        strides, pads, dilations = (spec.param(name) for name in ("strides", "pads", "dilations"))
        expected = convolve(exact["src"], weights, strides, pads, dilations, n_groups)
        expected += exact["bias"][:, None, None] if "bias" in exact else 0
    largest = np.abs(expected).max()
    for index, post_op in enumerate(spec.attr.post_ops):
        if isinstance(post_op, dnnl.Eltwise):
            expected = function_of(post_op)(expected)
        else:
            expected += exact["dst" if isinstance(post_op, dnnl.Sum) else f"post_op_{index}_src_1"]
    got = execute(spec, given)["dst"]
    assert got.shape == expected.shape
    assert np.abs(got.astype(np.float64) - expected).max() <= tolerance * largest


def padded(x: Array, pads: Iterable[int], value: float = 0.0) -> Array:
    n_spatial = x.ndim - 2
    begin_end = tuple(pads)
    widths = [(0, 0), (0, 0), *zip(begin_end[:n_spatial], begin_end[n_spatial:], strict=True)]
    return np.pad(x.astype(np.float64), widths, constant_values=value)


def windows(x: Array, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]) -> Array:
    """Extents (N, C, spatial..., kernel...); dilations count as oneDNN's, 0 is dense."""
    spans = tuple((k - 1) * (d + 1) + 1 for k, d in zip(kernel, dilations, strict=True))
    axes = tuple(range(2, x.ndim))
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=axes)
    steps = tuple(slice(None, None, s) for s in strides) + tuple(slice(None, None, d + 1) for d in dilations)
    return view[(slice(None), slice(None), *steps)]


def convolve(
    x: Array,
    weights: Array,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    groups: int = 1,
) -> Array:
    """A convolution; weights (OC, IC/G, kernel...)."""
    kernel = weights.shape[2:]
    seen = windows(padded(x, pads), kernel, strides, dilations)
    n_spatial = len(kernel)
    taps = tuple(range(-n_spatial, 0))
    parts = []
    for group_x, group_w in zip(np.split(seen, groups, axis=1), np.split(weights, groups), strict=True):
        axes = ((1, *range(2 + n_spatial, 2 + 2 * n_spatial)), (1, *(w + group_w.ndim for w in taps)))
        parts.append(np.moveaxis(np.tensordot(group_x, group_w.astype(np.float64), axes), -1, 1))
    return np.concatenate(parts, axis=1)


def deconvolve(
    x: Array,
    weights: Array,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    spatial: tuple[int, ...],
    groups: int = 1,
) -> Array:
    """A deconvolution; weights (OC, IC/G, kernel...), ``spatial`` the result's extents."""
    kernel, n_out = weights.shape[2:], weights.shape[0]
    n_in = x.shape[1] // groups
    begin = pads[: len(kernel)]
    full = tuple(
        (i - 1) * s + (k - 1) * (d + 1) + 1 + max(o, 0)
        for i, s, k, d, o in zip(x.shape[2:], strides, kernel, dilations, spatial, strict=True)
    )
    y = np.zeros((x.shape[0], n_out, *full))
    per_group = n_out // groups
    for group, tap in product(range(groups), product(*(range(k) for k in kernel))):
        rows: Any = slice(group * per_group, (group + 1) * per_group)
        part = np.einsum("ni...,oi->no...", x[:, group * n_in : (group + 1) * n_in], weights[(rows, slice(None), *tap)])
        places = tuple(
            slice(t * (d + 1), t * (d + 1) + (i - 1) * s + 1, s)
            for t, d, i, s in zip(tap, dilations, x.shape[2:], strides, strict=True)
        )
        y[(slice(None), rows, *places)] += part
    cut = tuple(slice(b, b + o) for b, o in zip(begin, spatial, strict=True))
    return y[(slice(None), slice(None), *cut)]


def function_of(function: dnnl.Eltwise) -> Callable[[Array], Array]:
    """What a post-op does to numbers, in double precision."""
    alpha, beta = function.alpha, function.beta
    found: dict[str, Callable[[Array], Array]] = {
        "relu": lambda x: np.where(x < 0, alpha * x, x),
        "swish": lambda x: x * np.exp(-np.logaddexp(0, -alpha * x)),
        "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
        "gelu_erf": lambda x: x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2,
        "hardswish": lambda x: x * np.clip(alpha * x + beta, 0, 1),
        "linear": lambda x: alpha * x + beta,
        "clip": lambda x: np.clip(x, alpha, beta),
        "clip_v2": lambda x: np.clip(x, alpha, beta),
    }
    return found[function.algorithm.removeprefix("eltwise_")]
