"""blocklayout runs convolutional networks on CPUs and chooses every tensor's memory layout.

Importing it loads nothing but this file: each name below is fetched from its home at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blocklayout import dnnl as dnnl
    from blocklayout.api import load as load
    from blocklayout.api import save as save
    from blocklayout.eager import abs as abs
    from blocklayout.eager import add as add
    from blocklayout.eager import average_pool as average_pool
    from blocklayout.eager import batch_norm as batch_norm
    from blocklayout.eager import cast as cast
    from blocklayout.eager import cast_like as cast_like
    from blocklayout.eager import ceil as ceil
    from blocklayout.eager import channel_shuffle as channel_shuffle
    from blocklayout.eager import clip as clip
    from blocklayout.eager import concat as concat
    from blocklayout.eager import conv as conv
    from blocklayout.eager import conv_transpose as conv_transpose
    from blocklayout.eager import conv_transpose_weights as conv_transpose_weights
    from blocklayout.eager import conv_weights as conv_weights
    from blocklayout.eager import div as div
    from blocklayout.eager import dropout as dropout
    from blocklayout.eager import elu as elu
    from blocklayout.eager import exp as exp
    from blocklayout.eager import expand as expand
    from blocklayout.eager import flatten as flatten
    from blocklayout.eager import floor as floor
    from blocklayout.eager import gelu as gelu
    from blocklayout.eager import gemm as gemm
    from blocklayout.eager import global_average_pool as global_average_pool
    from blocklayout.eager import global_lp_pool as global_lp_pool
    from blocklayout.eager import global_max_pool as global_max_pool
    from blocklayout.eager import group_norm as group_norm
    from blocklayout.eager import hard_sigmoid as hard_sigmoid
    from blocklayout.eager import hard_swish as hard_swish
    from blocklayout.eager import identity as identity
    from blocklayout.eager import instance_norm as instance_norm
    from blocklayout.eager import layer_norm as layer_norm
    from blocklayout.eager import leaky_relu as leaky_relu
    from blocklayout.eager import log as log
    from blocklayout.eager import log_softmax as log_softmax
    from blocklayout.eager import lp_pool as lp_pool
    from blocklayout.eager import lrn as lrn
    from blocklayout.eager import matmul as matmul
    from blocklayout.eager import max as max
    from blocklayout.eager import max_pool as max_pool
    from blocklayout.eager import min as min
    from blocklayout.eager import mish as mish
    from blocklayout.eager import mul as mul
    from blocklayout.eager import neg as neg
    from blocklayout.eager import op as op
    from blocklayout.eager import pad as pad
    from blocklayout.eager import pow as pow
    from blocklayout.eager import prelu as prelu
    from blocklayout.eager import reciprocal as reciprocal
    from blocklayout.eager import reduce_l1 as reduce_l1
    from blocklayout.eager import reduce_l2 as reduce_l2
    from blocklayout.eager import reduce_log_sum as reduce_log_sum
    from blocklayout.eager import reduce_max as reduce_max
    from blocklayout.eager import reduce_mean as reduce_mean
    from blocklayout.eager import reduce_min as reduce_min
    from blocklayout.eager import reduce_prod as reduce_prod
    from blocklayout.eager import reduce_sum as reduce_sum
    from blocklayout.eager import reduce_sum_square as reduce_sum_square
    from blocklayout.eager import relu as relu
    from blocklayout.eager import reshape as reshape
    from blocklayout.eager import resize as resize
    from blocklayout.eager import round as round
    from blocklayout.eager import sigmoid as sigmoid
    from blocklayout.eager import sign as sign
    from blocklayout.eager import slice as slice
    from blocklayout.eager import softmax as softmax
    from blocklayout.eager import softplus as softplus
    from blocklayout.eager import split as split
    from blocklayout.eager import sqrt as sqrt
    from blocklayout.eager import squeeze as squeeze
    from blocklayout.eager import sub as sub
    from blocklayout.eager import sum as sum
    from blocklayout.eager import swish as swish
    from blocklayout.eager import tanh as tanh
    from blocklayout.eager import thresholded_relu as thresholded_relu
    from blocklayout.eager import transpose as transpose
    from blocklayout.eager import unsqueeze as unsqueeze
    from blocklayout.eager import upsample as upsample
    from blocklayout.eager.backward.convolution import ConvGradients as ConvGradients
    from blocklayout.eager.backward.convolution import conv_backward as conv_backward
    from blocklayout.eager.backward.convolution import conv_backward_data as conv_backward_data
    from blocklayout.eager.backward.convolution import conv_backward_weights as conv_backward_weights
    from blocklayout.eager.backward.elementwise import abs_backward as abs_backward
    from blocklayout.eager.backward.elementwise import clip_backward as clip_backward
    from blocklayout.eager.backward.elementwise import elu_backward as elu_backward
    from blocklayout.eager.backward.elementwise import exp_backward as exp_backward
    from blocklayout.eager.backward.elementwise import gelu_backward as gelu_backward
    from blocklayout.eager.backward.elementwise import hard_sigmoid_backward as hard_sigmoid_backward
    from blocklayout.eager.backward.elementwise import hard_swish_backward as hard_swish_backward
    from blocklayout.eager.backward.elementwise import leaky_relu_backward as leaky_relu_backward
    from blocklayout.eager.backward.elementwise import log_backward as log_backward
    from blocklayout.eager.backward.elementwise import mish_backward as mish_backward
    from blocklayout.eager.backward.elementwise import pow_backward as pow_backward
    from blocklayout.eager.backward.elementwise import relu_backward as relu_backward
    from blocklayout.eager.backward.elementwise import sigmoid_backward as sigmoid_backward
    from blocklayout.eager.backward.elementwise import softplus_backward as softplus_backward
    from blocklayout.eager.backward.elementwise import sqrt_backward as sqrt_backward
    from blocklayout.eager.backward.elementwise import square_backward as square_backward
    from blocklayout.eager.backward.elementwise import swish_backward as swish_backward
    from blocklayout.eager.backward.elementwise import tanh_backward as tanh_backward
    from blocklayout.eager.backward.inner_product import InnerProductGradients as InnerProductGradients
    from blocklayout.eager.backward.inner_product import inner_product as inner_product
    from blocklayout.eager.backward.inner_product import inner_product_backward as inner_product_backward
    from blocklayout.eager.backward.normalization import BatchNormGradients as BatchNormGradients
    from blocklayout.eager.backward.normalization import BatchNormTraining as BatchNormTraining
    from blocklayout.eager.backward.normalization import batch_norm_backward as batch_norm_backward
    from blocklayout.eager.backward.normalization import batch_norm_training as batch_norm_training
    from blocklayout.eager.backward.pooling import average_pool_backward as average_pool_backward
    from blocklayout.eager.backward.pooling import global_average_pool_backward as global_average_pool_backward
    from blocklayout.eager.backward.pooling import max_pool_backward as max_pool_backward
    from blocklayout.errors import BlockLayoutError as BlockLayoutError
    from blocklayout.errors import BlockLayoutWarning as BlockLayoutWarning
    from blocklayout.errors import CostStoreWarning as CostStoreWarning
    from blocklayout.errors import DnnlError as DnnlError
    from blocklayout.errors import ExportError as ExportError
    from blocklayout.errors import InputError as InputError
    from blocklayout.errors import InvalidArgumentsError as InvalidArgumentsError
    from blocklayout.errors import LayoutError as LayoutError
    from blocklayout.errors import LayoutLossWarning as LayoutLossWarning
    from blocklayout.errors import ModelError as ModelError
    from blocklayout.errors import OutOfMemoryError as OutOfMemoryError
    from blocklayout.errors import PlainKernelWarning as PlainKernelWarning
    from blocklayout.errors import PlanError as PlanError
    from blocklayout.errors import PlanMisfitWarning as PlanMisfitWarning
    from blocklayout.errors import PlanStoreWarning as PlanStoreWarning
    from blocklayout.errors import PositionError as PositionError
    from blocklayout.errors import RefusedError as RefusedError
    from blocklayout.errors import UnimplementedError as UnimplementedError
    from blocklayout.errors import UnsupportedError as UnsupportedError
    from blocklayout.errors import WatchError as WatchError
    from blocklayout.errors import WatchWarning as WatchWarning
    from blocklayout.layout import FormatTag as FormatTag
    from blocklayout.layout import Layout as Layout
    from blocklayout.layout import MemoryDesc as MemoryDesc
    from blocklayout.layout_events import Watch as Watch
    from blocklayout.layout_events import watch as watch
    from blocklayout.model import Builder as Builder
    from blocklayout.plan import Plan as Plan
    from blocklayout.runtime import Session as Session
    from blocklayout.tensor import Tensor as Tensor
    from blocklayout.tensor import as_tensor as as_tensor
    from blocklayout.tensor import channels_first as channels_first
    from blocklayout.tensor import channels_last as channels_last
    from blocklayout.tensor import contiguous_format as contiguous_format
    from blocklayout.tensor import empty as empty
    from blocklayout.tensor import empty_like as empty_like
    from blocklayout.tensor import from_array as from_array
    from blocklayout.tensor import full as full
    from blocklayout.tensor import full_like as full_like
    from blocklayout.tensor import ones as ones
    from blocklayout.tensor import ones_like as ones_like
    from blocklayout.tensor import preserve_format as preserve_format
    from blocklayout.tensor import reorder as reorder
    from blocklayout.tensor import zeros as zeros
    from blocklayout.tensor import zeros_like as zeros_like

    __version__: str

_NAMES_BY_HOME = {
    "api": ("load", "save"),
    "eager": (
        "abs",
        "add",
        "average_pool",
        "batch_norm",
        "cast",
        "cast_like",
        "ceil",
        "channel_shuffle",
        "clip",
        "concat",
        "conv",
        "conv_transpose",
        "conv_transpose_weights",
        "conv_weights",
        "div",
        "dropout",
        "elu",
        "exp",
        "expand",
        "flatten",
        "floor",
        "gelu",
        "gemm",
        "global_average_pool",
        "global_lp_pool",
        "global_max_pool",
        "group_norm",
        "hard_sigmoid",
        "hard_swish",
        "identity",
        "instance_norm",
        "layer_norm",
        "leaky_relu",
        "log",
        "log_softmax",
        "lp_pool",
        "lrn",
        "matmul",
        "max",
        "max_pool",
        "min",
        "mish",
        "mul",
        "neg",
        "op",
        "pad",
        "pow",
        "prelu",
        "reciprocal",
        "reduce_l1",
        "reduce_l2",
        "reduce_log_sum",
        "reduce_max",
        "reduce_mean",
        "reduce_min",
        "reduce_prod",
        "reduce_sum",
        "reduce_sum_square",
        "relu",
        "reshape",
        "resize",
        "round",
        "sigmoid",
        "sign",
        "slice",
        "softmax",
        "softplus",
        "split",
        "sqrt",
        "squeeze",
        "sub",
        "sum",
        "swish",
        "tanh",
        "thresholded_relu",
        "transpose",
        "unsqueeze",
        "upsample",
    ),
    "eager.backward.convolution": ("ConvGradients", "conv_backward", "conv_backward_data", "conv_backward_weights"),
    "eager.backward.elementwise": (
        "abs_backward",
        "clip_backward",
        "elu_backward",
        "exp_backward",
        "gelu_backward",
        "hard_sigmoid_backward",
        "hard_swish_backward",
        "leaky_relu_backward",
        "log_backward",
        "mish_backward",
        "pow_backward",
        "relu_backward",
        "sigmoid_backward",
        "softplus_backward",
        "sqrt_backward",
        "square_backward",
        "swish_backward",
        "tanh_backward",
    ),
    "eager.backward.inner_product": ("InnerProductGradients", "inner_product", "inner_product_backward"),
    "eager.backward.normalization": (
        "BatchNormGradients",
        "BatchNormTraining",
        "batch_norm_backward",
        "batch_norm_training",
    ),
    "eager.backward.pooling": ("average_pool_backward", "global_average_pool_backward", "max_pool_backward"),
    "errors": (
        "BlockLayoutError",
        "BlockLayoutWarning",
        "CostStoreWarning",
        "DnnlError",
        "ExportError",
        "InputError",
        "InvalidArgumentsError",
        "LayoutError",
        "LayoutLossWarning",
        "ModelError",
        "OutOfMemoryError",
        "PlainKernelWarning",
        "PlanError",
        "PlanMisfitWarning",
        "PlanStoreWarning",
        "PositionError",
        "RefusedError",
        "UnimplementedError",
        "UnsupportedError",
        "WatchError",
        "WatchWarning",
    ),
    "layout": ("FormatTag", "Layout", "MemoryDesc"),
    "model": ("Builder",),
    "plan": ("Plan",),
    "runtime": ("Session",),
    "tensor": (
        "Tensor",
        "as_tensor",
        "channels_first",
        "channels_last",
        "contiguous_format",
        "empty",
        "empty_like",
        "from_array",
        "full",
        "full_like",
        "ones",
        "ones_like",
        "preserve_format",
        "reorder",
        "zeros",
        "zeros_like",
    ),
    "watching": ("Watch", "watch"),
}
_HOMES = {name: f"blocklayout.{home}" for home, names in _NAMES_BY_HOME.items() for name in names}

__all__ = [  # noqa: PLE0604 - strings all, and a test compares them with the imports above
    "__version__",
    "dnnl",
    *_HOMES,
]


def _fetch(name: str) -> Any:
    if name == "__version__":
        return _installed_version()
    if name == "dnnl":
        return importlib.import_module("blocklayout.dnnl")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'blocklayout' has no attribute {name!r}")


if not TYPE_CHECKING:  # a type checker that saw it would believe in any name

    def __getattr__(name: str) -> Any:
        """Fetch a public name from its home, once."""
        globals()[name] = value = _fetch(name)
        return value


def __dir__() -> list[str]:
    """The public names, fetched or not."""
    return sorted({*globals(), *__all__})


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # 20 ms

    try:
        return version("blocklayout")
    except PackageNotFoundError:  # a checkout on sys.path
        return "0+unknown"
