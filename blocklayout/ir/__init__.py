"""The values the planner sees: kernels, operators' answers about themselves, and recipes."""

from blocklayout.ir.demands import Asked, Demand, Demanded, Demands, Names, preceding
from blocklayout.ir.facts import Affine, ArraysFunction, Facts, NumpyFunction, Padding, Transposed, Window
from blocklayout.ir.fused import Fused, ValueLayout, layout_name, readable_as
from blocklayout.ir.host_spec import (
    Compute,
    Elementwise,
    HostSpec,
    Plain,
    arguments,
    copy_spec,
    mover,
    results,
    row_major_descs,
    zero_padding_step,
)
from blocklayout.ir.kernel import Constant, Kernel, KernelInfo, Program
from blocklayout.ir.made_weights import MadeWeights, TapsAsChannels, TapSums
from blocklayout.ir.node import Need, NodeInfo, Refusal
from blocklayout.ir.operator import (
    LAYOUT_NAMES,
    BaseOperator,
    Lowered,
    PostOpUse,
    Problem,
    Role,
    TensorInfo,
    Wish,
    in_blocks,
    wished_desc,
)
from blocklayout.ir.recipe import Candidate, Recipe, RecipeStep
from blocklayout.ir.value import Value

__all__ = [
    "LAYOUT_NAMES",
    "Affine",
    "ArraysFunction",
    "Asked",
    "BaseOperator",
    "Candidate",
    "Compute",
    "Constant",
    "Demand",
    "Demanded",
    "Demands",
    "Elementwise",
    "Facts",
    "Fused",
    "HostSpec",
    "Kernel",
    "KernelInfo",
    "Lowered",
    "MadeWeights",
    "Names",
    "Need",
    "NodeInfo",
    "NumpyFunction",
    "Padding",
    "Plain",
    "PostOpUse",
    "Problem",
    "Program",
    "Recipe",
    "RecipeStep",
    "Refusal",
    "Role",
    "TapSums",
    "TapsAsChannels",
    "TensorInfo",
    "Transposed",
    "Value",
    "ValueLayout",
    "Window",
    "Wish",
    "arguments",
    "copy_spec",
    "in_blocks",
    "layout_name",
    "mover",
    "preceding",
    "readable_as",
    "results",
    "row_major_descs",
    "wished_desc",
    "zero_padding_step",
]
