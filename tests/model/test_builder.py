from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.model import Builder, Graph, read

Run = Callable[[Graph], list[np.ndarray]]


def _array(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def _everything(opset: int = 20) -> Builder:
    b = Builder("all", opset)
    x = b.input("x", (1, 4, 9, 9))
    y = x.conv(_array(8, 2, 3, 3), _array(8), strides=2, pads=(1, 1, 0, 0), group=2, name="stem").relu()
    y = y.conv_transpose(_array(8, 4, 2, 2), strides=2).clip(0, 6)
    y = y.batch_norm(_array(4), _array(4), _array(4), np.abs(_array(4)) + 1)
    y = b.concat([y.max_pool(3, 1, 1), y.average_pool(3, 1, (1, 1)).sigmoid()]).dropout()
    y = 1 - (0.5 + y * 2.0 - y / 3) + y
    y = y.transpose((0, 2, 3, 1)).reshape((1, 64, 8)).matmul(_array(8, 3)).transpose((0, 2, 1))
    b.output("mid", y)
    y = b.op("Unsqueeze", y, [3]) if opset >= 13 else b.op("Unsqueeze", y, axes=(3,))
    b.output("y", y.global_average_pool().flatten().gemm(_array(2, 3), _array(2), trans_b=True).softmax())
    return b


@pytest.mark.parametrize("opset", [7, 9, 11, 13])
def test_other_runtimes_load_every_operator_set(opset: int, run_in_onnxruntime: Run) -> None:
    graph = _everything(opset).to_graph()
    assert [result.shape for result in run_in_onnxruntime(graph)] == [(1, 3, 64), (1, 2)]


@pytest.mark.parametrize("opset", [14, 17, 20, 22])  # the reference trains BatchNormalization before 14
def test_another_runtime_computes_the_same(opset: int, run: Run, run_in_onnxruntime: Run) -> None:
    graph = _everything(opset).to_graph()
    for expected, actual in zip(run(graph), run_in_onnxruntime(graph), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_what_is_written_reads_back() -> None:
    b = _everything()
    assert str(read(b.to_onnx())) == str(b.to_graph())


def test_the_model_is_checked_in_full() -> None:
    onnx.checker.check_model(_everything().to_onnx(), full_check=True)


def test_a_builder_is_a_source() -> None:
    b = _everything()
    assert str(read(b, {"x": (1, 4, 9, 9)})) == str(b.to_graph())


def test_outputs_rename_what_computes_them() -> None:
    b = Builder()
    b.output("y", b.input("x", (2,)).relu(name="r"))
    node = b.to_graph().nodes[0]
    assert (node.name, node.outputs) == ("r", ("y",))


def test_one_value_can_be_two_outputs(run: Run) -> None:
    b = Builder()
    y = b.input("x", (2,)).relu()
    b.output("y", y)
    b.output("z", y)
    first, second = run(b.to_graph())
    np.testing.assert_array_equal(first, second)


def test_an_input_can_be_an_output(run: Run) -> None:
    b = Builder()
    b.output("y", b.input("x", (2,)))
    assert len(run(b.to_graph())) == 1


def test_building_may_go_on_after_a_graph_was_taken() -> None:
    b = Builder()
    y = b.input("x", (2,)).relu()
    b.output("y", y)
    assert len(b.to_graph().nodes) == 1
    b.output("z", y.sigmoid())
    assert [node.op_type for node in b.to_graph().nodes] == ["Relu", "Sigmoid"]


def test_constants_fold_as_they_are_written() -> None:
    b = Builder()
    ones = b.constant(np.ones((2, 2), np.float32), "ones")
    b.output("y", b.input("x", (2, 2)) + (ones + ones) * 2)
    assert [node.op_type for node in b.to_graph().nodes] == ["Add"]


def test_numbers_take_the_type_beside_them() -> None:
    b = Builder()
    assert (b.input("x", (2,), "f64") * 2).dtype == "f64"
    assert (b.input("i", (2,), "s64") + 2).dtype == "s64"
    assert b.op("Pow", b.input("p", (2,)), 2).dtype == "f32"
    assert b.op("Resize", b.input("r", (1, 1, 2, 2)), None, [1, 1, 2, 2]).shape == (1, 1, 4, 4)


def test_arrays_on_the_left_make_one_node() -> None:
    b = Builder()
    assert (np.ones((2, 3), np.float32) + b.input("x", (3,))).shape == (2, 3)


def test_big_endian_constants_are_turned() -> None:
    b = Builder()
    b.output("y", b.input("x", (2,)) + np.array([1, 2], ">f4"))
    constant = b.to_graph().constant(b.to_graph().nodes[0].inputs[1])
    assert constant is not None
    assert constant.dtype.isnative
    np.testing.assert_array_equal(constant, [1, 2])


def test_several_outputs_come_as_a_tuple() -> None:
    b = Builder()
    first, second = b.op("Split", b.input("x", (4, 2)), n_outputs=2, num_outputs=2)
    assert first.shape == second.shape == (2, 2)


def test_typed_methods_have_the_specified_meaning(run_in_onnxruntime: Run) -> None:
    b = Builder()
    b.output("y", b.input("x", (1, 4, 2, 2)).lrn(3, alpha=0.5, beta=0.5, bias=2.0))
    x = np.random.default_rng(7).standard_normal((1, 4, 2, 2)).astype(np.float32)
    squares = np.pad(x**2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    windows = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    np.testing.assert_allclose(run_in_onnxruntime(b.to_graph())[0], x / np.sqrt(2 + 0.5 / 3 * windows), rtol=1e-5)


def test_bf16_is_a_type() -> None:
    b = Builder(opset=22)
    assert b.input("x", (2,), "bf16").relu().dtype == "bf16"


def _refused(build: Callable[[Builder], Any]) -> str:
    b = Builder()
    b.input("x", (1, 3, 8, 8))
    with pytest.raises(ModelError) as caught:
        build(b)
    return str(caught.value)


def _x(b: Builder) -> Any:
    return b.op("Identity", b.input("z", (1, 3, 8, 8)))


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda b: b.input("x", (1,)), "there is a value of this name"),
        (lambda b: b.input("", (1,)), "not empty"),
        (lambda b: b.input("a", (1, -1)), "no extent can be negative"),
        (lambda b: b.input("a", (1, None)), "must be integers"),
        (lambda b: b.input("a", (1,), "fp33"), "no data type 'fp33'; there are f32"),
        (lambda b: b.op("HardSwitch", _x(b)), "did you mean HardSwish"),
        (lambda b: b.op("RMSNormalization", _x(b), 1.0), r"use Builder\(opset=23\)"),
        (lambda b: b.op("LeakyRelu", _x(b), alhpa=1), "did you mean 'alpha'"),
        (lambda b: b.op("LeakyRelu", _x(b), alpha="a"), "'alpha' must be a number"),
        (lambda b: b.op("Concat", _x(b), axis=1.5), "'axis' must be an integer"),
        (lambda b: b.op("Concat", _x(b)), "axis"),
        (lambda b: _x(b).conv(np.ones((4, 3), np.float32)), "Conv of"),
        (lambda b: _x(b).conv(np.ones((4, 3, 3, 3))), r"tensor\(double\)"),
        (lambda b: _x(b).conv(np.ones((4, 3, 3, 3), np.float32), pads=(1, 2, 3)), "3 values.*give one number, or 4"),
        (lambda b: _x(b) + np.ones((7,), np.float32), "Incompatible dimensions"),
        (lambda b: _x(b).reshape((4, 2)), r"has 192 elements and the second 8"),
        (lambda b: _x(b) + "three", "must be a value, an array or a number"),
        (lambda b: _x(b) + Builder().input("other", (1,)), "of another builder"),
        (lambda b: b.output("y", np.ones(3)), "must be a value of this builder"),
        (lambda b: b.output("x", _x(b)), "there is a value of this name"),
        (lambda b: b.to_graph(), "has no output"),
    ],
)
def test_mistakes_are_named_at_once(build: Callable[[Builder], Any], complaint: str) -> None:
    import re

    assert re.search(complaint, _refused(build))


def test_a_second_output_of_the_same_name_is_refused() -> None:
    b = Builder()
    y = b.input("x", (2,)).relu()
    b.output("y", y)
    with pytest.raises(ModelError, match="there is an output 'y' already"):
        b.output("y", y)


def test_extents_that_depend_on_data_are_not_supported() -> None:
    b = Builder()
    with pytest.raises(UnsupportedError, match="depend on data"):
        b.op("NonZero", b.input("x", (3,)))


def test_a_refused_call_leaves_no_trace() -> None:
    b = Builder()
    x = b.input("x", (1, 3, 8, 8))
    before = set(b._values)
    with pytest.raises(ModelError):
        x.conv(np.ones((4, 3), np.float32))
    assert set(b._values) == before


def test_operator_sets_that_are_not_read_are_not_written() -> None:
    with pytest.raises(ModelError, match="operator set 6 is too old"):
        Builder(opset=6)
