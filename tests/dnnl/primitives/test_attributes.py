"""Post-ops, scales and math modes against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.errors import InvalidArgumentsError, UnimplementedError
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import LAYOUTS, assert_close, check, convolve, desc, execute, random

Array = np.ndarray

SRC, WEIGHTS, DST = (2, 17, 7, 6), (19, 17, 3, 3), (2, 19, 7, 6)
GEOMETRY = (1, 1), (1, 1, 1, 1), (0, 0)


def conv_spec(layout: str, *post_ops: dnnl.PostOp) -> dnnl.Spec:
    attr = dnnl.Attr(post_ops)
    return dnnl.convolution(desc(SRC, layout), dnnl.AnyDesc(WEIGHTS), desc(DST, layout), pads=1, attr=attr)


def conv_data() -> tuple[dict[str, Array], Array]:
    x, w = random(*SRC), random(*WEIGHTS)
    return {"src": x, "weights": w}, convolve(x, w, *GEOMETRY)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sum_then_relu(layout: str) -> None:
    given, expected = conv_data()
    held = random(*DST, seed=5)
    spec = conv_spec(layout, dnnl.Sum(0.5), dnnl.Eltwise("relu"))
    check(spec, {**given, "dst": held}, np.maximum(expected + 0.5 * held, 0))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", [DST, (1, 19, 1, 1), (1, 1, 1, 1), (2, 19, 1, 1)], ids=str)
def test_binary_post_op(dims: tuple[int, ...], layout: str) -> None:
    given, expected = conv_data()
    other = random(*dims, seed=5)
    spec = conv_spec(layout, dnnl.Eltwise("relu"), dnnl.Binary("mul", desc(dims, layout if dims == DST else "plain")))
    check(spec, {**given, "post_op_1_src_1": other}, np.maximum(expected, 0) * other)


def test_a_binary_post_op_may_leave_its_layout_to_the_primitive() -> None:
    given, expected = conv_data()
    spec = conv_spec("channels_last", dnnl.Binary("add", dnnl.AnyDesc(DST)))
    resolved = dnnl.resolve(spec).spec
    assert resolved.memory_desc("post_op_0_src_1").physically_equal(desc(DST, "channels_last"))
    assert resolved.attr.post_ops == (dnnl.Binary("add", resolved.memory_desc("post_op_0_src_1")),)
    assert dnnl.resolve(resolved).spec == resolved
    check(spec, {**given, "post_op_0_src_1": expected.astype(np.float32)}, 2 * expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mask", [0, 2, 15])
def test_prelu_post_op(mask: int, layout: str) -> None:
    given, expected = conv_data()
    slopes = random(*(extent if mask >> dim & 1 else 1 for dim, extent in enumerate(DST)), seed=5)
    spec = conv_spec(layout, dnnl.Prelu(mask))
    check(spec, {**given, "post_op_0_weights": slopes}, np.where(expected > 0, expected, expected * slopes))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_chain_of_post_ops(layout: str) -> None:
    given, expected = conv_data()
    scale, shift = random(1, 19, 1, 1, seed=5), random(1, 19, 1, 1, seed=6)
    vector = desc(scale.shape, "plain")
    chain = (dnnl.Binary("mul", vector), dnnl.Eltwise("tanh"), dnnl.Binary("add", vector), dnnl.Eltwise("clip", -1, 1))
    given |= {"post_op_0_src_1": scale / 8, "post_op_2_src_1": shift}
    check(conv_spec(layout, *chain), given, np.clip(np.tanh(expected * scale / 8) + shift, -1, 1))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("layout", ["any", "channels_last", "blocked8"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_depthwise_post_op(stride: int, layout: str, has_bias: bool) -> None:  # noqa: FBT001
    x, w, depthwise = random(1, 16, 9, 8), random(24, 16, 1, 1), random(24, 1, 3, 3, seed=5)
    post_op = dnnl.DepthwiseConv(3, stride, 1, bias_dtype="f32" if has_bias else "")
    make = dnnl.AnyDesc if layout == "any" else (lambda dims: desc(dims, layout))
    spec = dnnl.convolution(
        make(x.shape), dnnl.AnyDesc(w.shape), make((1, 24, 9, 8)), attr=dnnl.Attr((post_op, dnnl.Eltwise("relu")))
    )
    inner = convolve(x, w, (1, 1), (0,) * 4, (0, 0))
    expected = convolve(inner, depthwise, (stride, stride), (1, 1, 1, 1), (0, 0), groups=24)
    given = {"src": x, "weights": w, "post_op_0_weights": depthwise.reshape(24, 1, 1, 3, 3)}
    if has_bias:
        given["post_op_0_bias"] = random(24, seed=6)
        expected = expected + given["post_op_0_bias"].reshape(24, 1, 1)
    resolved = dnnl.resolve(spec).spec
    assert resolved.desc("dst").dims == (1, 24, -(-9 // stride), 8 // stride)
    assert dnnl.resolve(resolved).spec == resolved
    assert dnnl.validate(dnnl.Spec.from_dict(resolved.to_dict())) == resolved
    check(spec, given, np.maximum(expected, 0))
    assert dnnl.multiply_adds(spec) == 9 * 8 * 24 * 16 + expected.size * 9
    assert dnnl.multiply_adds(resolved) == dnnl.multiply_adds(spec)


def test_post_ops_of_other_kinds() -> None:
    x, w = random(5, 17), random(17, 3)
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    product = x.astype(np.float64) @ w
    check(
        dnnl.matmul(desc((5, 17), "plain"), dnnl.AnyDesc((17, 3)), attr=attr),
        {"src": x, "weights": w},
        np.maximum(product, 0),
    )
    spec = dnnl.inner_product(dnnl.AnyDesc((5, 17)), dnnl.AnyDesc((3, 17)), attr=attr)
    check(spec, {"src": x, "weights": w.T}, np.maximum(product, 0))
    plain = desc((5, 17), "plain")
    binary = dnnl.binary(plain, plain, None, "add", attr=attr)
    check(binary, {"src_0": x, "src_1": x}, np.maximum(2 * x, 0))
    image = random(1, 17, 4, 4)
    pooling = dnnl.pooling(desc(image.shape, "plain"), None, "max", 4, attr=attr)
    check(pooling, {"src": image}, np.maximum(image.max(axis=(2, 3), keepdims=True), 0))


def test_scales_of_each_channel() -> None:
    x = np.rint(random(5, 17) * 20)
    scales = np.abs(random(17, seed=3))
    spec = dnnl.reorder(desc(x.shape, "plain"), desc(x.shape, "plain"), attr=dnnl.Attr(scales=(("src", 2),)))
    names = [name for name, _ in dnnl.resolve(spec).spec.descs]
    assert names == ["src", "dst", "scale_src"]
    check(spec, {"src": x, "scale_src": scales}, x * scales)


def test_scales_of_quantised_operands() -> None:
    generator = np.random.default_rng(0)
    x, w = generator.integers(0, 100, (4, 16), np.uint8), generator.integers(-90, 90, (16, 8), np.int8)
    plain = dnnl.MemoryDesc
    attr = dnnl.Attr(scales=(("src", 0), ("weights", 2)))
    spec = dnnl.matmul(plain(x.shape, "u8"), plain(w.shape, "s8"), plain((4, 8), "f32"), attr=attr)
    given = {"src": x, "weights": w, "scale_src": np.array([0.5], np.float32), "scale_weights": np.abs(random(8))}
    product = x.astype(np.float64) @ w
    check(spec, given, product * 0.5 * given["scale_weights"], 1e-4)


@pytest.mark.parametrize("fpmath", ["strict", "bf16", "any"])
def test_math_modes_only_permit(fpmath: str) -> None:
    given, expected = conv_data()
    spec = dnnl.convolution(dnnl.AnyDesc(SRC), dnnl.AnyDesc(WEIGHTS), pads=1, attr=dnnl.Attr(fpmath=fpmath))
    assert_close(execute(spec, given)["dst"], expected, 1e-5 if fpmath == "strict" else 2e-2)


@pytest.mark.parametrize(
    ("attr", "message"),
    [
        (dnnl.Attr((dnnl.Binary("add", dnnl.AnyDesc((2, 18, 1, 1))),)), "src1 has extents"),
        (dnnl.Attr((dnnl.Binary("add"),)), "no src1"),
        (dnnl.Attr((dnnl.Prelu(16),)), "mask 16"),
        (dnnl.Attr((dnnl.Sum(dtype="s8"),)), "as wide as its f32"),
        (dnnl.Attr(scales=(("mean", 0),)), "names 'mean'"),
        (dnnl.Attr(scales=(("src", 16),)), "mask 16"),
        (dnnl.Attr((dnnl.DepthwiseConv(),)), "1x1 convolution"),
    ],
)
def test_attributes_that_do_not_fit(attr: dnnl.Attr, message: str) -> None:
    with pytest.raises(InvalidArgumentsError, match=message):
        dnnl.resolve(dnnl.convolution(dnnl.AnyDesc(SRC), dnnl.AnyDesc(WEIGHTS), pads=1, attr=attr))


SOURCE = MemoryDesc((2, 16, 6, 6))
UNDOCUMENTED = {
    "a sum behind a pooling": lambda attr: dnnl.pooling(SOURCE, SOURCE, "avg_include_padding", 3, 1, 1, attr=attr),
    "a sum behind an eltwise": lambda attr: dnnl.eltwise(SOURCE, SOURCE, "relu", attr=attr),
    "a sum behind a softmax": lambda attr: dnnl.softmax(SOURCE, SOURCE, 1, attr=attr),
    "a sum behind a concat": lambda attr: dnnl.concat([SOURCE, SOURCE], None, 1, attr=attr),
    "a sum behind a local normalisation": lambda attr: dnnl.lrn(SOURCE, SOURCE, attr=attr),
}


@pytest.mark.parametrize("case", UNDOCUMENTED)
def test_post_ops_that_a_primitive_does_not_document_are_refused(case: str) -> None:
    with pytest.raises(InvalidArgumentsError, match=r"attr.post_ops\[0\] is Sum; \w+ takes"):
        UNDOCUMENTED[case](dnnl.Attr((dnnl.Sum(),)))


@pytest.mark.parametrize("zero", [0, 7])
@pytest.mark.parametrize("dims", [(1, 64, 7, 7), (2, 256, 5, 5), (1, 17, 8, 8), (1, 3, 9, 11)], ids=str)
@pytest.mark.parametrize(
    "layouts", [("nhwc", "nchw"), ("nchw", "nhwc"), ("nhwc", "nhwc"), ("nhwc", "nChw16c")], ids=str
)
def test_numbers_of_bytes_are_right_or_not_offered(layouts: tuple[str, str], dims: tuple[int, ...], zero: int) -> None:
    src, dst = (MemoryDesc(dims, dtype, tag) for dtype, tag in zip(("u8", "f32"), layouts, strict=True))
    attr = dnnl.Attr(scales=(("src", 0),), zero_points=(("src", 0),) if zero else ())
    spec = dnnl.reorder(src, dst, attr=attr)
    try:
        dnnl.resolve(spec)
    except UnimplementedError:
        assert zero, "a scale alone works in all layouts"
        return
    x = np.random.default_rng(0).integers(0, 256, dims).astype(np.uint8)
    given: dict[str, Array] = {"src": x, "scale_src": np.full(1, 0.5, np.float32)}
    given |= {"zero_point_src": np.full(1, zero, np.int32)} if zero else {}
    check(spec, given, (x.astype(np.float32) - zero) * 0.5)
