"""The gradient of every operator that has one, by differences along random directions, in every layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from tests.dnnl.running import assert_padding_is_zero
from tests.eager.gradients import LAYOUTS, Array, in_layout, random

pytestmark = [
    pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning"),
    pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning"),
]

IMAGE = (2, 18, 6, 5)
STEP = np.float32(2**-7)

Case = tuple[Callable[..., Any], tuple[Any, ...]]


def positive(*dims: int, seed: int = 0) -> Array:
    return np.asarray(np.abs(random(*dims, seed=seed)) + np.float32(0.5))


def small(*dims: int, seed: int = 0) -> Array:
    """Within -0.8 and 0.8."""
    return np.asarray(np.tanh(random(*dims, seed=seed)) * np.float32(0.8))


def apart(*dims: int) -> Array:
    """No two alike, and none within a step of another, or of 0."""
    n = int(np.prod(dims))
    return np.asarray((np.random.default_rng(0).permutation(n).reshape(dims) - n // 2 + 0.5) / 8, np.float32)


def vector(n: int = 18, seed: int = 1) -> Array:
    return random(n, seed=seed)


def onnx(op_type: str, *others: Any, **attrs: Any) -> Callable[..., Any]:
    return lambda x, *more: bl.op(op_type, x, *more, *others, **attrs)


def of_labels(op_type: str, **attrs: Any) -> Callable[..., Any]:
    labels = np.random.default_rng(0).integers(0, 18, (2, 6, 5))
    labels[0, 0] = 3
    if op_type.startswith("Soft"):
        return lambda x, *weights: bl.op(op_type, x, labels, *weights, **attrs)
    return lambda x, *weights: bl.op(op_type, bl.log_softmax(x, 1), labels, *weights, **attrs)


X = random(*IMAGE)
CASES: dict[str, Case] = {
    "Abs": (bl.abs, (apart(*IMAGE),)),
    "Acos": (onnx("Acos"), (small(*IMAGE),)),
    "Acosh": (onnx("Acosh"), (positive(*IMAGE) + 1,)),
    "Add": (bl.add, (X, random(18, 1, 5, seed=1))),
    "Asin": (onnx("Asin"), (small(*IMAGE),)),
    "Asinh": (onnx("Asinh"), (X,)),
    "Atan": (onnx("Atan"), (X,)),
    "Atanh": (onnx("Atanh"), (small(*IMAGE),)),
    "AveragePool": (lambda x: x.average_pool(3, 2, 1), (X,)),
    "AveragePool/pads": (lambda x: x.average_pool(3, 2, 1, count_include_pad=True), (X,)),
    "AveragePool/ceil": (lambda x: x.average_pool(3, 2, 1, count_include_pad=True, ceil_mode=True), (X,)),
    "BatchNormalization": (bl.batch_norm, (X, vector(), vector(seed=2), vector(seed=3), positive(18))),
    "Cast": (lambda x: x.astype("f16").astype("f32") * 2, (np.round(X * 128) / np.float32(128),)),
    "Ceil": (lambda x: bl.ceil(x) * x, (apart(*IMAGE),)),
    "Celu": (onnx("Celu", alpha=0.7), (X,)),
    "ChannelShuffle": (lambda x: x.channel_shuffle(3) * X, (X,)),
    "Clip": (lambda x: x.clip(-3, 6.03), (apart(*IMAGE),)),
    "Concat": (lambda x, y: bl.concat([x, y, x]), (X, random(2, 7, 6, 5, seed=1))),
    "Concat/aligned": (lambda x, y: bl.concat([x[:, :16], y], 1), (X, random(2, 7, 6, 5, seed=1))),
    "Conv": (lambda *given: bl.conv(*given, pads=1), (X, random(12, 18, 3, 3, seed=1), vector(12))),
    "Conv/grouped": (
        lambda *given: bl.conv(*given, strides=2, pads=(1, 0), group=3),
        (X, random(12, 6, 3, 3, seed=1), vector(12)),
    ),
    "Conv/same": (onnx("Conv", auto_pad="SAME_UPPER", strides=(2, 2)), (X, random(12, 18, 3, 3, seed=1))),
    "ConvTranspose": (
        lambda *given: bl.conv_transpose(*given, strides=2, pads=1, output_padding=1),
        (X, random(18, 4, 3, 3, seed=1), vector(4)),
    ),
    "ConvTranspose/grouped": (
        lambda *given: bl.conv_transpose(*given, strides=2, group=3, dilations=2),
        (X, random(18, 4, 3, 3, seed=1), vector(12)),
    ),
    "ConvTranspose/no bias": (lambda *given: bl.conv_transpose(*given, pads=1), (X, random(18, 4, 3, 3, seed=1))),
    "Cos": (onnx("Cos"), (X,)),
    "Cosh": (bl.cosh, (X,)),
    "CumSum": (onnx("CumSum", (1,), exclusive=1), (X,)),
    "DepthToSpace": (onnx("DepthToSpace", blocksize=3), (X,)),
    "DepthToSpace/CRD": (onnx("DepthToSpace", blocksize=3, mode="CRD"), (X,)),
    "Div": (bl.div, (X, positive(1, 18, 1, 1))),
    "Elu": (lambda x: bl.elu(x, 0.7), (X,)),
    "Erf": (onnx("Erf"), (X,)),
    "Exp": (bl.exp, (X,)),
    "Expand": (lambda x: x.expand(IMAGE) * X, (random(1, 18, 1, 5),)),
    "Flatten": (lambda x: x.flatten() * X.reshape(2, -1), (X,)),
    "Floor": (lambda x: bl.floor(x) * x, (apart(*IMAGE),)),
    "Gather": (onnx("Gather", np.array([[0, 5], [5, -1]]), axis=1), (X,)),
    "GatherElements": (onnx("GatherElements", np.full((2, 3, 6, 5), 4), axis=1), (X,)),
    "GatherND": (onnx("GatherND", np.array([[0, 5], [1, 3], [0, 5]])), (X,)),
    "Gelu": (bl.gelu, (X,)),
    "Gelu/tanh": (lambda x: bl.gelu(x, approximate=True), (X,)),
    "Gemm": (bl.gemm, (random(7, 5), random(5, 9, seed=1), random(9, seed=2))),
    "Gemm/turned": (
        lambda *given: bl.gemm(*given, alpha=0.5, beta=2.0, trans_a=True, trans_b=True),
        (random(5, 7), random(9, 5, seed=1), random(7, 1, seed=2)),
    ),
    "Gemm/a": (lambda *given: bl.gemm(*given, trans_a=True), (random(5, 7), random(5, 9, seed=1))),
    "Gemm/b": (lambda *given: bl.gemm(*given, trans_b=True), (random(7, 5), random(9, 5, seed=1))),
    "GlobalAveragePool": (bl.global_average_pool, (X,)),
    "GlobalLpPool": (bl.global_lp_pool, (X,)),
    "GlobalMaxPool": (bl.global_max_pool, (apart(*IMAGE),)),
    "GroupNormalization": (lambda *given: bl.group_norm(given[0], 3, *given[1:]), (X, vector(), vector(seed=2))),
    "HardSigmoid": (bl.hard_sigmoid, (apart(*IMAGE) / 2,)),
    "HardSwish": (bl.hard_swish, (apart(*IMAGE) / 2,)),
    "InstanceNormalization": (bl.instance_norm, (X, vector(), vector(seed=2))),
    "LRN": (lambda x: bl.lrn(x, 5, alpha=0.3), (X,)),
    "LRN/even": (lambda x: bl.lrn(x, 4, alpha=0.3, beta=0.5), (X,)),
    "LayerNormalization": (bl.layer_norm, (X, random(5, seed=1), random(5, seed=2))),
    "LayerNormalization/images": (
        lambda *given: bl.layer_norm(*given, axis=1),
        (X, random(*IMAGE[1:], seed=1), random(*IMAGE[1:], seed=2)),
    ),
    "LayerNormalization/no bias": (bl.layer_norm, (X, random(5, seed=1))),
    "LeakyRelu": (lambda x: bl.leaky_relu(x, 0.3), (apart(*IMAGE),)),
    "Log": (bl.log, (positive(*IMAGE),)),
    "LogSoftmax": (lambda x: bl.log_softmax(x, 1), (X,)),
    "LpNormalization": (onnx("LpNormalization", axis=1), (X,)),
    "LpNormalization/1": (onnx("LpNormalization", axis=1, p=1), (apart(*IMAGE),)),
    "LpPool": (lambda x: bl.lp_pool(x, 2, 1, 3), (positive(*IMAGE),)),
    "MatMul": (bl.matmul, (random(2, 3, 4, 5), random(3, 5, 6, seed=1))),
    "MatMul/vectors": (lambda x, y: bl.matmul(x, y).sum() + bl.matmul(y, x).sum(), (random(5, 5), random(5, seed=1))),
    "Max": (bl.max, (apart(*IMAGE), random(1, 18, 1, 1, seed=1), np.full((1, 1, 1, 1), 0.17, np.float32))),
    "MaxPool": (lambda x: x.max_pool(3, 2, 1, ceil_mode=True), (apart(*IMAGE),)),
    "MaxPool/indices": (lambda x: x.max_pool_with_indices(3, 2)[0], (apart(*IMAGE),)),
    "MaxUnpool": (
        lambda x: x.max_unpool(bl.max_pool_with_indices(bl.as_tensor(apart(2, 18, 12, 10)), 2)[1], 2) * 2,
        (X,),
    ),
    "Mean": (onnx("Mean"), (X, random(18, 1, 1, seed=1))),
    "Min": (bl.min, (apart(*IMAGE), random(1, 18, 1, 1, seed=1))),
    "Mish": (bl.mish, (X,)),
    "Mul": (bl.mul, (X, random(1, 18, 1, 1, seed=1))),
    "Neg": (bl.neg, (X,)),
    "NegativeLogLikelihoodLoss": (of_labels("NegativeLogLikelihoodLoss"), (X,)),
    "NegativeLogLikelihoodLoss/none": (of_labels("NegativeLogLikelihoodLoss", reduction="none", ignore_index=3), (X,)),
    "PRelu": (bl.prelu, (apart(*IMAGE), random(18, 1, 1, seed=1))),
    "Pad": (lambda x: bl.pad(x, (0, 3, 1, -1, 0, 2, 0, 2), 0.5), (X,)),
    "Pad/reflect": (lambda x: bl.pad(x, (0, 0, 2, 1, 0, 0, -1, 2), mode="reflect"), (X,)),
    "Pad/edge": (lambda x: bl.pad(x, (0, 1, 2, 1, 0, 0, 0, 2), mode="edge"), (X,)),
    "Pow": (lambda x: x**1.7, (positive(*IMAGE),)),
    "Pow/tensors": (bl.pow, (positive(*IMAGE), random(18, 1, 1, seed=1))),
    "RMSNormalization": (onnx("RMSNormalization"), (X, random(5, seed=1))),
    "Reciprocal": (bl.reciprocal, (positive(*IMAGE),)),
    "ReduceL1": (lambda x: x.reduce_l1((1, 2)), (apart(*IMAGE),)),
    "ReduceL2": (lambda x: x.reduce_l2((1, 3), keepdims=False), (X,)),
    "ReduceLogSum": (lambda x: x.reduce_log_sum((2, 3)), (positive(*IMAGE),)),
    "ReduceLogSumExp": (onnx("ReduceLogSumExp", (1,), keepdims=0), (X,)),
    "ReduceMax": (lambda x: x.reduce_max((1,)), (apart(*IMAGE),)),
    "ReduceMean": (lambda x: x.reduce_mean((0, 2), keepdims=False), (X,)),
    "ReduceMin": (lambda x: x.reduce_min((2, 3)), (apart(*IMAGE),)),
    "ReduceProd": (lambda x: x.reduce_prod((2,)), (X,)),
    "ReduceProd/zeros": (lambda x: (x * (X > -1.8).astype(np.float32)).reduce_prod((2,)), (X,)),
    "ReduceSum": (lambda x: x.sum(), (X,)),
    "ReduceSumSquare": (lambda x: x.reduce_sum_square((2, 3)), (X,)),
    "Relu": (bl.relu, (apart(*IMAGE),)),
    "Reshape": (lambda x: x.reshape((2, 3, 6, 30)) * X.reshape(2, 3, 6, 30), (X,)),
    "Resize": (lambda x: x.resize(scales=(1, 1, 2, 2), mode="linear"), (X,)),
    "Resize/nearest": (lambda x: x.upsample((1, 1, 2, 3)), (X,)),
    "Resize/fewer": (lambda x: x.resize(sizes=(2, 18, 4, 9)), (X,)),
    "Resize/cubic": (
        lambda x: x.resize(sizes=(2, 18, 9, 8), mode="cubic", coordinate_transformation_mode="align_corners"),
        (X,),
    ),
    "Round": (lambda x: bl.round(x) * x, (apart(*IMAGE) + np.float32(0.01),)),
    "Selu": (onnx("Selu"), (X,)),
    "Shrink": (onnx("Shrink", lambd=0.5, bias=0.1), (apart(*IMAGE) + np.float32(0.01),)),
    "Sigmoid": (bl.sigmoid, (X,)),
    "Sign": (lambda x: bl.op("Sign", x) * x, (apart(*IMAGE),)),
    "Sin": (onnx("Sin"), (X,)),
    "Sinh": (onnx("Sinh"), (X,)),
    "Slice": (lambda x: bl.slice(x, (1, 5), (17, -5), (1, 2), (2, -2)) * 3, (X,)),
    "Softmax": (lambda x: bl.softmax(x, 1), (X,)),
    "SoftmaxCrossEntropyLoss": (of_labels("SoftmaxCrossEntropyLoss"), (X,)),
    "SoftmaxCrossEntropyLoss/sum": (of_labels("SoftmaxCrossEntropyLoss", reduction="sum", ignore_index=3), (X,)),
    "Softplus": (bl.softplus, (X,)),
    "Softsign": (onnx("Softsign"), (X,)),
    "SpaceToDepth": (onnx("SpaceToDepth", blocksize=2), (random(2, 18, 6, 4),)),
    "Split": (lambda x: bl.split(x, (3, 8, 7))[1] * 2 + bl.split(x, (3, 8, 7))[1], (X,)),
    "Split/all": (lambda x: bl.concat([*reversed(bl.split(x, (3, 8, 7)))]) * X, (X,)),
    "Sqrt": (bl.sqrt, (positive(*IMAGE),)),
    "Squeeze": (lambda x: x.squeeze(2) * 2, (random(2, 18, 1, 5),)),
    "Sub": (bl.sub, (X, random(18, 1, 5, seed=1))),
    "Sum": (bl.sum, (X, random(18, 1, 5, seed=1), random(1, 1, 6, 5, seed=2))),
    "Swish": (lambda x: bl.swish(x, 1.5), (X,)),
    "Tan": (onnx("Tan"), (small(*IMAGE),)),
    "Tanh": (bl.tanh, (X,)),
    "ThresholdedRelu": (lambda x: bl.thresholded_relu(x, 0.3), (apart(*IMAGE),)),
    "Tile": (onnx("Tile", (1, 2, 1, 3)), (X,)),
    "Transpose": (lambda x: x.transpose((0, 2, 1, 3)) * X.transpose(0, 2, 1, 3), (X,)),
    "Trilu": (onnx("Trilu", (1,), upper=0), (X,)),
    "Unsqueeze": (lambda x: x.unsqueeze(2) * 2, (X,)),
    "Where": (lambda x, y: bl.op("Where", X > 0, x, y), (X, random(1, 18, 1, 1, seed=1))),
    "batch_norm_training": (lambda *given: bl.batch_norm_training(*given).y, (X, vector(), vector(seed=2))),
    "dropout2d": (lambda x: bl.dropout2d(x, training=True, rng=1), (X,)),
    "getitem": (lambda x: x[1, 3:17, ::-2] * 2, (X,)),
    "getitem/view": (lambda x: x[:, 8:, 1:] * 2, (X,)),
    "inner_product": (bl.inner_product, (X, random(7, *IMAGE[1:], seed=1), vector(7))),
    "moves": (lambda x: bl.reorder(x.to("channels_last").clone().contiguous(), "nChw8c") * 2, (X,)),
    "permute": (lambda x: x.permute(1, 0, -1, 2) * 2, (X,)),
    "view": (lambda x: x.to("contiguous_format").view(2, 18, -1) * 2, (X,)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_differences(name: str, layout: str) -> None:
    function, arrays = CASES[name]
    is_image = [array.ndim == len(IMAGE) and array.shape == arrays[0].shape for array in arrays]
    given = [
        in_layout(array, layout) if is_one else bl.from_array(array)
        for array, is_one in zip(arrays, is_image, strict=True)
    ]
    with bl.record() as tape:
        result = function(*given)
    upstream = random(*result.shape, seed=5)
    found = tape.gradients(result, given, grad=upstream)
    for place, (got, source) in enumerate(zip(found, given, strict=True)):
        assert got.desc == source.desc
        assert got.memory_format == source.memory_format
        assert_padding_is_zero(got.desc, got.buffer)
        direction = np.sign(random(*source.shape, seed=6))
        moved = (bl.reorder(arrays[place] + step * direction, source.desc) for step in (STEP, -STEP))
        there, back = (function(*given[:place], each, *given[place + 1 :]).numpy().astype(np.float64) for each in moved)
        expected = np.vdot(upstream, there - back) / (2 * STEP)
        scale = np.linalg.norm(got.numpy()) + 1e-3 * np.linalg.norm(upstream)
        assert abs(np.vdot(got.numpy(), direction) - expected) < 3e-3 * scale
