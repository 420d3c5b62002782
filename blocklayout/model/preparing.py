"""From a graph in ONNX words to one whose nodes kernels can be made of."""

from __future__ import annotations

from collections.abc import Callable

from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes import Pass
from blocklayout.model.passes.activations_to_parts import ActivationsToParts
from blocklayout.model.passes.align_matmul import AlignMatMul
from blocklayout.model.passes.align_ranks import AlignRanks
from blocklayout.model.passes.drop_no_ops import DropNoOps
from blocklayout.model.passes.expand_functions import ExpandFunctions
from blocklayout.model.passes.gather_to_slices import GatherToSlices
from blocklayout.model.passes.gemm_to_matmul import GemmToMatMul
from blocklayout.model.passes.mean_to_sum import MeanToSum
from blocklayout.model.passes.merge_gelu import MergeGelu
from blocklayout.model.passes.merge_group_norm import MergeGroupNorm
from blocklayout.model.passes.merge_hard_sigmoid import MergeHardSigmoid
from blocklayout.model.passes.merge_layer_norm import MergeLayerNorm
from blocklayout.model.passes.merge_leaky_relu import MergeLeakyRelu
from blocklayout.model.passes.merge_lrn import MergeLrn
from blocklayout.model.passes.merge_mish import MergeMish
from blocklayout.model.passes.merge_shuffle import MergeShuffle
from blocklayout.model.passes.merge_softplus import MergeSoftplus
from blocklayout.model.passes.merge_swish import MergeSwish
from blocklayout.model.passes.pool_whole_images import PoolWholeImages
from blocklayout.model.passes.remove_dead import RemoveDead
from blocklayout.model.passes.space_to_views import SpaceToViews
from blocklayout.model.passes.split_to_slices import SplitToSlices

IDIOMS: tuple[Pass, ...] = (
    MergeLeakyRelu(),
    MergeSoftplus(),
    MergeHardSigmoid(),
    MergeSwish(),
    MergeMish(),
    MergeGelu(),
    MergeLayerNorm(),
    MergeGroupNorm(),
    MergeLrn(),
    MergeShuffle(),
)
"""Several nodes that are one operator, whichever version of ONNX has it."""


def preparations(is_native: Callable[[Graph, Node], bool]) -> tuple[Pass, ...]:
    """The passes between simplification and kernels.

    Args:
        is_native: Whether a primitive, or a view, computes a node of a graph as it is.
    """
    parts: tuple[Pass, ...] = (
        DropNoOps(),
        PoolWholeImages(),
        SpaceToViews(),
        MeanToSum(),
        ActivationsToParts(is_native),
        SplitToSlices(),
        GatherToSlices(),
        GemmToMatMul(is_native),
        AlignMatMul(),
        AlignRanks(),
    )
    return RemoveDead(), *IDIOMS, ExpandFunctions(is_native, parts), *parts
