"""Every operator on extents where kernels end: 0 and 1, windows beyond the image, groups of one channel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
import onnx
import pytest
from onnx import helper

import blocklayout as bl
from tests.ops.cases import OpCase, Weights

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # of the reference
    pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning"),
    pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning"),
]

Shapes = Sequence[tuple[int, ...]]
IMAGES = ((1, 1, 1), (0, 3, 4), (1, 128, 1), (1, 16, 1, 1), (2, 9, 1, 3, 1))
MORE_IMAGES = ((2, 17, 1), (1, 1, 5), (1, 1, 1, 1), (1, 3, 1, 7), (1, 1, 1, 1, 1))
SHAPES = ((), (0, 3), (1, 17))
MORE_SHAPES = ((1,), (0,), (3, 0, 2), (1, 1))
ELTWISE = """
    Abs Acos Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish
    Identity IsNaN LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh
    Softplus Sqrt Tan Tanh ThresholdedRelu Shape Size
"""
BINARY = ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Equal", "Less", "Greater", "GreaterOrEqual"]
REDUCTIONS = ["L1", "L2", "LogSum", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]


def convolutions(images: Shapes) -> Iterator[OpCase]:
    for src in images:
        n, channels = len(src) - 2, src[1]
        kernel, pads = (3,) * n, [1] * 2 * n
        yield OpCase("Conv", (src, Weights((1, channels, *(1,) * n)), Weights((1,))))
        if 0 not in src:  # where the reference has no answer
            yield OpCase("ConvTranspose", (src, Weights((channels, 1, *kernel))), {"pads": pads})
            yield OpCase("ConvTranspose", (src, Weights((channels, 17, *(2,) * n))), {"strides": [2] * n})
        yield OpCase("Conv", (src, Weights((channels, 1, *kernel))), {"pads": pads, "group": channels})
        wide = {"pads": [6] * 2 * n, "strides": [3] * n}
        yield OpCase("Conv", (src, Weights((3, channels, *(7,) * n))), wide)
        yield OpCase("Conv", (src, Weights((3, channels, *kernel))), {"pads": [4] * 2 * n, "dilations": [3] * n})


def pools(images: Shapes) -> Iterator[OpCase]:
    for op_type, src, kernel in product(("MaxPool", "AveragePool", "LpPool"), images, (1, 3)):
        n = len(src) - 2
        attrs = {"kernel_shape": [kernel] * n, "pads": [kernel // 2] * 2 * n}
        if 0 not in src and op_type != "MaxPool":
            yield OpCase(op_type, (src,), attrs, opset=18)
        is_wrong = op_type == "LpPool" and n == 3 and kernel == 3
        yield OpCase(op_type, (src,), attrs | {"strides": [3] * n, "ceil_mode": 1}, 18, is_reference_wrong=is_wrong)
    for src in images:
        if 0 not in src:
            yield OpCase("GlobalAveragePool", (src,), opset=18)


def normalizations(images: Shapes) -> Iterator[OpCase]:
    for src in images:
        scale = Weights((src[1],), 0.1)
        yield OpCase("BatchNormalization", (src, scale, scale, scale, scale))
        yield OpCase("InstanceNormalization", (src, scale, scale))
        yield OpCase("LpNormalization", (src,))
        yield OpCase("LayerNormalization", (src, Weights(src[-1:]), Weights(src[-1:])))


def resizings(images: Shapes) -> Iterator[OpCase]:
    for src, mode in product(images, ("nearest", "linear")):
        n = len(src) - 2
        yield OpCase("Resize", (src, None, np.array([1, 1, *[2] * n], np.float32)), {"mode": mode})
        aligned = {"mode": mode, "coordinate_transformation_mode": "align_corners"}
        if 0 not in src:
            yield OpCase("Resize", (src, None, None, np.array([*src[:2], *[4] * n])), aligned)
    for op_type, src in (
        ("DepthToSpace", (1, 4, 1, 1)),
        ("DepthToSpace", (0, 4, 3, 3)),
        ("SpaceToDepth", (1, 1, 2, 2)),
    ):
        yield OpCase(op_type, (src,), {"blocksize": 2})


def elementwise(shapes: Shapes) -> Iterator[OpCase]:
    for op_type, src in product(ELTWISE.split(), shapes):
        yield OpCase(op_type, (src,), opset=20, low=0.1, high=0.9)
    for op_type, src in product(("Softmax", "LogSoftmax", "Hardmax"), shapes):
        if src:
            yield OpCase(op_type, (src,), opset=20)


def pairs(shapes: Shapes) -> Iterator[OpCase]:
    for op_type, src in product(BINARY, shapes):
        yield OpCase(op_type, (src, src), low=0.1)
        yield OpCase(op_type, (src, Weights((1,) * len(src), 0.1)), low=0.1)
        yield OpCase(op_type, (src, (1,)), low=0.1)
        if len(src) > 2:
            yield OpCase(op_type, (src, (src[1], *(1,) * (len(src) - 2))), low=0.1)


def reductions(shapes: Shapes) -> Iterator[OpCase]:
    for name, src, keepdims in product(REDUCTIONS, shapes, (0, 1)):
        yield OpCase(f"Reduce{name}", (src,), {"keepdims": keepdims}, opset=18, low=0.1)
        if src:
            yield OpCase(f"Reduce{name}", (src, np.array([-1])), {"keepdims": keepdims}, opset=18, low=0.1)


def products(shapes: Shapes) -> Iterator[OpCase]:
    del shapes
    for m, k, n in product((0, 1, 5), (0, 1, 17), (1, 16)):
        yield OpCase("MatMul", ((m, k), Weights((k, n))))
        yield OpCase("MatMul", ((1, 2, m, k), (k, n)))
        yield OpCase("Gemm", ((m, k), Weights((k, n)), Weights((n,))))
    for a, b in (((3,), (3,)), ((3,), (3, 4)), ((2, 4, 3), (3,)), ((0,), (0,)), ((1, 0), (0,))):
        yield OpCase("MatMul", (a, b))


def movements(shapes: Shapes) -> Iterator[OpCase]:
    for src in shapes:
        yield OpCase("Transpose", (src,))
        yield OpCase("Expand", (src, np.array((2, *src), np.int64)))
        yield OpCase("Clip", (src, np.array(0.1, np.float32), np.array(0.5, np.float32)))
        yield OpCase("Cast", (src,), {"to": 7})
        if not src:
            continue
        n = len(src)
        yield OpCase("Concat", (src, src, src), {"axis": n - 1})
        yield OpCase("Slice", (src, np.array([-1]), np.array([-99]), np.array([0]), np.array([-1])))
        yield OpCase("Slice", (src, np.array([5]), np.array([9]), np.array([0])))
        yield OpCase("Pad", (src, np.array([1] * 2 * n)))
        yield OpCase("Tile", (src, np.array([2] * n)))
        yield OpCase("Squeeze", (src,))


def _joined(cases: Sequence[OpCase]) -> onnx.ModelProto:
    """One model of all the nodes, side by side."""
    graph = onnx.GraphProto(name="edges")
    for number, case in enumerate(cases):
        graph.MergeFrom(onnx.compose.add_prefix_graph(case.model.graph, f"{number}/"))
    [opset] = {case.opset for case in cases}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


IMAGE_FAMILIES = (convolutions, pools, normalizations, resizings)
SHAPE_FAMILIES = (elementwise, pairs, reductions, products, movements)


def _check(cases: Sequence[OpCase]) -> None:
    feeds = {f"{number}/{name}": array for number, case in enumerate(cases) for name, array in case.feeds.items()}
    for case, actual in zip(cases, bl.load(_joined(cases), threads=1).run(None, feeds), strict=True):
        assert actual.shape == case.expected.shape, case
        assert actual.dtype == case.expected.dtype, case
        np.testing.assert_allclose(actual, case.expected, rtol=1e-4, atol=1e-5, err_msg=str(case))


@pytest.mark.parametrize("family", IMAGE_FAMILIES)
def test_images_of_no_and_of_one_element(family: Callable[[Shapes], Iterator[OpCase]]) -> None:
    _check([*family(IMAGES)])


@pytest.mark.parametrize("family", SHAPE_FAMILIES)
def test_tensors_of_no_and_of_one_element(family: Callable[[Shapes], Iterator[OpCase]]) -> None:
    _check([*family(SHAPES)])


@pytest.mark.full_size
@pytest.mark.parametrize("family", [*IMAGE_FAMILIES, *SHAPE_FAMILIES])
def test_more_of_no_and_of_one_element(family: Callable[[Shapes], Iterator[OpCase]]) -> None:
    _check([*family(MORE_IMAGES if family in IMAGE_FAMILIES else (*MORE_SHAPES, *IMAGES, *MORE_IMAGES))])
