"""Graphs of one node, for overloads of which PyTorch's samples have none, such as those that tracing decomposes."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter, getitem
from typing import Any

import torch
from torch.fx.node import map_aggregate

IMAGE = (2, 4, 6, 5)
VECTORS = ((4,), (4,), (4,), (4,))
WEIGHTS = {rank: (4, 2, *(3,) * rank) for rank in (1, 2, 3)}
SPATIAL = {1: (2, 4, 7), 2: (2, 4, 7, 6), 3: (2, 4, 5, 6, 7)}

CASES: list[tuple[str, Any]] = [
    ("_native_batch_norm_legit.default", (IMAGE, *VECTORS, False, 0.1, 1e-3)),
    ("_native_batch_norm_legit.no_stats", (IMAGE, *VECTORS[:2], True, 0.1, 1e-3)),
    ("_native_batch_norm_legit.no_stats", ((1, 4, 6, 5), None, None, True, 0.1, 1e-3)),
    ("_native_batch_norm_legit_no_training.default", (IMAGE, *VECTORS, 0.1, 1e-3)),
    ("batch_norm.default", (IMAGE, *VECTORS, False, 0.1, 1e-3, True)),
    ("instance_norm.default", (IMAGE, *VECTORS[:2], None, None, True, 0.1, 1e-3, True)),
    ("instance_norm.default", (IMAGE, *VECTORS, False, 0.1, 1e-3, True)),
    ("group_norm.default", (IMAGE, 2, *VECTORS[:2], 1e-3)),
    ("layer_norm.default", (IMAGE, [5], (5,), (5,), 1e-3)),
    ("layer_norm.default", (IMAGE, [6, 5], None, None, 1e-3)),
    *(
        (f"conv{rank}d.default", (SPATIAL[rank], WEIGHTS[rank], (4,), [2] * rank, [1] * rank, [1] * rank, 2))
        for rank in (1, 2, 3)
    ),
    *(
        (f"conv{rank}d.padding", (SPATIAL[rank], WEIGHTS[rank], (4,), [1] * rank, "same", [1] * rank, 2))
        for rank in (1, 2, 3)
    ),
    ("conv2d.padding", (SPATIAL[2], (4, 4, 2, 4), None, [1, 1], "same")),
    ("conv_transpose1d.default", (SPATIAL[1], WEIGHTS[1], (4,), [2] * 1, [1] * 1, [1] * 1, 2)),
    ("conv_transpose2d.input", (SPATIAL[2], WEIGHTS[2], (4,), [2] * 2, [1] * 2, [1] * 2, 2)),
    ("conv_transpose3d.input", (SPATIAL[3], WEIGHTS[3], (4,), [2] * 3, [1] * 3, [1] * 3, 2)),
    ("max_pool1d.default", (SPATIAL[1], [3], [2], [1], [1], True)),
    ("max_pool2d.default", (SPATIAL[2], [3, 2], [2, 2], [1, 1], [2, 1])),
    ("max_pool3d.default", (SPATIAL[3], [2])),
    ("avg_pool1d.default", (SPATIAL[1], [3], [2], [1], True, False)),
    *((f"adaptive_avg_pool{rank}d.default", (SPATIAL[rank], [3] * rank)) for rank in (1, 2, 3)),
    ("linear.default", (IMAGE, (3, 5), (3,))),
    ("linear.default", ((4, 5), (3, 5))),
    ("matmul.default", (IMAGE, (5, 3))),
    ("addmm.default", ((3,), (4, 5), (5, 3))),
    ("scaled_dot_product_attention.default", ((2, 4, 7, 8), (2, 4, 6, 8), (2, 4, 6, 8))),
    ("scaled_dot_product_attention.default", ((2, 4, 7, 8), (2, 4, 7, 8), (2, 4, 7, 8), None, 0.0, True)),
    ("scaled_dot_product_attention.default", ((2, 4, 7, 8), (2, 4, 6, 8), (2, 4, 6, 8), (7, 6))),
    ("_scaled_dot_product_flash_attention_for_cpu.default", ((2, 4, 7, 8), (2, 4, 7, 8), (2, 4, 7, 8), 0.0, True)),
    *((f"bitwise_{name}.Scalar", (torch.arange(-4, 4), 3)) for name in ("and", "or", "xor")),
    ("col2im.default", ((2, 12, 20), [5, 6], [2, 2], [1, 1], [0, 0], [1, 1])),
    ("div.Scalar_mode", (IMAGE, 0.7, {"rounding_mode": "floor"})),
    ("div.Scalar_mode", (torch.arange(-9, 9), 4, {"rounding_mode": "floor"})),
    ("div.Tensor_mode", (torch.arange(-9, 9), torch.tensor(-4), {"rounding_mode": "trunc"})),
    ("remainder.Tensor", (torch.arange(-9, 9), torch.tensor(-4))),
    ("reflection_pad2d.default", (IMAGE, [1, 2, 3, 1])),
    ("reflection_pad3d.default", (SPATIAL[3], [1, 2, 3, 1, 0, 2])),
    ("replication_pad2d.default", (IMAGE, [1, 2, 3, -1])),
    ("replication_pad3d.default", (SPATIAL[3], [1, 2, 3, 1, 0, 2])),
    ("scatter.value", ((3, 5), 1, torch.tensor([[0, 2], [1, 4]]), 2.5)),
    ("var.dim", (IMAGE, [1, -1], False, True)),
    ("prelu.default", (IMAGE, (4,))),
    ("relu6.default", (IMAGE,)),
    ("softmax.int", (IMAGE, 1)),
    ("log_softmax.int", (IMAGE, -1)),
    ("sort.stable", (torch.tensor([3, 1, 3, 2, 1]), {"stable": True, "descending": True})),
    ("fill.Tensor", (IMAGE, torch.tensor(3.0))),
    ("flatten.using_ints", (IMAGE, 1)),
    ("reshape.default", (IMAGE, [2, -1])),
    ("native_dropout.default", (IMAGE, 0.5, False)),
    ("dropout.default", (IMAGE, 0.5, False)),
    ("contiguous.default", (IMAGE,)),
    ("grid_sampler.default", (IMAGE, (2, 3, 3, 2), 0, 1, False)),
    ("_upsample_bicubic2d_aa.default", (IMAGE, [3, 9], False)),
    ("_upsample_bilinear2d_aa.vec", (IMAGE, [3, 4], False, None)),
    *((f"{name}.vec", (IMAGE, None, False, [1.7, 0.8])) for name in ("upsample_bilinear2d", "upsample_bicubic2d")),
    *((f"{name}.vec", (IMAGE, None, [1.7, 0.8])) for name in ("upsample_nearest2d", "_upsample_nearest_exact2d")),
    *(
        (f"{name}{rank}d.vec", (SPATIAL[rank], [9] * rank, None))
        for name, rank in (
            ("upsample_nearest", 1),
            ("upsample_nearest", 3),
            ("_upsample_nearest_exact", 1),
            ("_upsample_nearest_exact", 3),
        )
    ),
    ("upsample_linear1d.vec", (SPATIAL[1], [9], True, None)),
    ("upsample_trilinear3d.vec", (SPATIAL[3], [9, 3, 8], True, None)),
]
"""Overloads and arguments; a tuple is the extents of a tensor of random numbers, a dictionary at the end keywords."""


def single(name: str, given: Any) -> tuple[torch.fx.GraphModule, list[torch.Tensor], list[torch.Tensor]]:
    """A graph that calls one overload, its inputs and its results."""
    overload = attrgetter(name)(torch.ops.aten)
    graph = torch.fx.Graph()
    tensors: list[torch.Tensor] = []

    def entered(arg: Any) -> Any:
        if not isinstance(arg, torch.Tensor):
            return arg
        node = graph.placeholder(f"x{len(tensors)}")
        node.meta["val"] = arg
        tensors.append(arg)
        return node

    kwargs = given[-1] if isinstance(given[-1], dict) else {}
    args = [torch.rand(each) + 0.1 if isinstance(each, tuple) else each for each in given[: len(given) - bool(kwargs)]]
    results = overload(*args, **kwargs)
    call = graph.call_function(overload, tuple(map_aggregate(args, entered)), kwargs)
    call.meta["val"] = results
    if isinstance(results, torch.Tensor):
        graph.output([call])
        return torch.fx.GraphModule({}, graph), tensors, [results]
    n_specified = 1 if "norm" in name or "attention" in name else len(results)  # others are for gradients
    picked = [graph.call_function(getitem, (call, index)) for index in range(n_specified)]
    graph.output(picked)
    return torch.fx.GraphModule({}, graph), tensors, list(results[:n_specified])


def singles() -> Iterator[tuple[str, torch.fx.GraphModule, list[torch.Tensor], list[torch.Tensor]]]:
    """Each case: the overload's name, and its graph with inputs and results."""
    torch.manual_seed(0)
    for name, given in CASES:
        yield name, *single(name, given)
