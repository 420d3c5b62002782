"""How a layout, a primitive and an implementation are named, everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.ir import Fused, HostSpec, layout_name
from blocklayout.plan.policies import BOLD_SOLVE, SOLVE
from blocklayout.plan.reasons import CALLER, layout_words
from blocklayout.show.words import scaled_time

if TYPE_CHECKING:
    from blocklayout.ir import ValueLayout
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.plan import Entry, Plan, Step

_WAYS = (
    ("winograd", "Winograd's method, our own code"),
    ("max_pooling", "our own loops"),
    ("dynamic_lstm", "our own loops over places"),
    ("group_normalization", "our own loops"),
    ("grouped", "our own loops over groups"),
    ("depthwise", "our own loops over channels"),
    ("functions", "our own loops over elements"),
    ("byte_pooling", "our own loops"),
    ("byte_sums", "our own loops over elements"),
    ("interleaving", "our own loops"),
    ("ref", "reference code, not optimised"),
    ("brg", "small blocks of matrix products (brgemm)"),
    ("gemm", "one large matrix product (gemm)"),
    ("jit", "code generated for this shape"),
    ("ncsp", "plain loops"),
    ("simple", "plain loops"),
)
"""Parts of implementations' names in order of precedence."""

_ISAS = {
    "avx512_core": "AVX-512",
    "avx512_core_vnni": "AVX-512 with VNNI",
    "avx512_core_bf16": "AVX-512 with bf16",
    "avx512_core_fp16": "AVX-512 with fp16",
    "avx512_core_amx": "AMX",
    "avx512_core_amx_fp16": "AMX with fp16",
    "avx2": "AVX2",
    "avx2_vnni": "AVX2 with VNNI",
    "avx2_vnni_2": "AVX2 with VNNI",
    "avx": "AVX",
    "sse41": "SSE4.1",
}


def policy_name(chosen: str) -> str:
    """A policy, or the choice of a solve, as people say it."""
    return {SOLVE: "mixed layouts", BOLD_SOLVE: "least-cost mixed layouts"}.get(chosen, chosen)


def reorder_reason(plan: Plan, reorder: Entry | Step) -> str:
    """Why bytes move, such as ``conv2 reads blocks of 16; 2 readers; saves 41 us``."""
    readers, without_ns = reorder.readers, reorder.without_ns
    if plan.policy == "per-op" or not readers:
        return reorder.reason
    verb = "wants" if readers[0] == CALLER else "reads"
    said = [f"{readers[0]} {verb} {layout_words(moved(plan, reorder)[2])}"]
    said += [f"{len(readers)} readers"] * (len(readers) > 1)
    if without_ns is None:
        said += ["nothing on offer does without"] * plan.is_exact
    elif without_ns > 0:
        said.append(f"saves {'' if plan.is_exact else 'at most '}{scaled_time(without_ns)}")
    return "; ".join(said)


def layout(desc: ValueLayout, role: str = "src") -> str:
    """A layout by its name, with the data type unless that is f32."""
    if isinstance(desc, Fused):
        return layout_name(desc)
    return desc.named(role) if desc.dtype == "f32" else f"{desc.named(role)}:{desc.dtype}"


def moved(plan: Plan, reorder: Entry | Step) -> tuple[str, MemoryDesc, MemoryDesc]:
    """The value that a reorder copies, and its two layouts."""
    from blocklayout.plan.plan import Entry

    if isinstance(reorder, Entry):
        return reorder.input, reorder.source, reorder.desc
    return plan.buffers[reorder.dst.buffer].name, dict(reorder.operands)["src"].desc, reorder.dst.desc


def step_layouts(step: Step) -> str:
    """The layouts a step reads and writes, such as ``nChw8c, OIhw8i8o -> nChw8c``."""
    operands = step.operands
    named = ("src", "diff_dst")
    sources = [layout(operand.desc) for arg, operand in operands if arg in named or arg.startswith("src_")]
    weights = [layout(operand.desc, weights_role(step)) for arg, operand in operands if arg == "weights"]
    others = [f"+{layout(operand.desc)}" for arg, operand in operands if arg.startswith("post_op_")]
    written = [(arg, operand.desc) for arg, operand in operands if arg in step.written]
    dst = ", ".join(layout(desc, weights_role(step) if arg == "diff_weights" else "src") for arg, desc in written)
    read = ", ".join([*sources, *weights, *others])
    return f"{read} -> {dst}" if read else dst


def weights_role(step: Step) -> str:
    """The role by which the layout of a step's weights is named."""
    descs = dict(step.operands)
    image = next(descs[arg].desc for arg in ("src", "diff_src", "diff_dst") if arg in descs)
    weights = next(descs[arg].desc for arg in ("weights", "diff_weights") if arg in descs)
    grouped = weights.ndims == image.ndims + 1
    return "grouped_weights" if grouped else "weights"


def primitive_name(step: Step) -> str:
    """Name of the primitive of a step with its post-ops, or of the host step in its place."""
    if isinstance(step.spec, HostSpec):
        return f"{step.spec.kind.replace('_', ' ')} {step.spec.label}".rstrip()
    names = (getattr(op, "algorithm", "") or type(op).__name__.lower() for op in step.spec.attr.post_ops)
    return " + ".join([step.spec.kind, *names])


def impl_words(impl: str) -> str:
    """An implementation in words; empty where its name says nothing that is known here.

    Example:
        >>> impl_words("brgconv_1x1:avx512_core"), impl_words("x64:gemm:jit")
        ('small blocks of matrix products (brgemm), AVX-512', 'one large matrix product (gemm)')
    """
    way = next((words for part, words in _WAYS if part in impl), "")
    isa = _ISAS.get(impl.rpartition(":")[2], "")
    return ", ".join(filter(None, (way, isa)))
