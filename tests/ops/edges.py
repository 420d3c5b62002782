"""Operators on extents where kernels end: of 0 and 1, of one to three spatial dimensions, windows beyond the image."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from tests.ops.cases import OpCase, Weights

_ELTWISE = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity IsNaN "
    "LeakyRelu Log LogSoftmax Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign "
    "Sqrt Tan Tanh ThresholdedRelu Hardmax Flatten Shape Size"
).split()
_BINARY = "Add Sub Mul Div Pow PRelu Max Min Mean Sum Equal Less Greater GreaterOrEqual".split()
_REDUCTIONS = [f"Reduce{name}" for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")]
_POOLS = "MaxPool AveragePool LpPool".split()
_GLOBAL = "GlobalAveragePool GlobalMaxPool".split()
_IMAGES = ((1, 1, 1), (1, 128, 1), (2, 17, 1), (1, 1, 5), (0, 3, 4), (1, 1, 1, 1), (2, 16, 1, 1), (1, 3, 1, 7), (1, 1, 1, 1, 1), (2, 9, 1, 3, 1))
_SHAPES = ((), (1,), (0,), (0, 3), (3, 0, 2), (1, 1), (1, 17), *_IMAGES)


def convolutions() -> Iterator[OpCase]:
    """Few channels, one position, groups of one channel, windows as large as the padded image."""
    for src, n_out, kernel in product(_IMAGES, (1, 4, 16, 17), (1, 3)):
        n_spatial = len(src) - 2
        pads = [kernel // 2] * 2 * n_spatial
        yield OpCase("Conv", (src, Weights((n_out, src[1]) + (kernel,) * n_spatial), Weights((n_out,))), {"pads": pads})
        yield OpCase("ConvTranspose", (src, Weights((src[1], n_out) + (kernel,) * n_spatial)), {"pads": pads} )
    for src in _IMAGES:
        n_spatial = len(src) - 2
        yield OpCase("Conv", (src, Weights((src[1], 1) + (3,) * n_spatial)), {"pads": [1] * 2 * n_spatial, "group": src[1]})
        yield OpCase("Conv", (src, Weights((2 * src[1], 1) + (3,) * n_spatial)), {"pads": [1] * 2 * n_spatial, "group": src[1]})
        yield OpCase("Conv", (src, Weights((3, src[1]) + (7,) * n_spatial)), {"pads": [6] * 2 * n_spatial, "strides": [3] * n_spatial})
        yield OpCase("Conv", (src, Weights((3, src[1]) + (3,) * n_spatial)), {"pads": [4] * 2 * n_spatial, "dilations": [3] * n_spatial})
        yield OpCase("ConvTranspose", (src, Weights((src[1], 2) + (2,) * n_spatial)), {"strides": [2] * n_spatial})


def pools() -> Iterator[OpCase]:
    for op, src, kernel in product(_POOLS, _IMAGES, (1, 2, 3)):
        n = len(src) - 2
        yield OpCase(op, (src,), {"kernel_shape": [kernel] * n, "pads": [kernel - 1] * 2 * n}, opset=18)
        yield OpCase(op, (src,), {"kernel_shape": [kernel] * n, "pads": [kernel // 2] * 2 * n, "strides": [3] * n, "ceil_mode": 1}, opset=19)
    for op, src in product(_GLOBAL, _IMAGES):
        yield OpCase(op, (src,))


def elementwise() -> Iterator[OpCase]:
    for op, src in product(_ELTWISE, _SHAPES):
        if op in ("Softmax", "LogSoftmax", "Hardmax") and not src:
            continue
        yield OpCase(op, (src,), opset=20, low=0.1, high=0.9) if op != "Acosh" else OpCase(op, (src,), opset=20, low=1.1, high=2)
    for op, src in product(_BINARY, _SHAPES):
        yield OpCase(op, (src, src), low=0.1)
        yield OpCase(op, (src, Weights((1,) * len(src), 0.1)), low=0.1)
        if op != "PRelu":
            yield OpCase(op, ((1,) * len(src), src), low=0.1)
            yield OpCase(op, ((1,), src), low=0.1)
        if len(src) > 2:
            yield OpCase(op, (src, Weights((src[1],) + (1,) * (len(src) - 2), 0.1)), low=0.1)
            yield OpCase(op, (src, (src[1],) + (1,) * (len(src) - 2)), low=0.1)


def reductions() -> Iterator[OpCase]:
    for op, src, keep in product(_REDUCTIONS, _SHAPES, (0, 1)):
        yield OpCase(op, (src,), {"keepdims": keep}, opset=18, low=0.1)
        if src:
            yield OpCase(op, (src, np.array([-1])), {"keepdims": keep}, opset=18, low=0.1)
            yield OpCase(op, (src, np.array([0])), {"keepdims": keep}, opset=18, low=0.1)
    for op, src in product(("ArgMax", "ArgMin"), _SHAPES[1:]):
        yield OpCase(op, (src,), {"axis": -1})
    for src in _SHAPES[1:]:
        yield OpCase("CumSum", (src, np.array(0)))
        yield OpCase("LayerNormalization", (src, Weights(src[-1:]), Weights(src[-1:])))


def products() -> Iterator[OpCase]:
    for m, k, n in product((0, 1, 5), (0, 1, 17), (0, 1, 16)):
        yield OpCase("MatMul", ((m, k), (k, n)))
        yield OpCase("MatMul", ((m, k), Weights((k, n))))
        yield OpCase("MatMul", ((1, 2, m, k), (k, n)))
        yield OpCase("MatMul", ((m, 1, k), (1, k, n)))
        yield OpCase("Gemm", ((m, k), Weights((k, n)), Weights((n,))))
        yield OpCase("Gemm", ((m, k), Weights((n, k)), Weights((1,))), {"transB": 1, "alpha": 0.5})
        yield OpCase("Gemm", ((k, m), (k, n)), {"transA": 1})
    for a, b in (((3,), (3,)), ((1,), (1,)), ((3,), (3, 4)), ((4, 3), (3,)), ((2, 4, 3), (3,)), ((0,), (0,)), ((1, 0), (0,))):
        yield OpCase("MatMul", (a, b))


def normalizations() -> Iterator[OpCase]:
    for src in _IMAGES:
        c = Weights((src[1],), 0.1)
        yield OpCase("BatchNormalization", (src, c, c, c, c))
        yield OpCase("InstanceNormalization", (src, c, c))
        yield OpCase("GroupNormalization", (src, Weights((src[1],), 0.1), c), {"num_groups": src[1]}, opset=21)
        yield OpCase("GroupNormalization", (src, Weights((src[1],), 0.1), c), {"num_groups": 1}, opset=21)
        if len(src) == 4:
            yield OpCase("LRN", (src,), {"size": 3})
        yield OpCase("MeanVarianceNormalization", (src,))
        yield OpCase("LpNormalization", (src,))


def movements() -> Iterator[OpCase]:
    for src in _SHAPES:
        n = len(src)
        yield OpCase("Transpose", (src,))
        yield OpCase("Expand", (src, np.array((2,) + tuple(max(e, 1) if e != 0 else 0 for e in src), np.int64)))
        yield OpCase("Unsqueeze", (src, np.array([0])))
        yield OpCase("Reshape", (src, np.array([-1] if 0 not in src else [0]))) 
        yield OpCase("Cast", (src,), {"to": 7})
        yield OpCase("Clip", (src, np.array(0.1, np.float32), np.array(0.5, np.float32)))
        yield OpCase("Where", (np.array(True), src, src))
        if not n:
            continue
        yield OpCase("Concat", (src, src), {"axis": n - 1})
        yield OpCase("Concat", (src, src, src), {"axis": 0})
        yield OpCase("Concat", (src,), {"axis": 0})
        yield OpCase("Slice", (src, np.array([0]), np.array([1]), np.array([n - 1])))
        yield OpCase("Slice", (src, np.array([-1]), np.array([-99]), np.array([0]), np.array([-1])))
        yield OpCase("Slice", (src, np.array([5]), np.array([9]), np.array([0])))
        yield OpCase("Pad", (src, np.array([1] * 2 * n)))
        yield OpCase("Pad", (src, np.array([0] * 2 * n)))
        yield OpCase("Pad", (src, np.array([2] * 2 * n)), {"mode": "edge"}) if 0 not in src else OpCase("Relu", (src,))
        yield OpCase("Gather", (src, np.array([0]))) if src[0] else OpCase("Relu", (src,))
        yield OpCase("Tile", (src, np.array([2] * n)))
        yield OpCase("Split", (src,), {"axis": 0, "num_outputs": 1}, opset=18)
        yield OpCase("Squeeze", (src,)) 
    for src in _IMAGES:
        n = len(src) - 2
        for mode in ("nearest", "linear"):
            yield OpCase("Resize", (src, None, np.array([1, 1] + [2] * n, np.float32)), {"mode": mode})
            yield OpCase("Resize", (src, None, None, np.array([*src[:2]] + [1] * n)), {"mode": mode})
            yield OpCase("Resize", (src, None, None, np.array([*src[:2]] + [4] * n)), {"mode": mode, "coordinate_transformation_mode": "align_corners"})
    for src, b in (((1, 4, 1, 1), 2), ((0, 4, 3, 3), 2), ((1, 1, 1, 1), 1), ((1, 3, 2, 2), 1)):
        yield OpCase("DepthToSpace", (src,), {"blocksize": b})
    for src, b in (((1, 1, 2, 2), 2), ((0, 1, 2, 2), 2), ((1, 1, 1, 1), 1)):
        yield OpCase("SpaceToDepth", (src,), {"blocksize": b})


FAMILIES = {each.__name__: each for each in (convolutions, pools, elementwise, reductions, products, normalizations, movements)}
