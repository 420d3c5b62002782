"""One call of every operator on Tensors, with what the reference computes it by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from blocklayout import eager

C, OC = 17, 24


@dataclass(frozen=True)
class Case:
    """A call.

    Attributes:
        name: The function's.
        shapes: Of the tensors it is called with; the first one's format is what the rules look at.
        call: The function on Tensors or arrays.
        reference: The same on a builder's values; the builder is that of the first.
        positive: Whether the tensors hold positive numbers only.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    call: Callable[..., Any]
    reference: Callable[..., Any]
    positive: bool = False

    def arrays(self, seed: int = 0) -> list[np.ndarray]:
        """What it is called with; multiples of 1/64, so that nothing lies at the edge of rounding."""
        rng = np.random.default_rng(seed)
        low = 8 if self.positive else -192
        return [(rng.integers(low, 192, shape) / 64 + 1 / 256).astype(np.float32) for shape in self.shapes]

    def __str__(self) -> str:
        return self.name


IMAGE = (2, C, 6, 5)
VECTOR = (C,)


def op(op_type: str, *more: Any, **attrs: Any) -> Callable[..., Any]:
    """An operator by ONNX's name, with constants behind its tensors."""
    return lambda *values: values[0].builder.op(op_type, *values, *more, **attrs)


def unary(
    name: str, op_type: str, *, positive: bool = False, given: dict[str, Any] | None = None, **attrs: Any
) -> Case:
    function = getattr(eager, name)
    known = attrs if given is None else given
    return Case(name, (IMAGE,), lambda x: function(x, **known), op(op_type, **attrs), positive)


def binary(name: str, op_type: str, other: tuple[int, ...] = IMAGE, *, positive: bool = False) -> Case:
    return Case(name, (IMAGE, other), getattr(eager, name), op(op_type), positive)


def reduction(name: str, *, positive: bool = False) -> Case:
    op_type = "Reduce" + "".join(word.capitalize() for word in name.removeprefix("reduce_").split("_"))
    return Case(
        name,
        (IMAGE,),
        lambda x: getattr(eager, name)(x, (2, 3)),
        op(op_type, np.array([2, 3]), keepdims=1),
        positive,
    )


UNARY = (
    *(
        unary(name, op_type)
        for name, op_type in (
            ("abs", "Abs"),
            ("ceil", "Ceil"),
            ("cosh", "Cosh"),
            ("exp", "Exp"),
            ("floor", "Floor"),
            ("hard_swish", "HardSwish"),
            ("mish", "Mish"),
            ("neg", "Neg"),
            ("relu", "Relu"),
            ("round", "Round"),
            ("sigmoid", "Sigmoid"),
            ("sign", "Sign"),
            ("softplus", "Softplus"),
            ("tanh", "Tanh"),
            ("identity", "Identity"),
        )
    ),
    unary("log", "Log", positive=True),
    unary("sqrt", "Sqrt", positive=True),
    unary("reciprocal", "Reciprocal", positive=True),
    unary("elu", "Elu", alpha=0.7),
    unary("leaky_relu", "LeakyRelu", alpha=0.2),
    unary("thresholded_relu", "ThresholdedRelu", alpha=0.5),
    unary("hard_sigmoid", "HardSigmoid", alpha=0.3, beta=0.4),
    unary("gelu", "Gelu", given={}),
    Case("swish", (IMAGE,), eager.swish, lambda x: x * x.sigmoid()),
    Case("clip", (IMAGE,), lambda x: eager.clip(x, 0.5, 1.5), lambda x: x.clip(0.5, 1.5)),
    Case("dropout", (IMAGE,), eager.dropout, op("Identity")),
    Case("dropout2d", (IMAGE,), eager.dropout2d, op("Identity")),
    Case("dropout3d", ((2, C, 3, 2, 2),), eager.dropout3d, op("Identity")),
)
BINARY = (
    binary("add", "Add"),
    binary("sub", "Sub"),
    binary("mul", "Mul"),
    binary("div", "Div", positive=True),
    binary("max", "Max"),
    binary("min", "Min"),
    binary("sum", "Sum"),
    binary("pow", "Pow", positive=True),
    binary("prelu", "PRelu", (C, 1, 1)),
    binary("equal", "Equal"),
    binary("less", "Less"),
    binary("less_or_equal", "LessOrEqual"),
    binary("greater", "Greater"),
    binary("greater_or_equal", "GreaterOrEqual"),
    Case("not_equal", (IMAGE, IMAGE), eager.not_equal, lambda x, y: x.builder.op("Not", x.builder.op("Equal", x, y))),
)
CONVOLUTIONS = (
    Case(
        "conv",
        (IMAGE, (OC, C, 3, 3), (OC,)),
        lambda x, w, b: eager.conv(x, w, b, pads=1, strides=2),
        lambda x, w, b: x.conv(w, b, pads=1, strides=2),
    ),
    Case(
        "conv_transpose",
        (IMAGE, (C, OC, 3, 3), (OC,)),
        lambda x, w, b: eager.conv_transpose(x, w, b, strides=2, pads=1, output_padding=1),
        lambda x, w, b: x.conv_transpose(w, b, strides=2, pads=1, output_padding=1),
    ),
)


