"""oneDNN's objects, one to one, and nothing of C outside of this package.

Importing it loads neither the library nor the modules below: each name is fetched from its home at first use.

Constructors of Specs (``convolution``, ``eltwise``, ...) raise ``InvalidArgumentsError`` for arguments against a rule
of the primitive; the message names the argument, the rule and a right value. All take ``n_threads``, the threads it
will run on: by default as many as this process may use. Most take ``attr``, an ``Attr``: post-ops, scales, zero points
and math mode. Those of forward primitives take ``prop_kind``: ``forward_inference``, the default, or
``forward_training``.
"""

from __future__ import annotations

from blocklayout.lazy_names import fetching, homes_of

_WITHOUT_GRADIENTS = """
    binary concat deconvolution dynamic_lstm dynamic_quantization group_normalization layer_normalization lookup lrn
    matmul max_pooling max_unpooling prelu reduction reorder resampling reversal rnn shuffle softmax sum
"""
"""Kinds of primitive with one constructor, which has their name."""

_NAMES = {
    "any_desc": "AnyDesc Desc",
    "attr": "Attr Binary DepthwiseConv Eltwise PostOp Prelu Sum",
    "c_desc": "is_expressible",
    "cpus": "cpu_shares default_threads",
    "executable": "Executable Stop",
    "execution": "Execution",
    "handles": "live_handles",
    "known_bugs": "leaves_code_behind refusals",
    "library": (
        "channel_blocks fmt_tag_names has_bf16 has_isa highest_isa isa isa_names missing_isa sums_bytes_exactly version"
    ),
    "memory": "Memory aligned_empty",
    "native": "has_native_executor",
    "primitive": "Primitive primitive_of",
    "primitive_desc": "Resolved is_reference",
    "primitives": "kinds multiply_adds validate",
    **{f"primitives.{kind}": kind for kind in _WITHOUT_GRADIENTS.split()},
    "primitives.batch_normalization": "batch_normalization batch_normalization_backward",
    "primitives.convolution": "convolution convolution_backward_data convolution_backward_weights",
    "primitives.eltwise": "eltwise eltwise_backward",
    "primitives.inner_product": "inner_product inner_product_backward_data inner_product_backward_weights",
    "primitives.pooling": "pooling pooling_backward",
    "resolution": "favourite has_optimised implementations is_rougher optimised resolve rougher",
    "roi_align": "write_region_means",
    "spec": "Spec",
    "threads": "callers_at_once own_stream run_apart run_parallel threads_name wake_team",
}
_HOMES = homes_of(__name__, _NAMES) | {"MemoryDesc": "blocklayout.layout"}

__all__ = [*_HOMES]  # noqa: PLE0604 - strings all
__getattr__, __dir__ = fetching(globals(), _HOMES)
