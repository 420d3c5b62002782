"""How operators work on permuted sources: a rule for each way in which an operator names dimensions."""

from __future__ import annotations

from collections.abc import Mapping

from blocklayout.model.passes import permuted_axes, permuted_elements, permuted_extents, permuted_reshapes
from blocklayout.model.passes import permuted_parts as parts
from blocklayout.model.passes.permuting import Rule


def rule_for(op_type: str) -> Rule | None:
    """The rule of an operator; ``None`` if it insists on the order it was given."""
    return _RULES.get(op_type)


_UNARY = """
    Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast Ceil Celu Clip Cos Cosh DequantizeLinear Dropout Elu Erf Exp
    Floor Gelu HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not QuantizeLinear Reciprocal Relu
    Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu
"""
_BROADCAST = """
    Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or
    PRelu Pow Sub Sum Where Xor
"""
_REDUCTIONS = """
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
"""
_PER_CHANNEL = """
    BatchNormalization GlobalAveragePool GlobalLpPool GlobalMaxPool GroupNormalization InstanceNormalization LRN
"""

KEEP_RANK = frozenset((*_UNARY.split(), *_BROADCAST.split(), "Pad"))
"""Operators whose result has the rank of their one source that is no constant."""

_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_UNARY.split(), permuted_elements.elementwise),
    **dict.fromkeys(_BROADCAST.split(), permuted_elements.broadcasting),
    **dict.fromkeys(_REDUCTIONS.split(), permuted_axes.reduce),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), permuted_axes.softmax),
    **dict.fromkeys(("ArgMax", "ArgMin"), permuted_axes.arg_reduce),
    **dict.fromkeys(("Reshape", "Flatten"), permuted_reshapes.reshape),
    **dict.fromkeys(("Resize", "Upsample"), permuted_extents.resize),
    **dict.fromkeys(_PER_CHANNEL.split(), parts.per_channel),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), parts.normalize_trailing),
    "Concat": permuted_elements.concat,
    "Expand": permuted_extents.expand,
    "Gather": permuted_axes.gather,
    "LpNormalization": permuted_axes.lp_normalization,
    "MatMul": parts.multiply_rows,
    "Pad": permuted_extents.pad,
    "Slice": permuted_axes.slice_,
    "Split": permuted_axes.split,
    "Squeeze": permuted_axes.squeeze,
    "Tile": permuted_extents.tile,
    "Unsqueeze": permuted_axes.unsqueeze,
}
