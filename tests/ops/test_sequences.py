"""Sequences and optionals between pieces."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import blocklayout as bl
from tests.ops.in_pieces import BOOL, F32, NODE, ROW, S64, Case, check, model_of

CASES = {
    "sequences": Case(
        [
            NODE("Relu", ["x"], ["r"]),
            NODE("SplitToSequence", ["r", "sizes"], ["parts"], name="split", axis=1),
            NODE("SequenceAt", ["parts", "last"], ["end"]),
            NODE("SequenceInsert", ["parts", "end"], ["more"]),
            NODE("SequenceErase", ["more", "none"], ["fewer"]),
            NODE("SequenceLength", ["fewer"], ["n"]),
            NODE("ConcatFromSequence", ["fewer"], ["joined"], name="join", axis=1),
            NODE("Neg", ["joined"], ["y"]),
        ],
        [{"x": ROW.reshape(6, 100)}],
        ["split", "join"],
        {"y": F32, "n": S64},
    ),
    "optionals": Case(
        [
            NODE("Relu", ["x"], ["r"]),
            NODE("Optional", ["r"], ["o"], name="opt"),
            NODE("OptionalHasElement", ["o"], ["has"]),
            NODE("OptionalGetElement", ["o"], ["e"]),
            NODE("Neg", ["e"], ["y"]),
        ],
        [{"x": ROW}],
        ["opt"],
        {"y": F32, "has": BOOL},
        expected=lambda x: [-np.maximum(x, 0), np.array(True)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_lists_and_none_are_between_pieces(name: str) -> None:
    check(CASES[name])


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([NODE("SequenceAt", ["s", "three0"], ["y"], name="at")], "the position is 3; a sequence of 2 has -2 to 1"),
        ([NODE("SequenceErase", ["s", "three0"], ["t"], name="at"), NODE("SequenceAt", ["t", "none"], ["y"])], "is 3"),
        ([NODE("ConcatFromSequence", ["s"], ["y"], name="at", axis=0)], r"tensors of \[\[2\], \[3, 1\]\]"),
    ],
)
def test_what_a_sequence_does_not_have_is_said(nodes: list[object], message: str) -> None:
    model = model_of([NODE("SequenceConstruct", ["x", "z"], ["s"]), *nodes], FED, three0=np.array(3))
    with pytest.raises(bl.ModelError, match=message):
        bl.load(model).run(None, FED)


FED = {"x": np.zeros(2, np.float32), "z": np.zeros((3, 1), np.float32)}


def test_sequences_and_optionals_are_fed_as_lists_and_none() -> None:
    graph = helper.make_graph(
        [NODE("ConcatFromSequence", ["s"], ["c"], axis=0), NODE("Relu", ["c"], ["y"])],
        "lists",
        [helper.make_tensor_sequence_value_info("s", F32, None)],
        [helper.make_tensor_value_info("y", F32, None)],
    )
    session = bl.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    np.testing.assert_array_equal(session.run(None, {"s": [ROW, -ROW]})[0], np.maximum([*ROW, *-ROW], 0))
    for fed, message in {
        "an array": (ROW, "'s' is a sequence, got a ndarray: give a list of arrays"),
        "nothing": (None, "'s' is a sequence, got None"),
        "another type": ([ROW.astype(np.int64)], "'s' is float32, got int64"),
        "words": (["a"], "'s' is float32, got str"),
    }.values():
        with pytest.raises(bl.InputError, match=message):
            session.run(None, {"s": fed})
    with pytest.raises(bl.InputError, match="missing input s: give a list"):
        session.run(None, {})


def test_a_list_where_a_tensor_is_computed_with_is_refused() -> None:
    graph = helper.make_graph(
        [NODE("OptionalGetElement", ["s"], ["held"]), NODE("Abs", ["held"], ["y"], name="abs")],
        "lists",
        [helper.make_tensor_sequence_value_info("s", F32, None)],
        [helper.make_tensor_value_info("y", F32, None)],
    )
    session = bl.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    with pytest.raises(bl.UnsupportedError, match="node 'abs': "):
        session.run(None, {"s": [ROW]})
