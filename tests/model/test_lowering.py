from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from blocklayout import ops
from blocklayout.errors import UnsupportedError
from blocklayout.ir import BaseOperator, Lowered, NodeInfo, Program, Role
from blocklayout.model import Builder, Graph, legalize, lower, read, simplify

SEEN: list[NodeInfo] = []


class Fake(BaseOperator, frozen=True):
    """Takes every input as an argument; bends its second constant, if any."""

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered:
        SEEN.append(node)
        sources = {f"src_{index}": value for index, value in enumerate(node.inputs) if value is not None}
        computed = {"computed": np.zeros(3, np.float32)}
        flat = {f"flat_{name}": value.data.reshape(-1) for name, value in sources.items() if value.data is not None}
        return Lowered(cls(), sources, computed | flat)


def _with_fakes(graph: Graph) -> Program:
    with mock.patch.object(ops, "find", return_value=Fake):
        return lower(graph)


def test_every_node_becomes_a_kernel() -> None:
    b = Builder("net")
    y = b.input("x", (1, 3, 4, 4)).conv(np.ones((2, 3, 1, 1), np.float32), name="first").relu()
    b.output("y", y)
    program = _with_fakes(b.to_graph())
    assert program.name == "net"
    assert [kernel.name for kernel in program.kernels] == ["first", "relu_1"]
    assert [value.name for value in program.inputs] == ["x"]
    assert program.kernels[0].dst is program.kernels[1].sources[0][1]
    assert program.kernels[-1].dst is program.outputs[0]
    assert program.outputs[0].name == "y"


def test_constants_are_told_apart_and_named() -> None:
    b = Builder()
    b.output("y", b.input("x", (2, 3)) + b.constant(np.ones((2, 3), np.float32), "w"))
    kernel = _with_fakes(b.to_graph()).kernels[0]
    assert [name for name, _ in kernel.sources] == ["src_0"]
    assert {arg: constant.name for arg, constant in kernel.constants} == {
        "src_1": "w",
        "flat_src_1": "w_1",  # another view of w: a plan finds arrays by name, so it needs one of its own
        "computed": "add_0.computed",
    }


def test_absorbed_nodes_are_listed(small_net: Builder) -> None:
    program = _with_fakes(legalize(simplify(read(small_net))))
    assert program.kernels[0].nodes == ("stem", "norm")


def test_operands_of_another_rank_get_a_view() -> None:
    b = Builder()
    b.output("y", b.input("x", (2, 3, 4, 4)) + b.input("z", (3, 1, 1)))
    program = _with_fakes(legalize(b.to_graph()))
    view, add = program.kernels
    assert view.dst.shape == (1, 3, 1, 1)
    assert add.sources[1][1] is view.dst


def test_an_operator_sees_only_outputs_that_are_read() -> None:
    b = Builder()
    pooled, _ = b.op("MaxPool", b.input("x", (1, 1, 4, 4)), kernel_shape=(2, 2), n_outputs=2)
    b.output("y", pooled)
    SEEN.clear()
    _with_fakes(b.to_graph())
    assert [value is not None for value in SEEN[0].outputs] == [True, False]


def test_a_node_of_two_results_becomes_a_plain_kernel() -> None:
    b = Builder()
    values, indices = b.op("TopK", b.input("x", (4,)), [2], n_outputs=2, name="top")
    b.output("values", values)
    b.output("indices", indices)
    [kernel] = _with_fakes(b.to_graph()).kernels
    assert kernel.operator.role is Role.PLAIN
    assert [value.name for value in (kernel.dst, *dict(kernel.others).values())] == ["values", "indices"]
    assert "'values', 'indices'" in kernel.reason


def test_an_operator_nobody_has_is_named_with_the_closest() -> None:
    b = Builder()
    b.output("y", b.op("MaxRoiPool", b.input("x", (1, 1, 4, 4)), b.input("r", (1, 5)), pooled_shape=(2, 2), name="roi"))
    with pytest.raises(UnsupportedError, match=r"node 'roi': no primitive computes 'MaxRoiPool'; the closest.*MaxPool"):
        lower(b.to_graph())


def test_inputs_and_constants_may_be_outputs() -> None:
    b = Builder()
    x = b.input("x", (2,))
    b.output("x", x)
    b.output("c", b.constant(np.ones(2, np.float32)))
    program = _with_fakes(b.to_graph())
    assert program.kernels == ()
    assert program.outputs[0] is program.inputs[0]
    assert program.outputs[1].is_constant


def test_a_network_lowers_to_real_operators(small_net: Builder) -> None:
    program = lower(legalize(simplify(read(small_net))))
    assert type(program.kernels[0].operator).__name__ == "Conv"


def test_nodes_of_a_kernel_that_round_are_told_from_those_that_do_not() -> None:
    b = Builder()
    ones = np.ones(2, np.float32)
    padded = b.op("Pad", b.input("x", (1, 3, 4, 4)), np.array([0, 0, 1, 1, 0, 0, 1, 1]), name="pad")
    y = padded.conv(np.ones((2, 3, 3, 3), np.float32), name="conv").batch_norm(ones, ones, ones, ones, name="norm")
    b.output("y", y.relu().sigmoid())
    conv, relu, sigmoid = lower(legalize(simplify(b.to_graph()))).kernels
    assert {*conv.nodes} == {"pad", "conv", "norm"}
    assert {*conv.rounding} == {"conv", "norm"}
    assert relu.rounding == ()
    assert sigmoid.rounding == sigmoid.nodes


def test_kernels_of_one_node_have_its_rounding() -> None:
    b = Builder()
    b.output("y", b.op("Celu", b.input("x", (1, 4, 8, 8)).relu(), alpha=0.5, name="celu"))
    _, *kernels = lower(legalize(simplify(b.to_graph()))).kernels
    assert len(kernels) > 1
    assert {kernel.rounding for kernel in kernels} == {("celu",)}
