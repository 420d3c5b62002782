"""Loop and Scan: subgraphs as sessions of their own."""

from __future__ import annotations

import signal

import numpy as np
import pytest

import blocklayout as bl
from blocklayout.runtime import MemoryUse
from tests import nets
from tests.ops.in_pieces import BOOL, CONSTANTS, F32, IMAGE, NODE, ROW, S64, Case, check, graph_of, model_of, reference

STEP = graph_of(
    [
        NODE("Conv", ["v", "square"], ["u"]),
        NODE("Tanh", ["u"], ["v2"]),
        NODE("ReduceSum", ["v2"], ["row"], keepdims=0),
        NODE("Identity", ["goes_on"], ["again"]),
    ],
    {"i": S64, "goes_on": BOOL, "v": (1, 8, None, None)},
    {"again": BOOL, "v2": (1, 8, None, None), "row": ()},
)
GROWING = graph_of(
    [NODE("Concat", ["v", "v"], ["v2"], axis=0), NODE("Less", ["i", "one"], ["again"])],
    {"i": S64, "goes_on": BOOL, "v": (None,)},
    {"again": BOOL, "v2": (None,)},
)
SCANNED = graph_of(
    [NODE("Add", ["sum", "slice"], ["more"]), NODE("Relu", ["more"], ["row"])],
    {"sum": (3,), "slice": (3,)},
    {"more": (3,), "row": (3,)},
)


def _looped(x: np.ndarray, n: np.ndarray) -> list[np.ndarray]:
    [state] = reference(model_of([NODE("Conv", ["x", "w"], ["y"])], {"x": x}), x=x)
    rows = []
    for _ in range(int(n)):
        state = np.tanh(np.einsum("oi,nihw->nohw", CONSTANTS["square"][:, :, 0, 0], state))
        rows.append(state.sum())
    return [np.abs(state), np.array(rows, np.float32)]


def _from_the_end(x: np.ndarray, start: np.ndarray) -> list[np.ndarray]:
    sums = np.cumsum(x[:, ::-1], axis=1)[:, ::-1]
    return [sums[:, 0] + start, np.maximum(sums, 0)]


CASES = {
    "Loop": Case(
        [
            NODE("Conv", ["x", "w"], ["c"]),
            NODE("Loop", ["n", "", "c"], ["z", "rows"], name="loop", body=STEP),
            NODE("Abs", ["z"], ["y"]),
        ],
        [{"x": IMAGE, "n": np.array(n)} for n in (3, 0, 1)],
        ["loop"],
        {"y": F32, "rows": F32},
        expected=_looped,
    ),
    "Loop whose state grows until its condition ends it": Case(
        [NODE("Relu", ["x"], ["r"]), NODE("Loop", ["", "yes", "r"], ["y"], name="grow", body=GROWING)],
        [{"x": ROW}],
        ["grow"],
        expected=lambda x: [np.tile(np.maximum(x, 0), 4)],
    ),
    "Scan": Case(
        [
            NODE("Relu", ["x"], ["r"]),
            NODE("Scan", ["start", "r"], ["y", "rows"], name="scan", num_scan_inputs=1, body=SCANNED),
        ],
        [{"x": ROW.reshape(200, 3), "start": np.zeros(3, np.float32)}],
        ["scan"],
        {"y": F32, "rows": F32},
    ),
    "Scan from the end, along other dimensions": Case(
        [
            NODE(
                "Scan",
                ["start", "x"],
                ["y", "rows"],
                name="scan",
                num_scan_inputs=1,
                body=SCANNED,
                scan_input_axes=[1],
                scan_input_directions=[1],
                scan_output_axes=[1],
                scan_output_directions=[1],
            ),
        ],
        [{"x": ROW.reshape(3, 200), "start": np.zeros(3, np.float32)}],
        ["scan"],
        {"y": F32, "rows": F32},
        expected=_from_the_end,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_subgraph_runs_as_often_as_data_say(name: str) -> None:
    check(CASES[name])


def test_of_branches_with_much_to_do_only_the_one_that_is_chosen_runs() -> None:
    one, other = (
        graph_of([NODE("Conv", ["x", "w"], ["u"]), NODE(op_type, ["u"], ["v"])], {}, {"v": (1, 8, None, None)})
        for op_type in ("Relu", "Neg")
    )
    nodes = [NODE("ReduceSum", ["x"], ["sum"], keepdims=0), NODE("Greater", ["sum", "large"], ["c"])]
    nodes.append(NODE("If", ["c"], ["y"], name="which", then_branch=one, else_branch=other))
    x = nets.random_input((1, 3, 16, 16))
    model = model_of(nodes, {"x": x}, large=np.float32(1e6))
    session = bl.load(model)
    for fed, n_branches in ((x, 1), (x, 1), (x + 1e4, 2)):
        [expected] = reference(model, x=fed)
        np.testing.assert_allclose(session(fed), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
        assert session.pieces is not None
        assert len(session.pieces[-1].books) == n_branches


def test_weights_of_the_graph_around_a_subgraph_are_packed_once_and_plans_kept() -> None:
    case = CASES["Loop"]
    session = bl.load(case.model())
    for n in (3, 1):
        session.run(None, {"x": IMAGE, "n": np.array(n)})
    assert session.pieces is not None
    [body] = session.pieces[1].books
    assert [info.name for info in body.signature.inputs] == ["v"]
    assert MemoryUse.of([body]).n_plans == 1


def test_an_endless_loop_ends_by_ctrl_c_and_the_session_goes_on() -> None:
    forever = graph_of(
        [NODE("Identity", ["v"], ["v2"]), NODE("Greater", ["v", "zero"], ["again"])],
        {"i": S64, "goes_on": BOOL, "v": ()},
        {"again": BOOL, "v2": ()},
    )
    session = bl.load(model_of([NODE("Loop", ["", "yes", "x"], ["y"], body=forever)], {"x": np.float32(1)}))
    assert session(np.float32(-1)) == -1
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            session(np.float32(1))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert session(np.float32(-1)) == -1


def test_a_loop_with_more_outputs_than_its_body_has_is_refused() -> None:
    state = np.zeros((1, 8, 4, 4), np.float32)
    loop = NODE("Loop", ["n", "", "x"], ["y", "rows", "more"], name="loop", body=STEP)
    model = model_of([loop], {"x": state, "n": np.array(2)}, {"y": F32, "rows": F32, "more": F32})
    with pytest.raises(bl.ModelError, match="'loop': Loop has 3 outputs; it computes 2"):
        bl.load(model).run(None, {"x": state, "n": np.array(2)})
