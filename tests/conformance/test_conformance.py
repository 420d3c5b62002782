"""ONNX's own test suite: right answers or ``UnsupportedError``, and what docs/reference/conformance.md says of them."""

from __future__ import annotations

import unittest
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.backend.test import BackendTest

from bench import conformance
from bench.onnx_suite import (
    FOLDED,
    KINDS,
    NATIVE,
    PASSED,
    UNSUPPORTED,
    WRONG,
    Case,
    cases,
    judge,
    networks,
    verdict_on,
    with_constant,
)
from blocklayout.errors import InputError, UnsupportedError
from blocklayout.plan import POLICIES
from tests.conformance import onnx_backend

NATIVE_OPERATORS = """
    Abs Add AveragePool BatchNormalization Ceil Celu Clip Concat Conv ConvTranspose DepthToSpace Div Dropout Elu Exp
    Expand Flatten Floor Gelu Gemm GlobalAveragePool GlobalMaxPool GroupNormalization HardSigmoid HardSwish Identity
    InstanceNormalization LRN LayerNormalization LeakyRelu Log LogSoftmax LpPool MatMul Max MaxPool Mean
    MeanVarianceNormalization Min Mish Mul Neg PRelu Pad Pow RMSNormalization Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize Round Selu Sigmoid
    Sign Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Swish Tanh ThresholdedRelu Transpose
    Unsqueeze Upsample
"""
EXCEPTIONS = {
    "Pow": "the exponent",  # the primitive wants a number known beforehand
    "Resize": "coordinate_transformation_mode is tf_crop_and_resize",
}
"""Why a 32-bit case of these may be left to the reference."""
NO_ELEMENTS = "tensors without elements"  # primitives compute nothing of them, whatever the operator


# The suite is made by importing it, in ten seconds: not while tests are collected, in each process that runs some.
@pytest.mark.parametrize("kind", KINDS)
def test_each_case_gives_the_right_answer_or_is_unsupported(kind: str) -> None:
    verdicts = {case.name: verdict_on(case) for case in cases() if case.kind == kind}
    assert verdicts
    assert {name: each.reason for name, each in verdicts.items() if each.outcome == WRONG} == {}
    assert [name for name, each in verdicts.items() if each.outcome == UNSUPPORTED and not each.reason] == []


def test_at_least_95_of_100_cases_in_scope_pass() -> None:
    wanted = [case for case in cases() if case.in_goal and case.kind in ("node", "pytorch-operator")]
    ends = Counter(verdict_on(case).outcome in PASSED for case in wanted)
    assert len(wanted) > 1500
    assert ends[True] >= 0.95 * len(wanted)


@pytest.mark.parametrize("op_type", NATIVE_OPERATORS.split())
def test_an_operator_runs_natively(op_type: str) -> None:
    own = [case for case in cases() if case.kind == "node" and _is_in_f32_alone(case, op_type)]
    verdicts = {case.name: verdict_on(case) for case in own}
    assert op_type == "Pow" or any(verdict.outcome == NATIVE for verdict in verdicts.values())
    excused = (NO_ELEMENTS, EXCEPTIONS.get(op_type, NO_ELEMENTS))
    for name, verdict in verdicts.items():
        is_excused = any(reason in verdict.reason for reason in excused)
        assert verdict.outcome in (NATIVE, FOLDED) or is_excused, f"{name}: {verdict.reason}"


def test_a_power_runs_natively_where_its_exponent_is_known() -> None:
    [case] = [case for case in cases() if case.name == "test_pow_bcast_scalar"]
    assert judge(with_constant(case, 1)).outcome == NATIVE


def _is_in_f32_alone(case: Case, op_type: str) -> bool:
    if len(case.model.graph.node) != 1 or case.op_type != op_type or not case.in_goal:
        return False
    return {info.type.tensor_type.elem_type for info in case.model.graph.output} == {TensorProto.FLOAT}


def test_the_table_says_what_happens() -> None:
    written = conformance.TABLE.read_text()
    if f"`onnx` {onnx.__version__} " not in written:
        pytest.skip(f"the table is of another release of onnx than {onnx.__version__}")
    for row in conformance.summary_rows():
        assert conformance.as_line(row) in written, "run python bench/conformance.py"
    for op_type, counts in conformance.counts():
        assert f"| {op_type} | {' | '.join(counts)} |" in written, f"{op_type}: run python bench/conformance.py"


@pytest.mark.full_size
def test_the_networks_of_the_suite_pass_natively() -> None:
    assert {case.name: verdict_on(case).outcome for case in networks()} == {case.name: NATIVE for case in networks()}
    assert conformance.as_line(conformance.networks_row()) in conformance.TABLE.read_text()


@pytest.mark.full_size
@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "auto"])
def test_no_policy_changes_an_answer(policy: str) -> None:
    native = [case for case in cases() if verdict_on(case).outcome == NATIVE]
    verdicts = {case.name: judge(case, layout=policy) for case in native}
    assert {name: verdict.reason for name, verdict in verdicts.items() if verdict.outcome not in PASSED} == {}


def test_the_runner_of_onnx_itself_drives_the_backend() -> None:
    suite = BackendTest(onnx_backend.BlockLayoutBackend, __name__)
    for name in ("test_relu", "test_Conv2d", "test_operator_conv", "test_single_relu_model", "test_string_concat"):
        suite.include(f"^{name}_cpu$")
    result = unittest.TestResult()
    suite.test_suite.run(result)
    reasons = [reason for _, reason in result.skipped if reason != "no matched include pattern"]
    assert (result.errors, result.failures) == ([], [])
    assert ["STRING" in reason for reason in reasons] == [True]
    assert result.testsRun - len(result.skipped) == 4


def test_a_node_runs_alone() -> None:
    x = np.array([[-1, 2]], np.float32)
    [y] = onnx_backend.run_node(helper.make_node("Relu", ["x"], ["y"]), [x])
    np.testing.assert_array_equal(y, [[0, 2]])


def test_there_is_only_the_cpu() -> None:
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA")
    model = helper.make_model(helper.make_graph([], "g", [], []))
    with pytest.raises(UnsupportedError, match="'CUDA'"):
        onnx_backend.prepare(model, "CUDA")


def test_compatibility_is_whether_it_loads() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,)) for name in "xy")

    def compatible(node: onnx.NodeProto) -> bool:
        graph = helper.make_graph([node], "g", [x], [y])
        return onnx_backend.is_compatible(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))

    assert compatible(helper.make_node("Relu", ["x"], ["y"]))
    assert not compatible(helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E4M3FN))


def test_more_arrays_than_inputs_are_refused() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,)) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    prepared = onnx_backend.prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    with pytest.raises(InputError, match=r"takes 1 inputs \(x\), got 2"):
        prepared.run([np.ones(2, np.float32)] * 2)
    with pytest.raises(InputError, match="no option 'speed'"):
        prepared.run([np.ones(2, np.float32)], speed="high")
