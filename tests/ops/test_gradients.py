"""Gradients of layers as operators of networks: against numpy in double precision, and against the functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import blocklayout as bl
from tests.dnnl.running import LAYOUTS, Array, assert_close, assert_padding_is_zero, desc, padded, random, windows
from tests.eager.gradients import numeric, pool

pytestmark = [
    pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning"),
    pytest.mark.filterwarnings("ignore::blocklayout.errors.PolicyWarning"),
]

OURS = "blocklayout."


def computed(
    op_type: str, arrays: Sequence[Array], layout: str, n_outputs: int = 1, read: Sequence[int] = (), **attrs: Any
) -> list[Array]:
    """The results that are read, all of them by default: images come and go in a layout, padding proven zero."""
    b = bl.Builder()
    values = [b.input(f"x{place}", array.shape) for place, array in enumerate(arrays)]
    made = b.op(OURS + op_type, *values, n_outputs=n_outputs, **attrs)
    results = made if n_outputs > 1 else (made,)
    for place in read or range(n_outputs):
        b.output(f"y{place}", results[place])
    feed = {f"x{place}": bl.reorder(array, desc(array.shape, layout)) for place, array in enumerate(arrays)}
    borders = {name: each.desc.format_tag.text for name, each in feed.items()}
    borders |= dict.fromkeys((f"y{place}" for place in read or range(n_outputs)), "any")
    session = bl.load(b, tune="model", io_layout={name: tag for name, tag in borders.items() if len(tag) > 1})
    found = session.run(None, feed)
    for each in found:
        if isinstance(each, bl.Tensor):
            assert_padding_is_zero(each.desc, each.buffer)
    return [each.numpy() if isinstance(each, bl.Tensor) else each for each in found]


def convolution_gradients(
    grad: Array,
    x: Array,
    weights: Array,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    group: int,
) -> tuple[Array, Array]:
    """Of the source and of the weights, tap by tap."""
    n, kernel = len(strides), weights.shape[2:]
    wide = padded(x, pads)
    of_x, of_weights = np.zeros_like(wide), np.zeros(weights.shape)
    outs, ins = weights.shape[0] // group, x.shape[1] // group
    for tap in np.ndindex(kernel):
        begins = [place * d for place, d in zip(tap, dilations, strict=True)]
        spans = [slice(b, b + s * (e - 1) + 1, s) for b, s, e in zip(begins, strides, grad.shape[2:], strict=True)]
        for g in range(group):
            o, i = slice(g * outs, (g + 1) * outs), slice(g * ins, (g + 1) * ins)
            seen, moved = wide[(slice(None), i, *spans)], grad[:, o].astype(float)
            of_weights[(o, slice(None), *tap)] = np.einsum(
                "nop,nip->oi", *(each.reshape(*each.shape[:2], -1) for each in (moved, seen))
            )
            of_x[(slice(None), i, *spans)] += np.moveaxis(
                np.tensordot(moved, weights[(o, slice(None), *tap)], (1, 0)), -1, 1
            )
    inside = [slice(b, b + e) for b, e in zip(pads[:n], x.shape[2:], strict=True)]
    return of_x[(slice(None), slice(None), *inside)], of_weights


CONVOLUTIONS: Mapping[str, tuple[tuple[int, ...], tuple[int, ...], Mapping[str, Any]]] = {
    "3x3": ((2, 17, 7, 6), (33, 17, 3, 3), {"pads": (1, 1, 1, 1)}),
    "strided": ((2, 16, 9, 8), (32, 16, 3, 3), {"pads": (1, 0, 1, 1), "strides": (2, 2)}),
    "pointwise": ((2, 17, 5, 5), (19, 17, 1, 1), {}),
    "dilated": ((1, 16, 9, 9), (16, 16, 3, 3), {"dilations": (2, 2), "pads": (2, 2, 2, 2)}),
    "in groups": ((2, 12, 6, 6), (6, 4, 3, 3), {"group": 3, "pads": (1, 1, 1, 1)}),
    "depthwise": ((2, 32, 7, 7), (32, 1, 3, 3), {"group": 32, "pads": (1, 1, 1, 1)}),
    "1d": ((2, 17, 9), (16, 17, 3), {"pads": (1, 1)}),
    "3d": ((1, 5, 4, 5, 4), (17, 5, 2, 3, 3), {"pads": (0, 1, 1, 1, 1, 1)}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("problem", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_convolution(problem: tuple[tuple[int, ...], tuple[int, ...], Mapping[str, Any]], layout: str) -> None:
    dims, weights_dims, attrs = problem
    n = len(dims) - 2
    window: dict[str, Any] = {"strides": (1,) * n, "pads": (0,) * 2 * n, "dilations": (1,) * n, "group": 1} | dict(
        attrs
    )
    x, weights = random(*dims), random(*weights_dims, seed=1)
    gaps = tuple(each - 1 for each in window["dilations"])
    extents = windows(padded(x, window["pads"]), weights_dims[2:], window["strides"], gaps).shape[2 : 2 + n]
    grad = random(dims[0], weights_dims[0], *extents, seed=2)
    of_x, of_weights = convolution_gradients(grad, x, weights, **window)
    [found] = computed("ConvDataGradient", (grad, weights), layout, extents=dims, **attrs)
    assert_close(found, of_x)
    kernel = {"kernel_shape": weights_dims[2:]}
    both = computed("ConvWeightsGradient", (grad, x), layout, n_outputs=2, **kernel, **attrs)
    assert_close(both[0], of_weights)
    assert_close(both[1], grad.sum(axis=(0, *range(2, grad.ndim)), dtype=float))
    [alone] = computed("ConvWeightsGradient", (grad, x), layout, n_outputs=2, read=(0,), **kernel, **attrs)
    assert_close(alone, of_weights)


def test_weights_that_nobody_reads_leave_the_bias() -> None:
    x, grad = random(2, 16, 5, 5), random(2, 8, 5, 5, seed=1)
    [found] = computed("ConvWeightsGradient", (grad, x), "plain", 2, (1,), kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    assert_close(found, grad.sum(axis=(0, 2, 3), dtype=float))


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    n = draw(st.integers(1, 2))
    each = st.tuples(*[st.integers(1, 3)] * n)
    group = draw(st.sampled_from([1, 1, 2, 4]))
    ins, outs = group * draw(st.integers(1, 6)), group * draw(st.integers(1, 6))
    kernel, strides, dilations = draw(each), draw(each), draw(each)
    pads = draw(st.tuples(*[st.integers(0, 2)] * 2 * n))
    spatial = draw(st.tuples(*[st.integers(1, 8)] * n))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    assume(all(s + a + b >= r for s, a, b, r in zip(spatial, pads[:n], pads[n:], reach, strict=True)))
    dims = draw(st.integers(1, 2)), ins, *spatial
    return (
        dims,
        (outs, ins // group, *kernel),
        {"strides": strides, "pads": pads, "dilations": dilations, "group": group},
    )


@settings(max_examples=25, deadline=None)
@given(convolutions(), st.sampled_from(LAYOUTS))
def test_convolutions_as_they_come(
    problem: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], layout: str
) -> None:
    dims, weights_dims, window = problem
    x, weights = random(*dims), random(*weights_dims, seed=1)
    y = bl.conv(x, weights, **window)
    grad = random(*y.shape, seed=2)
    of_x, of_weights = convolution_gradients(grad, x, weights, **window)
    [found] = computed("ConvDataGradient", (grad, weights), layout, extents=dims, **window)
    assert_close(found, of_x)
    [found] = computed("ConvWeightsGradient", (grad, x), layout, 2, (0,), kernel_shape=weights_dims[2:], **window)
    assert_close(found, of_weights)


POOLINGS = {
    "overlapping": ((2, 17, 7, 6), (3, 3), (2, 2), (1, 1, 1, 1)),
    "side by side": ((1, 16, 4, 4), (2, 2), (2, 2), (0, 0, 0, 0)),
    "1d": ((2, 17, 9), (3,), (2,), (1, 1)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", ["max", "include", "exclude"])
@pytest.mark.parametrize("problem", POOLINGS.values(), ids=POOLINGS)
def test_pooling(problem: tuple[tuple[int, ...], ...], algorithm: str, layout: str) -> None:
    dims, kernel, strides, pads = problem
    x = np.random.default_rng(0).permutation(prod(dims)).astype(np.float32).reshape(dims) / 100  # no two are close
    grad = random(*pool(x, algorithm, kernel, strides, pads).shape, seed=1)
    expected = numeric(lambda each: pool(each, algorithm, kernel, strides, pads), x, grad, n_apart=2)
    window: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    if algorithm == "max":
        [found] = computed("MaxPoolGradient", (grad, x), layout, **window)
    else:
        counts = int(algorithm == "include")
        [found] = computed("AveragePoolGradient", (grad,), layout, extents=dims, count_include_pad=counts, **window)
    assert_close(found, expected, 1e-4)


def normalise(x: Array, scale: Array, shift: Array) -> Array:
    axes, column = (0, *range(2, x.ndim)), (1, -1, *(1,) * (x.ndim - 2))
    centred = x - x.mean(axis=axes, keepdims=True, dtype=float)
    spread = np.sqrt(x.astype(float).var(axis=axes, keepdims=True) + 1e-3)
    return np.asarray(centred / spread * scale.reshape(column) + shift.reshape(column))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", [(5, 17), (2, 17, 5, 4), (2, 16, 4, 4), (2, 5, 2, 3, 3)], ids=str)
def test_batch_normalisation(dims: tuple[int, ...], layout: str) -> None:
    x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    scale, shift, grad = random(dims[1], seed=1), random(dims[1], seed=2), random(*dims, seed=3)
    axes = (0, *range(2, len(dims)))
    y, mean, variance = computed("BatchNormTraining", (x, scale, shift), layout, 3, epsilon=1e-3)
    assert_close(y, normalise(x, scale, shift))
    assert_close(mean, x.mean(axis=axes, dtype=float))
    assert_close(variance, x.astype(float).var(axis=axes))
    found = computed("BatchNormGradient", (grad, x, scale, mean, variance), layout, 3, epsilon=1e-3)
    functions: tuple[tuple[Callable[[Array], Array], Array], ...] = (
        (lambda each: normalise(each, scale, shift), x),
        (lambda each: normalise(x, each, shift), scale),
        (lambda each: normalise(x, scale, each), shift),
    )
    for got, (function, at) in zip(found, functions, strict=True):
        assert_close(got, numeric(function, at, grad), 1e-4)
    vectors = computed("BatchNormGradient", (grad, x, scale, mean, variance), layout, 3, (1, 2), epsilon=1e-3)
    assert_close(vectors[0], found[1])
    assert_close(vectors[1], found[2])


FUNCTIONS: Mapping[str, tuple[tuple[str, float, float], Callable[[Array, Array], bl.Tensor]]] = {
    "relu": (("relu", 0, 0), bl.relu_backward),
    "leaky_relu": (("relu", 0.1, 0), lambda grad, x: bl.leaky_relu_backward(grad, x, 0.1)),
    "sqrt": (("sqrt", 0, 0), bl.sqrt_backward),
    "pow": (("pow", 1, -1), bl.reciprocal_backward),
    "neg": (("linear", -1, 0), bl.neg_backward),
    "tanh": (("tanh", 0, 0), bl.tanh_backward),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_slopes_leave_zeros_in_the_padding(function: str, layout: str) -> None:
    (algorithm, alpha, beta), expected = FUNCTIONS[function]
    x, grad = abs(random(2, 17, 5, 4)), random(2, 17, 5, 4, seed=1)
    numbers: dict[str, Any] = {"alpha": float(alpha), "beta": float(beta)}
    [found] = computed("SlopeGradient", (grad, x), layout, algorithm=algorithm, **numbers)
    assert_close(found, expected(grad, x).numpy())


IMAGE, GRAD = (2, 16, 6, 6), (2, 8, 6, 6)
WRONG: Mapping[str, tuple[str, tuple[tuple[int, ...], ...], dict[str, Any], str]] = {
    "grad of another shape": ("ConvDataGradient", (IMAGE, (8, 16, 3, 3)), {"extents": IMAGE}, "grad has extents"),
    "no extents": ("ConvDataGradient", (GRAD, (8, 16, 1, 1)), {"extents": (2, 16)}, "extents has 2 values"),
    "groups": ("ConvWeightsGradient", (GRAD, IMAGE), {"kernel_shape": (1, 1), "group": 3}, "group is 3"),
    "no kernel": ("MaxPoolGradient", (GRAD, IMAGE), {}, "kernel_shape is missing"),
    "pads": ("MaxPoolGradient", (IMAGE, IMAGE), {"kernel_shape": (1, 1), "pads": (1, 0, 0, 0)}, "pads are"),
    "vectors": ("BatchNormTraining", (IMAGE, (8,), (16,)), {}, "scale has extents [8]"),
    "slope": ("SlopeGradient", (GRAD, IMAGE), {"algorithm": "relu"}, "grad has extents"),
}


@pytest.mark.parametrize(("op_type", "shapes", "attrs", "says"), WRONG.values(), ids=WRONG)
def test_a_node_against_its_rules_is_refused(
    op_type: str, shapes: tuple[tuple[int, ...], ...], attrs: dict[str, Any], says: str
) -> None:
    b = bl.Builder()
    values = [b.input(f"x{place}", shape) for place, shape in enumerate(shapes)]
    with pytest.raises(bl.ModelError, match=says.replace("[", r"\[").replace("]", r"\]")):
        b.op(OURS + op_type, *values, **attrs)
