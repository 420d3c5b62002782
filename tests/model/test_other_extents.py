"""A simplified graph for other extents is what reading the model for these would have given."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from blocklayout import model, zoo
from blocklayout.ir import Program
from blocklayout.model.other_extents import Simplified
from tests import nets


def freed(name: str) -> onnx.ModelProto:
    """A network of the zoo with free height and width; its weights are ones."""
    proto = zoo.build(name, size=64, seed=None).to_onnx()
    del proto.graph.value_info[:]
    for info in (*proto.graph.input, *proto.graph.output):
        for axis, extent in enumerate(info.type.tensor_type.shape.dim[2:]):
            extent.dim_param = f"{info.name}{axis}"
    return proto


@cache
def opened(name: str) -> tuple[Any, Simplified | None]:
    """A model, and its graph simplified for 64 pixels a side."""
    whole: Any = model.open_model(nets.free_model() if name == "free" else freed(name))
    return whole, model.simplified(model.read(whole, {"x": (1, 3, 64, 64)}), whole)[1]


def facts(program: Program) -> list[Any]:
    """Everything that a plan is made of."""
    rows = []
    for kernel in program.kernels:
        values = [*kernel.sources, ("dst", kernel.dst), *kernel.others]
        constants = [(arg, each.name, each.array.shape, each.array.tobytes()) for arg, each in kernel.constants]
        said = (kernel.name, kernel.operator, kernel.nodes, kernel.op_types, kernel.aliases, kernel.reason)
        rows.append((*said, constants, [(arg, each.name, each.shape, each.dtype) for arg, each in values]))
    ends = [(each.name, each.shape, each.dtype) for each in (*program.inputs, *program.outputs)]
    return [rows, ends, program.gone, program.digest]


@settings(max_examples=5, deadline=None)
@given(height=st.integers(33, 97), width=st.integers(33, 97), batch=st.integers(0, 3))
@pytest.mark.parametrize("name", ["free", "squeezenet1_1", "resnet18", "mobilenet_v2", "googlenet", "efficientnet_b0"])
def test_it_is_what_reading_gives(name: str, height: int, width: int, batch: int) -> None:
    whole, simplified = opened(name)
    shape = (batch if name == "free" else 1, 3, height, width)
    assert simplified is not None
    graph = simplified.at({"x": shape})
    assert graph is not None
    graph, anew = map(model.legalize, (graph, model.simplify(model.read(whole, {"x": shape}))))
    assert str(graph) == str(anew)
    assert facts(model.lower(graph)) == facts(model.lower(anew))


def of_nodes(*nodes: onnx.NodeProto, **constants: Any) -> Any:
    """A model of ``x``, of free height and width, to ``y``."""
    graph = helper.make_graph(
        nodes,
        "nodes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, "h", "w"))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(array), name) for name, array in constants.items()],
    )
    return model.open_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


node = helper.make_node


@pytest.mark.parametrize(
    "whole",
    [
        pytest.param(
            of_nodes(node("Shape", ["x"], ["s"]), node("Reshape", ["x", "s"], ["y"])), id="computed extents"
        ),
        pytest.param(
            of_nodes(
                node("Shape", ["x"], ["s"]),
                node("Cast", ["s"], ["f"], to=1),
                node("ReduceProd", ["f"], ["n"], keepdims=0),
                node("Div", ["x", "n"], ["y"]),
            ),
            id="computed numbers",
        ),
        pytest.param(
            of_nodes(node("Slice", ["x", "b", "e", "a"], ["c"]), node("Relu", ["c"], ["y"]), b=[0], e=[8], a=[2]),
            id="nothing to cut off",
        ),
        pytest.param(
            of_nodes(node("Reshape", ["x", "t"], ["c"]), node("Relu", ["c"], ["y"]), t=[1, 4, 8, -1]), id="reshape"
        ),
        pytest.param(
            of_nodes(node("Dropout", ["x", "r"], ["c", "m"]), node("Where", ["m", "c", "x"], ["y"]), r=np.float32(0.5)),
            id="a mask",
        ),
    ],
)  # fmt: skip
def test_what_holds_for_some_extents_only_is_read_anew(whole: Any) -> None:
    assert model.simplified(model.read(whole, {"x": (1, 4, 8, 8)}), whole)[1] is None


def test_extents_that_do_not_fit_are_left_to_reading() -> None:
    whole = of_nodes(node("Conv", ["x", "k"], ["y"]), k=np.ones((4, 4, 9, 9), np.float32))
    simplified = model.simplified(model.read(whole, {"x": (1, 4, 16, 16)}), whole)[1]
    assert simplified is not None
    assert simplified.at({"x": (1, 4, 12, 20)}) is not None
    assert simplified.at({"x": (1, 4, 7, 20)}) is None


def test_bytes_that_are_held() -> None:
    _, simplified = opened("free")
    assert simplified is not None
    constants = [value.data for value in simplified.graph.values.values() if value.data is not None]
    assert simplified.nbytes >= sum(array.nbytes for array in constants)
