"""The values the planner sees: kernels, operators' answers about themselves, and recipes."""

from __future__ import annotations

from blocklayout.lazy_names import fetching, homes_of

_NAMES = {
    "demands": "Asked Demand Demanded Demands Names preceding",
    "facts": "Affine ArraysFunction Called Facts Given NumpyFunction Padding Transposed Window keeps_broadcast_rows",
    "host_spec": (
        "Compute Elementwise HostSpec Plain arguments copy_spec mover results row_major_descs zero_padding_step"
    ),
    "kernel": "ByteOperands Constant Kernel KernelInfo Program",
    "node": "Need NodeInfo Refusal",
    "operator": (
        "BYTES LAYOUT_NAMES BaseOperator Lowered PostOpUse Problem Role TensorInfo Wish in_blocks wished_desc"
    ),
    "recipe": (
        "Candidate Fused MadeWeights Recipe RecipeStep TapSums TapsAsChannels ValueLayout WinogradWeights layout_name "
        "readable_as"
    ),
    "value": "Quantization Value",
}
_HOMES = homes_of(__name__, _NAMES)

__all__ = [*_HOMES]  # noqa: PLE0604 - strings all
__getattr__, __dir__ = fetching(globals(), _HOMES)
