"""Functions of any number of elements: sums, means, minima and maxima of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from blocklayout import dnnl
from blocklayout.kernels import (
    BaseOperator,
    Lowered,
    NodeInfo,
    Problem,
    Recipe,
    RecipeStep,
    Role,
    TensorInfo,
    Wish,
)
from blocklayout.layout import MemoryDesc
from blocklayout.ops._broadcast import bind_broadcast
from blocklayout.ops._descs import argument, followed, like
from blocklayout.ops._reading import bound, require_float, required, wrong
from blocklayout.ops.binary import Binary
from blocklayout.ops.views import Identity

_ALGORITHMS: Mapping[str, str] = {"Sum": "binary_add", "Min": "binary_min", "Max": "binary_max"}


@dataclass(frozen=True)
class Nary(BaseOperator):
    """One function folded over three or more sources.

    Attributes:
        algorithm: oneDNN's name of the function of two.
        n_srcs: How many; the arguments are ``src_0`` and so on.
    """

    op_types: ClassVar[tuple[str, ...]] = tuple(_ALGORITHMS)
    role: ClassVar[Role] = Role.FOLLOWER

    algorithm: str
    n_srcs: int

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered:
        algorithm, n_srcs = _ALGORITHMS[node.op_type], len(node.inputs)
        if n_srcs == 0:
            raise wrong(node, "it has no inputs", "it needs at least one")
        if n_srcs == 1:
            return bound(Identity(), {"src": require_float(node, required(node, 0, "input 0"))})
        if n_srcs == 2:
            return bind_broadcast(Binary(algorithm), node)
        return bind_broadcast(cls(algorithm, n_srcs), node)

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        # Post-ops would have to go to the last of several primitives, and the sum primitive takes none.
        descs = followed(problem, wish, problem.dst)
        if attr.post_ops or descs is None:
            return None
        dst = descs[1]
        infos = [argument(problem, f"src_{index}") for index in range(self.n_srcs)]
        # On padded channels the sum primitive is a reference kernel, and binary is not.
        if self.algorithm == "binary_add" and not dst.n_padding and all(info.dims == dst.dims for info in infos):
            srcs = [like(dst, info) for info in infos]
            return Recipe.single(dnnl.sum(srcs, dst, attr=attr, n_threads=problem.n_threads))
        return _fold(self.algorithm, infos, dst, problem.n_threads)


def _fold(algorithm: str, infos: list[TensorInfo], dst: MemoryDesc, n_threads: int) -> Recipe:
    """Binary primitives in a row, each adding a source to what the one before left in a temporary."""
    # The full extents first: the library is fast where only its second source is broadcast.
    order = sorted(range(len(infos)), key=lambda index: infos[index].dims != dst.dims)
    previous, name = like(dst, infos[order[0]]), f"src_{order[0]}"
    steps: list[RecipeStep] = []
    temporaries: list[tuple[str, MemoryDesc]] = []
    for position, index in enumerate(order[1:], start=1):
        is_last = position == len(order) - 1
        dims = np.broadcast_shapes(previous.dims, infos[index].dims)
        result = dst if is_last else like(dst, TensorInfo(dims, dst.dtype))
        spec = dnnl.binary(previous, like(dst, infos[index]), result, algorithm, n_threads=n_threads)
        result_name = "dst" if is_last else f"partial_{position}"
        steps.append(RecipeStep(spec, (("dst", result_name), ("src_0", name), ("src_1", f"src_{index}"))))
        if not is_last:
            temporaries.append((result_name, result))
        previous, name = result, result_name
    return Recipe(tuple(steps), tuple(temporaries))
