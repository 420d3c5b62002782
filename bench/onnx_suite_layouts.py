"""The layouts in which operators run: in the cases of ONNX's own test suite, and in its networks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import onnx

from bench import light
from bench.onnx_suite import Case
from blocklayout import dnnl, model, plan, zoo
from blocklayout.errors import BlockLayoutError
from blocklayout.ir import Role
from blocklayout.layout import MemoryDesc
from blocklayout.plan.candidates.propose import Proposer
from blocklayout.plan.candidates.tiles import Tile, fuse
from blocklayout.plan.costs.model import CostModel
from blocklayout.plan.network import propose_all

VIEW = "a view"
_ZOO_NETWORKS = ("resnet18", "dcgan_generator")
_IMAGES = (2, 16, 6, 5)
"""In the suite's own cases tensors have few channels, or one dimension; here as many as layouts are made for."""


def layouts_of(case: Case) -> set[str]:
    """The layouts in which primitives other than reference implementations compute a case's kernels.

    A step that moves no byte is ``a view``.
    """
    arrays = dict(zip([info.name for info in case.model.graph.input], case.data[0][0], strict=False))
    found = set().union(*(layouts for _, layouts in _offered(case.model, arrays)))
    with suppress(BlockLayoutError):  # the case's other inputs do not fit a wider one
        found = found.union(*(layouts for _, layouts in _offered(*_widened(case.model, arrays))))
    return found


def _widened(
    source: onnx.ModelProto, arrays: Mapping[str, np.ndarray]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The case with images of several channels for its first input, and for others of the same extents."""
    narrow = next(iter(arrays.values())).shape
    wide = {name: np.resize(array, _IMAGES) for name, array in arrays.items() if array.shape == narrow}
    model_proto = onnx.ModelProto()
    model_proto.CopyFrom(source)
    for info in model_proto.graph.input:
        if info.name in wide:
            info.CopyFrom(onnx.helper.make_tensor_value_info(info.name, info.type.tensor_type.elem_type, _IMAGES))
    del model_proto.graph.value_info[:]
    return model_proto, {**arrays, **wide}


@cache
def layouts_in_networks() -> Mapping[str, set[str]]:
    """The same of some networks, by operator."""
    found: dict[str, set[str]] = defaultdict(set)
    sources = [light.smoke_case("bvlc_alexnet").model, *map(zoo.build, _ZOO_NETWORKS)]
    for source in sources:
        for op_type, layouts in _offered(source, {}):
            found[op_type] |= layouts
    return found


def _offered(source: Any, arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, set[str]]]:
    """Each tile's main operator, and the layouts it is offered in."""
    opened = model.open_model(source)
    shapes = {name: array.shape for name, array in arrays.items() if name in model.free_extents(opened)}
    graph = model.simplify(model.read_fed(opened, shapes, arrays.__getitem__)[0])
    program = model.lower(model.legalize(graph))
    op_types = {node.name: node.op_type for node in graph.nodes}
    network = propose_all(program, fuse(program, "f32", 1), Proposer(CostModel(plan.Machine(dnnl.isa(), 1)), "f32"))
    for tile, candidates in zip(network.tiles, network.candidates, strict=True):
        yield op_types.get(tile.main.nodes[0], tile.name), set(_layouts(tile, candidates))


def _layouts(tile: Tile, candidates: Any) -> Iterator[str]:
    if tile.is_view:
        yield VIEW
        return
    if tile.main.operator.role is Role.PLAIN:
        return
    for candidate in candidates:
        if candidate.steps and not candidate.is_reference:
            yield from map(_layout_class, (candidate.dst, *candidate.source_descs.values()))


def _layout_class(desc: MemoryDesc) -> str:
    if desc.inner_blks:
        return "blocked"
    if 3 <= desc.ndims <= 5 and desc.is_contiguous("channels_last") and not desc.is_contiguous():
        return "channels last"
    return "plain"
