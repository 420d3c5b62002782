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
    from blocklayout.errors import InputError as InputError
    from blocklayout.errors import InvalidArgumentsError as InvalidArgumentsError
    from blocklayout.errors import LayoutError as LayoutError
    from blocklayout.errors import LayoutLossWarning as LayoutLossWarning
    from blocklayout.errors import ModelError as ModelError
    from blocklayout.errors import OutOfMemoryError as OutOfMemoryError
    from blocklayout.errors import PlainKernelWarning as PlainKernelWarning
    from blocklayout.errors import PlanError as PlanError
    from blocklayout.errors import PlanMisfitWarning as PlanMisfitWarning
    from blocklayout.errors import UnimplementedError as UnimplementedError
    from blocklayout.errors import UnsupportedError as UnsupportedError
    from blocklayout.errors import WatchError as WatchError
    from blocklayout.errors import WatchWarning as WatchWarning
    from blocklayout.layout import FormatTag as FormatTag
    from blocklayout.layout import Layout as Layout
    from blocklayout.layout import MemoryDesc as MemoryDesc
    from blocklayout.model import Builder as Builder
    from blocklayout.plan import Plan as Plan
    from blocklayout.runtime import Session as Session
    from blocklayout.tensor import Tensor as Tensor
    from blocklayout.tensor import reorder as reorder
    from blocklayout.watching import Watch as Watch
    from blocklayout.watching import watch as watch

    __version__: str

_NAMES_BY_HOME = {
    "api": ("load", "save"),
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
        "InputError",
        "InvalidArgumentsError",
        "LayoutError",
        "LayoutLossWarning",
        "ModelError",
        "OutOfMemoryError",
        "PlainKernelWarning",
        "PlanError",
        "PlanMisfitWarning",
        "UnimplementedError",
        "UnsupportedError",
        "WatchError",
        "WatchWarning",
    ),
    "layout": ("FormatTag", "Layout", "MemoryDesc"),
    "model": ("Builder",),
    "plan": ("Plan",),
    "runtime": ("Session",),
    "tensor": ("Tensor", "reorder"),
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
