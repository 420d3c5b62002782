"""Normalisations and softmax: the result has the source's format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.eager.call import Op, call
from blocklayout.eager.operands import as_tensor

if TYPE_CHECKING:
    from blocklayout.eager.operands import Operand
    from blocklayout.model import BuildValue
    from blocklayout.tensor import Tensor


def _group_norm(x: BuildValue, scale: BuildValue, bias: BuildValue, **attrs: Any) -> BuildValue:
    """Normalised with constants that change nothing, then scaled and shifted: the recipe takes none that come later."""
    n_channels = x.shape[1]
    ones, zeros = np.ones(n_channels, np.float32), np.zeros(n_channels, np.float32)
    normal = x.builder.op("GroupNormalization", x, ones, zeros, **attrs)
    column = (n_channels, *(1,) * (len(x.shape) - 2))
    return normal * scale.reshape(column) + bias.reshape(column)  # type: ignore[no-any-return]


_BATCH_NORM = Op(
    "batch_norm",
    ("x", "scale", "bias", "mean", "var"),
    lambda x, scale, bias, mean, var, **attrs: x.batch_norm(scale, bias, mean, var, **attrs),
)
_LAYER_NORM = Op(
    "layer_norm", ("x", "scale", "bias"), lambda x, scale, bias=None, **attrs: x.layer_norm(scale, bias, **attrs)
)
_GROUP_NORM = Op("group_norm", ("x", "scale", "bias"), _group_norm, op_type="GroupNormalization")
_INSTANCE_NORM = Op("instance_norm", ("x", "scale", "bias"), op_type="InstanceNormalization")
_LRN = Op("lrn", build=lambda x, **attrs: x.lrn(**attrs))
_SOFTMAX = Op("softmax", op_type="Softmax")
_LOG_SOFTMAX = Op("log_softmax", op_type="LogSoftmax")


def batch_norm(x: Operand, scale: Operand, bias: Operand, mean: Operand, var: Operand, epsilon: float = 1e-5) -> Tensor:
    """Normalisation of channels by known statistics, each of shape (channels,); see also ``batch_norm_training``."""
    vectors = (("scale", scale), ("bias", bias), ("mean", mean), ("var", var))
    operands = (as_tensor(x, "x"), *(as_tensor(vector, name) for name, vector in vectors))
    return call(_BATCH_NORM, operands, (("epsilon", float(epsilon)),))[0]


def layer_norm(
    x: Operand, scale: Operand, bias: Operand | None = None, *, axis: int = -1, epsilon: float = 1e-5
) -> Tensor:
    """Normalisation over the dimensions from ``axis`` on, by their own statistics; vectors have those extents."""
    operands = (as_tensor(x, "x"), as_tensor(scale, "scale"), None if bias is None else as_tensor(bias, "bias"))
    return call(_LAYER_NORM, operands, (("axis", axis), ("epsilon", float(epsilon))))[0]


def group_norm(x: Operand, n_groups: int, scale: Operand, bias: Operand, epsilon: float = 1e-5) -> Tensor:
    """Normalisation of groups of channels by their own statistics; ``scale`` and ``bias`` of shape (channels,)."""
    operands = (as_tensor(x, "x"), as_tensor(scale, "scale"), as_tensor(bias, "bias"))
    return call(_GROUP_NORM, operands, (("num_groups", n_groups), ("epsilon", float(epsilon))))[0]


def instance_norm(x: Operand, scale: Operand, bias: Operand, epsilon: float = 1e-5) -> Tensor:
    """Normalisation of each channel of each image by its own statistics; vectors of shape (channels,)."""
    operands = (as_tensor(x, "x"), as_tensor(scale, "scale"), as_tensor(bias, "bias"))
    return call(_INSTANCE_NORM, operands, (("epsilon", float(epsilon)),))[0]


def lrn(x: Operand, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    """Local response normalisation across ``size`` channels."""
    attrs = (("size", size), ("alpha", float(alpha)), ("beta", float(beta)), ("bias", float(bias)))
    return call(_LRN, (as_tensor(x, "x"),), attrs)[0]


def softmax(x: Operand, axis: int = -1) -> Tensor:
    """Softmax along ``axis``."""
    return call(_SOFTMAX, (as_tensor(x, "x"),), (("axis", axis),))[0]


def log_softmax(x: Operand, axis: int = -1) -> Tensor:
    """The logarithm of softmax along ``axis``."""
    return call(_LOG_SOFTMAX, (as_tensor(x, "x"),), (("axis", axis),))[0]
