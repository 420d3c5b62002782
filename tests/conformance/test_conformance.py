"""ONNX's own test suite: right answers or ``UnsupportedError``, and what docs/conformance.md says of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from onnx import TensorProto, helper

from bench import conformance
from bench.onnx_suite import FOLDED, NATIVE, PASSED, UNSUPPORTED, WRONG, Case, cases, verdict_on
from blocklayout import onnx_backend
from blocklayout.errors import InputError, UnsupportedError

NATIVE_OPERATORS = """
    Abs Add AveragePool BatchNormalization Celu Clip Concat Conv ConvTranspose DepthToSpace Div Dropout Elu Exp Expand
    Flatten Gelu Gemm GlobalAveragePool GlobalMaxPool GroupNormalization HardSigmoid HardSwish Identity
    InstanceNormalization LRN LayerNormalization LeakyRelu Log LogSoftmax MatMul Max MaxPool Mean
    MeanVarianceNormalization Min Mish Mul Neg PRelu Pad Pow RMSNormalization Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize Round Selu Sigmoid Slice
    Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Swish Tanh Transpose Unsqueeze Upsample
"""
NEVER_CONSTANT = frozenset(("Pad", "Pow"))
"""What their primitives need as a constant, a value or an exponent, is an input in all of these cases."""

EXCEPTIONS = (
    "is computed at run time",  # where a primitive wants a constant: exponents, pads' values, scales of norms
    "tensors without elements",
    "ceil_mode with count_include_pad",
    "steps are",
    "the library would take other elements",
    "attribute mode is cubic",
    "tf_crop_and_resize",
    "antialias",
)
"""Why a case of such an operator in f32 may be left to the reference."""


@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case.name))
def test_a_case_gives_the_right_answer_or_is_unsupported(case: Case) -> None:
    verdict = verdict_on(case)
    assert verdict.outcome != WRONG, verdict.reason
    assert verdict.reason or verdict.outcome != UNSUPPORTED


def test_at_least_95_of_100_cases_in_scope_pass() -> None:
    wanted = [case for case in cases() if case.in_goal and case.kind in ("node", "pytorch-operator")]
    ends = Counter(verdict_on(case).outcome in PASSED for case in wanted)
    assert len(wanted) > 1500
    assert ends[True] >= 0.95 * len(wanted)


@pytest.mark.parametrize("op_type", NATIVE_OPERATORS.split())
def test_an_operator_runs_natively(op_type: str) -> None:
    own = [case for case in cases() if case.kind == "node" and _is_in_f32_alone(case, op_type)]
    verdicts = {case.name: verdict_on(case) for case in own}
    assert op_type in NEVER_CONSTANT or any(verdict.outcome == NATIVE for verdict in verdicts.values())
    for name, verdict in verdicts.items():
        excused = any(reason in verdict.reason for reason in EXCEPTIONS)
        assert verdict.outcome in (NATIVE, FOLDED) or excused, f"{name}: {verdict.reason}"


def _is_in_f32_alone(case: Case, op_type: str) -> bool:
    nodes = case.model.graph.node
    types = {info.type.tensor_type.elem_type for info in case.model.graph.output}
    return case.in_goal and len(nodes) == 1 and nodes[0].op_type == op_type and types == {TensorProto.FLOAT}


def test_the_table_says_what_happens() -> None:
    written = conformance.TABLE.read_text()
    for row in conformance.summary_rows():
        assert f"| {' | '.join(row)} |" in written, "run python bench/conformance.py"
    for op_type, counts in conformance.counts():
        assert f"| {op_type} | {' | '.join(counts)} |" in written, f"{op_type}: run python bench/conformance.py"


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

    def compatible(op_type: str) -> bool:
        graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"])], "g", [x], [y])
        return onnx_backend.is_compatible(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))

    assert compatible("Relu")
    assert not compatible("RandomNormalLike")


def test_more_arrays_than_inputs_are_refused() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,)) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    prepared = onnx_backend.prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    with pytest.raises(InputError, match=r"takes 1 inputs \(x\), got 2"):
        prepared.run([np.ones(2, np.float32)] * 2)
    with pytest.raises(InputError, match="no option 'speed'"):
        prepared.run([np.ones(2, np.float32)], speed="high")