def _pooled_and_back(x: Any) -> Any:
    y, indices = eager.max_pool_with_indices(x, 2)
    return eager.max_unpool(y, indices, 2, output_shape=IMAGE)


def _unpooled(y: Any, indices: Any) -> Any:
    return y.max_unpool(indices, 2, output_shape=IMAGE)


POOLINGS = (
    Case("max_pool", (IMAGE,), lambda x: eager.max_pool(x, 3, 2, 1), lambda x: x.max_pool(3, 2, 1)),
    Case(
        "max_pool_with_indices",
        (IMAGE,),
        lambda x: eager.max_pool_with_indices(x, 3, 2, 1)[0],
        lambda x: x.max_pool(3, 2, 1),
    ),
    Case(
        "max_unpool",
        (IMAGE,),
        _pooled_and_back,
        lambda x: _unpooled(*x.max_pool_with_indices(2)),
    ),
    Case("average_pool", (IMAGE,), lambda x: eager.average_pool(x, 3, 2, 1), lambda x: x.average_pool(3, 2, 1)),
    Case("lp_pool", (IMAGE,), lambda x: eager.lp_pool(x, (2, 2)), op("LpPool", kernel_shape=(2, 2), strides=(2, 2))),
    unary("global_average_pool", "GlobalAveragePool"),
    unary("global_max_pool", "GlobalMaxPool"),
    Case("global_lp_pool", (IMAGE,), eager.global_lp_pool, op("ReduceL2", np.array([2, 3]), keepdims=1)),
)
NORMALIZATIONS = (
    Case(
        "batch_norm",
        (IMAGE, VECTOR, VECTOR, VECTOR, VECTOR),
        eager.batch_norm,
        lambda x, *vectors: x.batch_norm(*vectors),
        positive=True,
    ),
    Case("layer_norm", (IMAGE, (5,), (5,)), eager.layer_norm, lambda x, s, b: x.layer_norm(s, b)),
    Case(
        "group_norm",
        ((2, 16, 6, 5), (16,), (16,)),
        lambda x, s, b: eager.group_norm(x, 4, s, b),
        lambda x, s, b: _grouped(x, 4) * s.reshape((16, 1, 1)) + b.reshape((16, 1, 1)),
    ),
    Case("instance_norm", (IMAGE, VECTOR, VECTOR), eager.instance_norm, op("InstanceNormalization")),
    Case("lrn", (IMAGE,), lambda x: eager.lrn(x, 5, 0.5), lambda x: _lrn(x, 5, 0.5)),
    Case("softmax", (IMAGE,), lambda x: eager.softmax(x, 1), lambda x: x.softmax(1)),
    Case("log_softmax", (IMAGE,), lambda x: eager.log_softmax(x, 1), op("LogSoftmax", axis=1)),
)
REDUCTIONS = (
    *(reduction(f"reduce_{name}") for name in ("l1", "l2", "max", "mean", "min", "prod", "sum", "sum_square")),
    reduction("reduce_log_sum", positive=True),
)
SHAPING = (
    Case("reshape", (IMAGE,), lambda x: eager.reshape(x, (2, -1, 5)), lambda x: x.reshape((2, -1, 5))),
    Case("flatten", (IMAGE,), eager.flatten, lambda x: x.flatten()),
    Case("squeeze", ((2, C, 1, 5),), lambda x: eager.squeeze(x, 2), op("Squeeze", np.array([2]))),
    Case("unsqueeze", (IMAGE,), lambda x: eager.unsqueeze(x, 1), op("Unsqueeze", np.array([1]))),
    Case("transpose", (IMAGE,), lambda x: eager.transpose(x, (0, 2, 3, 1)), lambda x: x.transpose((0, 2, 3, 1))),
    Case("expand", ((2, C, 1, 5),), lambda x: eager.expand(x, (2, C, 6, 5)), op("Expand", np.array([2, C, 6, 5]))),
    Case("concat", (IMAGE, IMAGE), lambda *xs: eager.concat(xs), lambda *xs: xs[0].builder.concat(xs)),
    Case("split", (IMAGE,), lambda x: eager.split(x, (8, 9)), lambda x: x.split((8, 9))),
    Case(
        "slice",
        (IMAGE,),
        lambda x: eager.slice(x, (1, 0), (6, 4), (2, 3), (2, 1)),
        op("Slice", np.array([1, 0]), np.array([6, 4]), np.array([2, 3]), np.array([2, 1])),
    ),
    Case(
        "pad",
        (IMAGE,),
        lambda x: eager.pad(x, (0, 0, 1, 2, 0, 0, 2, 1), 0.5),
        op("Pad", np.array([0, 0, 1, 2, 0, 0, 2, 1]), np.float32(0.5)),
    ),
    Case(
        "resize",
        (IMAGE,),
        lambda x: eager.resize(x, scales=(1, 1, 2, 2), mode="linear"),
        op("Resize", None, np.array([1, 1, 2, 2], np.float32), mode="linear"),
    ),
    Case(
        "upsample",
        (IMAGE,),
        lambda x: eager.upsample(x, (1, 1, 2, 2)),
        op(
            "Resize",
            None,
            np.array([1, 1, 2, 2], np.float32),
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
    ),
    Case(
        "channel_shuffle",
        ((2, 16, 6, 5),),
        lambda x: eager.channel_shuffle(x, 4),
        lambda x: x.reshape((2, 4, 4, 6, 5)).transpose((0, 2, 1, 3, 4)).reshape((2, 16, 6, 5)),
    ),
)
MATRICES = (
    Case("matmul", ((5, C), (C, 7)), eager.matmul, op("MatMul")),
    Case("gemm", ((5, C), (7, C), (7,)), lambda x, y, c: eager.gemm(x, y, c, trans_b=True), op("Gemm", transB=1)),
)
IMAGES: Sequence[Case] = (*UNARY, *BINARY, *CONVOLUTIONS, *POOLINGS, *NORMALIZATIONS, *REDUCTIONS, *SHAPING)
CASES: Sequence[Case] = (*IMAGES, *MATRICES)


def _lrn(x: Any, size: int, alpha: float) -> Any:
    """As its definition has it; the reference evaluator's own is wrong beyond the first channels."""
    around = x.builder.op("Pad", x * x, np.array([0, size // 2, 0, 0] * 2))
    neighbours = [_channels(around, first, first + x.shape[1]) for first in range(size)]
    total = x.builder.op("Sum", *neighbours)
    return x / x.builder.op("Pow", total * np.float32(alpha / size) + np.float32(1), np.float32(0.75))


def _channels(x: Any, start: int, end: int) -> Any:
    return x.builder.op("Slice", x, np.array([start]), np.array([end]), np.array([1]))


def _grouped(x: Any, n_groups: int) -> Any:
    n, c, *spatial = x.shape
    rows = x.reshape((n * n_groups, -1))
    ones = np.ones(rows.shape[1], np.float32)
    return rows.layer_norm(ones, 0 * ones).reshape((n, c, *spatial))


def reference(case: Case, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What ``onnx.reference`` makes of the same."""
    from onnx.reference import ReferenceEvaluator

    from blocklayout import Builder

    builder = Builder()
    values = [builder.input(f"x{number}", array.shape) for number, array in enumerate(arrays)]
    made = case.reference(*values)
    for number, value in enumerate(made if isinstance(made, tuple) else (made,)):
        builder.output(f"y{number}", value)
    feed = {f"x{number}": array for number, array in enumerate(arrays)}
    return list(ReferenceEvaluator(builder.to_onnx()).run(None, feed))
