"""The names of oneDNN's algorithms, as ``dnnl_alg_kind_t`` spells them."""

from __future__ import annotations

from blocklayout.errors import InvalidArgumentsError

_ELTWISE = (
    "relu tanh elu square abs sqrt linear soft_relu hardsigmoid logistic exp gelu_tanh swish log clip clip_v2 pow "
    "gelu_erf round mish hardswish relu_use_dst_for_bwd tanh_use_dst_for_bwd elu_use_dst_for_bwd sqrt_use_dst_for_bwd "
    "logistic_use_dst_for_bwd exp_use_dst_for_bwd clip_v2_use_dst_for_bwd"
)
_FAMILIES = {
    "convolution": "direct winograd auto",
    "deconvolution": "direct winograd",
    "eltwise": _ELTWISE,
    "binary": "add mul max min div sub ge gt le lt eq ne",
    "pooling": "max avg_include_padding avg_exclude_padding",
    "lrn": "across_channels within_channel",
    "reduction": "max min sum mul mean norm_lp_max norm_lp_sum norm_lp_power_p_max norm_lp_power_p_sum",
    "resampling": "nearest linear",
    "softmax": "accurate log",
}

_CELLS = "vanilla_rnn vanilla_lstm vanilla_gru lbr_gru vanilla_augru lbr_augru"
ALGORITHMS: dict[str, tuple[str, ...]] = {
    family: tuple(f"{family}_{name}" for name in names.split()) for family, names in _FAMILIES.items()
} | {"rnn": tuple(_CELLS.split())}
"""Algorithms by the kind of primitive they belong to."""


def full_algorithm(family: str, name: str) -> str:
    """The full name of an algorithm, which may be given without its family.

    Raises:
        InvalidArgumentsError: The family has no such algorithm.

    Example:
        >>> full_algorithm("eltwise", "relu"), full_algorithm("binary", "binary_add")
        ('eltwise_relu', 'binary_add')
    """
    known = ALGORITHMS[family]
    if name in known:
        return name
    if f"{family}_{name}" in known:
        return f"{family}_{name}"
    message = f"{family}: algorithm {name!r} does not exist; give one of {', '.join(known)}"
    raise InvalidArgumentsError(message)
