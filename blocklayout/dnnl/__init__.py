"""oneDNN's objects, one to one, and nothing of C outside of this package.

Importing it loads neither the library nor the modules below: each name is fetched from its home at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blocklayout.dnnl.any_desc import AnyDesc as AnyDesc
    from blocklayout.dnnl.any_desc import Desc as Desc
    from blocklayout.dnnl.attr import Attr as Attr
    from blocklayout.dnnl.attr import Binary as Binary
    from blocklayout.dnnl.attr import DepthwiseConv as DepthwiseConv
    from blocklayout.dnnl.attr import Eltwise as Eltwise
    from blocklayout.dnnl.attr import PostOp as PostOp
    from blocklayout.dnnl.attr import Prelu as Prelu
    from blocklayout.dnnl.attr import Sum as Sum
    from blocklayout.dnnl.c_desc import is_expressible as is_expressible
    from blocklayout.dnnl.cpus import cpu_shares as cpu_shares
    from blocklayout.dnnl.executable import Executable as Executable
    from blocklayout.dnnl.execution import Execution as Execution
    from blocklayout.dnnl.handles import live_handles as live_handles
    from blocklayout.dnnl.known_bugs import leaves_code_behind as leaves_code_behind
    from blocklayout.dnnl.known_bugs import refusals as refusals
    from blocklayout.dnnl.library import fmt_tag_names as fmt_tag_names
    from blocklayout.dnnl.library import has_bf16 as has_bf16
    from blocklayout.dnnl.library import has_isa as has_isa
    from blocklayout.dnnl.library import isa as isa
    from blocklayout.dnnl.library import version as version
    from blocklayout.dnnl.memory import Memory as Memory
    from blocklayout.dnnl.memory import aligned_empty as aligned_empty
    from blocklayout.dnnl.native import has_native_executor as has_native_executor
    from blocklayout.dnnl.primitive import Primitive as Primitive
    from blocklayout.dnnl.primitive_desc import Resolved as Resolved
    from blocklayout.dnnl.primitive_desc import is_reference as is_reference
    from blocklayout.dnnl.primitives import kinds as kinds
    from blocklayout.dnnl.primitives import multiply_adds as multiply_adds
    from blocklayout.dnnl.primitives import validate as validate
    from blocklayout.dnnl.primitives.batch_normalization import batch_normalization as batch_normalization
    from blocklayout.dnnl.primitives.batch_normalization import (
        batch_normalization_backward as batch_normalization_backward,
    )
    from blocklayout.dnnl.primitives.binary import binary as binary
    from blocklayout.dnnl.primitives.concat import concat as concat
    from blocklayout.dnnl.primitives.convolution import convolution as convolution
    from blocklayout.dnnl.primitives.convolution import convolution_backward_data as convolution_backward_data
    from blocklayout.dnnl.primitives.convolution import convolution_backward_weights as convolution_backward_weights
    from blocklayout.dnnl.primitives.deconvolution import deconvolution as deconvolution
    from blocklayout.dnnl.primitives.eltwise import eltwise as eltwise
    from blocklayout.dnnl.primitives.eltwise import eltwise_backward as eltwise_backward
    from blocklayout.dnnl.primitives.inner_product import inner_product as inner_product
    from blocklayout.dnnl.primitives.inner_product import inner_product_backward_data as inner_product_backward_data
    from blocklayout.dnnl.primitives.inner_product import (
        inner_product_backward_weights as inner_product_backward_weights,
    )
    from blocklayout.dnnl.primitives.layer_normalization import layer_normalization as layer_normalization
    from blocklayout.dnnl.primitives.lrn import lrn as lrn
    from blocklayout.dnnl.primitives.matmul import matmul as matmul
    from blocklayout.dnnl.primitives.pooling import pooling as pooling
    from blocklayout.dnnl.primitives.pooling import pooling_backward as pooling_backward
    from blocklayout.dnnl.primitives.prelu import prelu as prelu
    from blocklayout.dnnl.primitives.reduction import reduction as reduction
    from blocklayout.dnnl.primitives.reorder import reorder as reorder
    from blocklayout.dnnl.primitives.resampling import resampling as resampling
    from blocklayout.dnnl.primitives.shuffle import shuffle as shuffle
    from blocklayout.dnnl.primitives.softmax import softmax as softmax
    from blocklayout.dnnl.primitives.sum import sum as sum  # noqa: A004 - oneDNN's name
    from blocklayout.dnnl.resolution import has_optimised as has_optimised
    from blocklayout.dnnl.resolution import implementations as implementations
    from blocklayout.dnnl.resolution import optimised as optimised
    from blocklayout.dnnl.resolution import resolve as resolve
    from blocklayout.dnnl.spec import Spec as Spec
    from blocklayout.dnnl.team import threads_name as threads_name
    from blocklayout.dnnl.threads import callers_at_once as callers_at_once
    from blocklayout.dnnl.threads import default_threads as default_threads
    from blocklayout.dnnl.threads import own_stream as own_stream
    from blocklayout.dnnl.threads import run_parallel as run_parallel
    from blocklayout.dnnl.threads import wake_team as wake_team
    from blocklayout.layout import MemoryDesc as MemoryDesc

_NAMES_BY_HOME = {
    "any_desc": ("AnyDesc", "Desc", "MemoryDesc"),
    "c_desc": ("is_expressible",),
    "attr": ("Attr", "Binary", "DepthwiseConv", "Eltwise", "PostOp", "Prelu", "Sum"),
    "cpus": ("cpu_shares",),
    "executable": ("Executable",),
    "execution": ("Execution",),
    "known_bugs": ("leaves_code_behind", "refusals"),
    "handles": ("live_handles",),
    "library": ("fmt_tag_names", "has_bf16", "has_isa", "isa", "version"),
    "memory": ("Memory", "aligned_empty"),
    "native": ("has_native_executor",),
    "primitive": ("Primitive",),
    "primitive_desc": ("Resolved", "is_reference"),
    "resolution": ("has_optimised", "implementations", "optimised", "resolve"),
    "spec": ("Spec",),
    "primitives": ("kinds", "multiply_adds", "validate"),
    "primitives.batch_normalization": ("batch_normalization", "batch_normalization_backward"),
    "primitives.binary": ("binary",),
    "primitives.concat": ("concat",),
    "primitives.convolution": ("convolution", "convolution_backward_data", "convolution_backward_weights"),
    "primitives.deconvolution": ("deconvolution",),
    "primitives.eltwise": ("eltwise", "eltwise_backward"),
    "primitives.inner_product": ("inner_product", "inner_product_backward_data", "inner_product_backward_weights"),
    "primitives.layer_normalization": ("layer_normalization",),
    "primitives.lrn": ("lrn",),
    "primitives.matmul": ("matmul",),
    "primitives.pooling": ("pooling", "pooling_backward"),
    "primitives.prelu": ("prelu",),
    "primitives.reduction": ("reduction",),
    "primitives.reorder": ("reorder",),
    "primitives.resampling": ("resampling",),
    "primitives.shuffle": ("shuffle",),
    "primitives.softmax": ("softmax",),
    "primitives.sum": ("sum",),
    "team": ("threads_name",),
    "threads": ("callers_at_once", "default_threads", "own_stream", "run_parallel", "wake_team"),
}
_HOMES = {name: f"blocklayout.dnnl.{home}" for home, names in _NAMES_BY_HOME.items() for name in names}

__all__ = [*_HOMES]  # noqa: PLE0604 - strings all, and a test compares them with the imports above


if not TYPE_CHECKING:  # a type checker that saw it would believe in any name

    def __getattr__(name: str) -> Any:
        """Fetch a public name from its home, once."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(importlib.import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    """The public names, fetched or not."""
    return sorted({*globals(), *__all__})
