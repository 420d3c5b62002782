"""Recurrent operators: by primitives against ONNX's reference, in every layout, and with options that those lack."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import ops
from blocklayout.errors import ModelError
from blocklayout.ir import Refusal
from blocklayout.ops.recurrent import compute
from tests.ops.cases import Input, OpCase, Weights
from tests.ops.harness import check_case

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
BOTH: dict[str, Any] = {"direction": "bidirectional"}
LINEAR: dict[str, Any] = {"linear_before_reset": 1}
LAYOUTS = ("any", "plain", "channels_last")


def recurrent(
    op_type: str,
    steps: int = 5,
    batch: int = 3,
    channels: int = 7,
    states: int = 17,
    *,
    bias: bool = True,
    lengths: list[int] | None = None,
    state: type | None = None,
    cell: type | None = None,
    peepholes: bool = False,
    outputs: int = 1,
    opset: int = 14,
    **attrs: Any,
) -> OpCase:
    """A node; ``state`` and ``cell`` are its first states, ``tuple`` at run time or ``Weights``."""
    sides, width = 2 if attrs.get("direction") == "bidirectional" else 1, GATES[op_type] * states
    first = (batch, sides, states) if attrs.get("layout") else (sides, batch, states)
    inputs: list[Input] = [
        (batch, steps, channels) if attrs.get("layout") else (steps, batch, channels),
        Weights((sides, width, channels)),
        Weights((sides, width, states)),
        Weights((sides, 2 * width)) if bias else None,
        None if lengths is None else np.array(lengths, np.int32),
        None if state is None else state(first),
        None if cell is None else cell(first),
        Weights((sides, 3 * states)) if peepholes else None,
    ]
    while inputs[-1] is None:
        inputs.pop()
    return OpCase(op_type, tuple(inputs), {"hidden_size": states, **attrs}, opset=opset, n_outputs=outputs)


NATIVE = [
    recurrent("LSTM"),
    recurrent("LSTM", direction="reverse", state=tuple, cell=tuple),
    recurrent("LSTM", **BOTH, state=Weights, cell=tuple, peepholes=True),
    recurrent("LSTM", **BOTH, layout=1, state=tuple),
    recurrent("LSTM", bias=False, cell=tuple, lengths=[5, 5, 5]),
    recurrent("LSTM", 1, 1, 1, 1),
    recurrent("LSTM", 2, 1, 64, 64, layout=1, opset=22),
    recurrent("GRU"),
    recurrent("GRU", 1, 20, **BOTH, state=tuple),
    recurrent("GRU", direction="reverse", layout=1, state=Weights, bias=False),
    recurrent("GRU", **LINEAR),
    recurrent("GRU", **LINEAR, **BOTH, layout=1, state=tuple),
    recurrent("RNN"),
    recurrent("RNN", **BOTH, layout=1, state=tuple, activations=["Tanh", "Tanh"]),
    recurrent("RNN", 1, 1, direction="reverse", state=Weights, opset=7, activations=["Tanh", "Tanh"]),
]


@pytest.mark.parametrize("case", NATIVE, ids=str)
def test_agrees_with_the_reference_in_every_layout(case: OpCase) -> None:
    assert "plain" in check_case(case)


@pytest.mark.needs_bf16
@pytest.mark.parametrize("case", [NATIVE[0], NATIVE[2], NATIVE[7], NATIVE[10], recurrent("RNN", 1)], ids=str)
def test_bf16(case: OpCase) -> None:
    check_case(case, "bf16")


def loaded(case: OpCase, *names: str, **options: Any) -> tuple[bl.Session, list[np.ndarray]]:
    """A session of the node with some of its outputs, and what that computes."""
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    kept = [info for info in model.graph.output if not names or info.name in names]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    session = bl.load(model, **options)
    return session, session.run(None, case.feeds)


@pytest.mark.parametrize("layout", ["auto", "plain", "nhwc"])
@pytest.mark.parametrize("read", [("out_0", "out_1", "out_2"), ("out_1",), ("out_2",), ("out_0", "out_2")], ids=str)
def test_any_of_the_outputs_may_be_read(read: tuple[str, ...], layout: str) -> None:
    case = recurrent("LSTM", **BOTH, layout=1, state=tuple, outputs=3)
    session, found = loaded(case, *read, layout=layout)
    right: Any = ReferenceEvaluator(case.model).run(list(read), case.feeds)
    assert session.plan.steps[0].spec.kind == "rnn"
    for one, other in zip(found, right, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_one_step_of_many_sequences_is_native() -> None:
    session, _ = loaded(recurrent("LSTM", 1, 20, outputs=3), "out_1")
    assert [step.spec.kind for step in session.plan.steps] == ["rnn"]


def test_rearranging_both_directions_moves_nothing() -> None:
    case = recurrent("LSTM", **BOTH)
    b = bl.Builder()
    arrays = [array for array in case.arrays[1:] if array is not None]
    y = b.op("LSTM", b.input("x", (5, 3, 7)), *arrays, hidden_size=17, **BOTH)
    b.output("y", b.op("Reshape", b.op("Transpose", y, perm=[0, 2, 1, 3]), np.array([5, 3, 34])))
    session = bl.load(b)
    assert [step.spec.kind for step in session.plan.steps] == ["rnn"]
    [found] = session.run(None, {"x": case.feeds["in_0"]})
    np.testing.assert_allclose(found, case.expected.transpose(0, 2, 1, 3).reshape(5, 3, 34), atol=1e-5)


OPTIONS = [
    (recurrent("LSTM", lengths=[5, 2, 1], outputs=3, **BOTH), "sequence_lens are"),
    (recurrent("LSTM", clip=0.1, outputs=2), "attribute clip is"),
    (recurrent("LSTM", input_forget=1, peepholes=True), "input_forget is set"),
    (
        recurrent("LSTM", activations=["HardSigmoid", "LeakyRelu", "Softsign"], activation_alpha=[0.3, 0.2]),
        "activations are",
    ),
    (recurrent("GRU", lengths=[1, 5, 4], layout=1, **LINEAR, outputs=2), "sequence_lens are"),
    (recurrent("GRU", activations=["Sigmoid", "Softplus"], direction="reverse", clip=0.3), "attribute clip is"),
    (recurrent("RNN", activations=["Affine"], activation_alpha=[0.5], activation_beta=[0.1]), "activations are"),
    (recurrent("RNN", activations=["Relu", "Elu"], activation_alpha=[0.5], **BOTH, outputs=2), "activations are"),
]
"""Nodes beyond the primitives, and the reason in the plan."""


def by_onnxruntime(case: OpCase) -> list[np.ndarray]:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    arrays = runtime.InferenceSession(case.model.SerializeToString(), options).run(None, case.feeds)
    return [np.asarray(array) for array in arrays]


@pytest.mark.usefixtures("wide_screen")
@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
@pytest.mark.parametrize(("case", "reason"), OPTIONS, ids=str)
def test_options_that_no_primitive_has_are_computed_all_the_same(case: OpCase, reason: str) -> None:
    session, found = loaded(case)
    assert reason in str(session.plan)
    attrs = dict(case.attrs)
    if attrs.get("layout"):  # which onnxruntime lacks
        right = [np.asarray(each) for each in compute(case.op_type, attrs, case.arrays)][: len(found)]
    else:
        right = by_onnxruntime(case)
    for one, other in zip(found, right, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu", "Sigmoid"])
def test_the_plain_cell_has_more_activations(activation: str) -> None:
    alpha: dict[str, Any] = {"activation_alpha": [0.3]} if activation == "LeakyRelu" else {}
    case = recurrent("RNN", activations=[activation], **alpha)
    case.__dict__["expected"] = by_onnxruntime(case)[0]
    check_case(case, layouts=LAYOUTS)


@pytest.mark.parametrize("case", NATIVE, ids=str)
def test_numpy_agrees_with_the_reference(case: OpCase) -> None:
    np.testing.assert_allclose(compute(case.op_type, case.attrs, case.arrays)[0], case.expected, atol=1e-5)


def test_weights_computed_at_run_time_are_refused_with_a_reason() -> None:
    case = OpCase("GRU", ((2, 1, 3), (1, 12, 3), (1, 12, 4)), {"hidden_size": 4}, opset=14)
    operator = ops.find("GRU")
    assert operator is not None
    refusal = operator.accept(case.node)
    assert isinstance(refusal, Refusal)
    assert "W (in_1) is computed at run time" in refusal.reason


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
@pytest.mark.parametrize(("steps", "batch"), [(0, 2), (3, 0)])
def test_nothing_follows_from_nothing(steps: int, batch: int) -> None:
    _, [y, state] = loaded(recurrent("GRU", steps, batch, state=tuple, outputs=2))
    assert y.shape == (steps, 1, batch, 17)
    assert state.shape == (1, batch, 17)


@pytest.mark.parametrize(
    ("attrs", "changed", "message"),
    [
        ({"hidden_size": 16}, {}, "hidden_size is 16; R makes it 17"),
        ({}, {1: (1, 68, 8)}, r"W \(in_1\) has extents \[1, 68, 8\]; .* make them \[1, 68, 7\]"),
        ({}, {3: (1, 68)}, "B .* has extents"),
        ({"direction": "backward"}, {}, "direction is 'backward'; it must be one of forward, reverse"),
        ({"activations": ["Sine", "Tanh", "Tanh"]}, {}, "activations are .*; 3 for each direction, of affine, relu"),
    ],
)
def test_a_contradiction_names_the_operand(
    attrs: dict[str, Any], changed: dict[int, tuple[int, ...]], message: str
) -> None:
    usual = recurrent("LSTM")
    inputs = [Weights(changed[i]) if i in changed else value for i, value in enumerate(usual.inputs)]
    case = OpCase("LSTM", tuple(inputs), {**usual.attrs, **attrs}, opset=14)
    with pytest.raises(ModelError, match=message):
        case.uninferred((5, 1, 3, 17))
