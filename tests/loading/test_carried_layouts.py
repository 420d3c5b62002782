"""Values that keep their layout: from one run of a subgraph to the next, and from piece to piece."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout.ir import Demands
from blocklayout.model.metadata import DEMANDS_KEY, demands_text
from blocklayout.plan import POLICIES, Plan
from blocklayout.plan.plan import FREE
from tests import nets
from tests.ops.in_pieces import BOOL, F32, NODE, S64, graph_of, model_of, reference

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")

N_CHANNELS = 32
"""At least two blocks of the largest size."""
SHAPE = (1, N_CHANNELS, 9, 11)
STATE = (1, N_CHANNELS, None, None)
RNG = np.random.default_rng(0)
WEIGHTS: dict[str, Any] = {
    "w1": nets.he(RNG, N_CHANNELS, N_CHANNELS, 3, 3),
    "w2": nets.he(RNG, N_CHANNELS, N_CHANNELS, 1, 1),
    "square": nets.he(RNG, N_CHANNELS, N_CHANNELS, 3, 3),
}
PADDED: dict[str, Any] = {"pads": [1, 1, 1, 1]}
STEP = [
    NODE("Conv", ["v", "w1"], ["a"], name="first", **PADDED),
    NODE("Relu", ["a"], ["r"]),
    NODE("Conv", ["r", "w2"], ["b"], name="second"),
    NODE("Tanh", ["b"], ["v2"]),
]


def feed(n: int = 3, shape: tuple[int, ...] = SHAPE) -> dict[str, np.ndarray]:
    return {"x": nets.random_input(shape), "n": np.array(n)}


def looped(step: list[onnx.NodeProto], rows: dict[str, Any] | None = None) -> onnx.ModelProto:
    """A Loop whose state ``v`` becomes ``v2``; its results are ``y`` and what ``rows`` are stacked to."""
    again = NODE("Identity", ["goes_on"], ["again"])
    body = graph_of(
        [*step, again], {"i": S64, "goes_on": BOOL, "v": STATE}, {"again": BOOL, "v2": STATE} | (rows or {})
    )
    names = [f"{name}s" for name in rows or {}]
    loop = NODE("Loop", ["n", "", "x"], ["y", *names], name="loop", body=body)
    return model_of([loop], feed(), dict.fromkeys(["y", *names], F32), **WEIGHTS)


def repeated(step: list[onnx.NodeProto], given: dict[str, np.ndarray]) -> np.ndarray:
    """The last state, each run of the subgraph by ``onnx.reference``."""
    state, names = given["x"], {name for node in step for name in node.input}
    for _ in range(int(given["n"])):
        fed = {"v": state} | {name: given[name] for name in given if name in names}
        [state] = reference(model_of(step, fed, {"v2": F32}, **WEIGHTS), **fed)
    return state


def body_of(session: bl.Session, piece: int = -1) -> Plan:
    assert session.pieces is not None
    return session.pieces[piece].books[-1].plan


def n_moves(session: bl.Session, given: dict[str, np.ndarray]) -> int:
    with bl.watch("record") as moves:
        session.run(None, given)
    return len(moves)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_state_comes_as_it_was_written_the_time_before(policy: str) -> None:
    session = bl.load(looped(STEP), layout=policy, tune="model")
    for n in (3, 1, 0):
        [output] = session.run(None, feed(n))
        assert isinstance(output, np.ndarray)
        assert output.flags.c_contiguous
        np.testing.assert_allclose(output, repeated(STEP, feed(n)), rtol=1e-4, atol=1e-4)
    plan = body_of(session)
    [result] = plan.results
    assert dict(plan.inputs)["v"] == result.desc
    assert f"v comes as v2 was written the time before: {result.desc.named('src')}" in str(session.pieces)


def test_within_iterations_in_blocks_nothing_is_reordered() -> None:
    session = bl.load(looped(STEP), layout="blocked")
    session.run(None, feed())
    plan = body_of(session)
    assert plan.reorders == ()
    assert dict(plan.inputs)["v"].inner_blks
    assert n_moves(session, feed(2)) == n_moves(session, feed(7)) == 2  # on entry, and on exit
    [piece] = session.report(feed(), n_runs=1).record["pieces"]
    assert piece["notes"][0].startswith("v comes as v2 was written the time before: ")


def test_keeping_a_layout_costs_no_more_than_row_major_states_by_the_plan_s_own_prices() -> None:
    kept = bl.load(looped(STEP), tune="model")
    kept.run(None, feed())
    alone = model_of(STEP, {"v": feed()["x"]}, {"v2": F32}, **WEIGHTS)
    assert body_of(kept).cost_ns <= bl.load(alone, tune="model", shapes={"v": SHAPE}).plan.cost_ns


def test_rows_are_row_major_and_a_state_that_is_a_row_as_well_stays_so() -> None:
    doubled = [*STEP, NODE("Mul", ["r", "r"], ["row"])]
    session = bl.load(looped(doubled, {"row": STATE}), layout="blocked")
    y, rows = session.run(None, feed())
    assert isinstance(rows, np.ndarray)
    assert rows.shape == (3, *SHAPE)
    np.testing.assert_allclose(y, repeated(STEP, feed()), rtol=1e-4, atol=1e-4)
    shared = graph_of(
        [*STEP, NODE("Identity", ["goes_on"], ["again"])],
        {"i": S64, "goes_on": BOOL, "v": STATE},
        {"again": BOOL, "v2": STATE},
    )
    shared.output.append(shared.output[1])
    loop = NODE("Loop", ["n", "", "x"], ["y", "rows"], name="loop", body=shared)
    session = bl.load(model_of([loop], feed(), {"y": F32, "rows": F32}, **WEIGHTS), layout="blocked")
    y, rows = session.run(None, feed())
    np.testing.assert_array_equal(rows[-1], y)
    assert FREE not in dict(body_of(session).io_layout).values()


def test_a_scan_keeps_the_layout_of_its_state() -> None:
    body = graph_of(
        [
            NODE("Add", ["v", "slice"], ["sum"]),
            NODE("Conv", ["sum", "w1"], ["v2"], **PADDED),
            NODE("Abs", ["v2"], ["row"]),
        ],
        {"v": STATE, "slice": STATE},
        {"v2": STATE, "row": STATE},
    )
    scan = NODE("Scan", ["x", "all"], ["y", "rows"], name="scan", num_scan_inputs=1, body=body)
    fed = {"x": feed()["x"], "all": nets.random_input((4, *SHAPE))}
    model = model_of([scan], fed, {"y": F32, "rows": F32}, **WEIGHTS)
    session = bl.load(model, layout="blocked")
    for output, expected in zip(session.run(None, fed), reference(model, **fed), strict=True):
        np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)
    assert dict(body_of(session).inputs)["v"].inner_blks


def test_what_every_run_reads_of_the_graph_around_it_is_reordered_once() -> None:
    step = [NODE("Conv", ["v", "w1"], ["a"], **PADDED), NODE("Add", ["a", "around"], ["v2"])]
    body = graph_of(
        [*step, NODE("Identity", ["goes_on"], ["again"])],
        {"i": S64, "goes_on": BOOL, "v": STATE},
        {"again": BOOL, "v2": STATE},
    )
    loop = NODE("Loop", ["n", "", "x"], ["y"], name="loop", body=body)
    fed = feed() | {"around": nets.random_input(SHAPE) / 2}
    session = bl.load(model_of([loop], fed, **WEIGHTS), layout="blocked")
    [output] = session.run(None, fed)
    np.testing.assert_allclose(output, repeated(step, fed), rtol=1e-4, atol=1e-4)
    assert body_of(session).reorders == ()
    assert "around is brought to nChw" in str(session.pieces)
    assert n_moves(session, fed) == n_moves(session, fed | {"n": np.array(6)}) == 3


@pytest.mark.parametrize("is_stated", [False, True])
def test_nodes_of_a_subgraph_can_be_pinned(*, is_stated: bool) -> None:
    model, pins = looped(STEP), {"second": "nhwc"}
    if is_stated:
        model.metadata_props.add(key=DEMANDS_KEY, value=demands_text(Demands.of(pins, None, None)))
    session = bl.load(model, pin=None if is_stated else pins)
    [output] = session.run(None, feed())
    np.testing.assert_allclose(output, repeated(STEP, feed()), rtol=1e-4, atol=1e-4)
    assert body_of(session).format_of("v2").named("src") == dict(body_of(session).inputs)["v"].named("src") == "nhwc"


@pytest.mark.parametrize("shape", [SHAPE, (1, N_CHANNELS, 0, 5), (0, N_CHANNELS, 4, 5)])
def test_a_state_that_becomes_a_constant_or_is_empty_is_right(shape: tuple[int, ...]) -> None:
    for constant in (nets.random_input(shape), np.float32(3)):
        nodes = [NODE("Relu", ["v"], ["row"]), NODE("Add", ["k", "k"], ["v2"])]
        extents = (1, N_CHANNELS, None, None) if constant.ndim else ()
        body = graph_of(
            [*nodes, NODE("Identity", ["goes_on"], ["again"])],
            {"i": S64, "goes_on": BOOL, "v": extents},
            {"again": BOOL, "v2": extents, "row": extents},
        )
        loop = NODE("Loop", ["n", "", "x"], ["y", "rows"], name="loop", body=body)
        fed = {"x": nets.random_input(shape) if constant.ndim else np.float32(-1), "n": np.array(3)}
        y, rows = bl.load(model_of([loop], fed, {"y": F32, "rows": F32}, k=constant)).run(None, fed)
        np.testing.assert_array_equal(y, 2 * constant)
        np.testing.assert_array_equal(rows, np.maximum([fed["x"], 2 * constant, 2 * constant], 0))


def test_states_that_change_places_and_streams() -> None:
    nodes = [NODE("Conv", ["v", "w1"], ["u2"], **PADDED), NODE("Add", ["u", "v"], ["v2"])]
    body = graph_of(
        [*nodes, NODE("Identity", ["goes_on"], ["again"])],
        {"i": S64, "goes_on": BOOL, "u": STATE, "v": STATE},
        {"again": BOOL, "u2": STATE, "v2": STATE},
    )
    loop = NODE("Loop", ["n", "", "x", "z"], ["y", "w"], name="loop", body=body)
    fed = feed() | {"z": feed()["x"] * 2}
    u, v = fed["x"], fed["z"]
    for _ in range(3):
        [w] = reference(model_of(nodes[:1], {"v": v}, {"u2": F32}, **WEIGHTS), v=v)
        u, v = w, u + v
    model = model_of([loop], fed, {"y": F32, "w": F32}, **WEIGHTS)
    with bl.load(model, layout="blocked", streams=2, threads=2) as session:
        for future in [session.submit(fed) for _ in range(4)]:
            for output, expected in zip(future.result(), (u, v), strict=True):
                np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)


def test_a_state_that_grows_keeps_no_layout_and_is_right() -> None:
    step = [NODE("Conv", ["v", "w1"], ["a"], **PADDED), NODE("Concat", ["a", "v"], ["v2"], axis=2)]
    session = bl.load(looped(step))
    [output] = session.run(None, feed())
    np.testing.assert_allclose(output, repeated(step, feed()), rtol=1e-4, atol=1e-4)


def test_a_body_that_is_cut_keeps_a_layout_where_one_piece_alone_has_the_state() -> None:
    found = [NODE("ReduceSum", ["r"], ["sum"]), NODE("Reshape", ["sum", "ones"], ["s"]), NODE("NonZero", ["s"], ["p"])]
    step = [*STEP, *found, NODE("ReduceSum", ["p"], ["row"], keepdims=0)]
    model = looped(step)
    del model.graph.node[0].attribute[0].g.output[2:]
    session = bl.load(looped([*step], {"row": S64}), layout="blocked")
    y, rows = session.run(None, feed())
    np.testing.assert_allclose(y, repeated(STEP, feed()), rtol=1e-4, atol=1e-4)
    assert rows.tolist() == [0, 0, 0]
    assert session.pieces is not None
    [body] = session.pieces[-1].books
    assert body.pieces is not None
    assert body.plans[0].reorders == ()


PIECES = [
    NODE("Conv", ["x", "w1"], ["c"], name="before", **PADDED),
    NODE("ReduceSum", ["c"], ["sum"]),
    NODE("Reshape", ["sum", "ones"], ["s"]),
    NODE("NonZero", ["s"], ["p"], name="found"),
    NODE("Size", ["p"], ["n"]),
    NODE("Cast", ["n"], ["f"], to=F32),
    NODE("Mul", ["c", "f"], ["m"]),
    NODE("Conv", ["m", "w1"], ["y"], name="behind", **PADDED),
]
"""Two convolutions, and between them a number that only data settle."""


@pytest.mark.parametrize("policy", POLICIES)
def test_what_only_the_next_straight_piece_reads_stays_as_it_was_written(policy: str) -> None:
    given = {"x": feed()["x"]}
    model = model_of(PIECES, given, **WEIGHTS)
    session = bl.load(model, layout=policy)
    for _ in range(2):
        np.testing.assert_allclose(session(given["x"]), reference(model, **given)[0], rtol=1e-4, atol=1e-4)
    assert session.pieces is not None
    first, _, last = session.pieces
    [written] = [each.desc for each in first.books[0].plan.results if each.name == "c"]
    assert written == dict(last.books[0].plan.inputs)["c"]
    assert first.notes == [f"c stays as it was written, for the only piece that reads it: {written.named('src')}"]
    if policy == "blocked":
        assert written.inner_blks


def _by_sequence(value: str, result: str) -> list[onnx.NodeProto]:
    """The sum of a value, by nodes at which every model is cut."""
    return [
        NODE("ReduceSum", [value], [f"{value}.sum"]),
        NODE("SequenceConstruct", [f"{value}.sum"], [f"{value}.held"]),
        NODE("SequenceAt", [f"{value}.held", "none"], [result]),
    ]


def test_what_numpy_reads_or_two_pieces_is_row_major() -> None:
    given = {"x": feed()["x"]}
    by_numpy = [*PIECES[:3], NODE("NonZero", ["c"], ["p"], name="found"), *PIECES[4:]]
    for_two = [
        PIECES[0],
        *_by_sequence("c", "f"),
        NODE("Mul", ["c", "f"], ["m"]),
        NODE("Conv", ["m", "w1"], ["m2"], **PADDED),
        *_by_sequence("m2", "f2"),
        NODE("Mul", ["c", "f2"], ["y"]),
    ]
    for nodes in (by_numpy, for_two):
        model = model_of(nodes, given, **WEIGHTS)
        session = bl.load(model, layout="blocked")
        [expected] = reference(model, **given)
        np.testing.assert_allclose(session(given["x"]), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
        assert session.pieces is not None
        [written] = [each.desc for each in session.pieces[0].books[0].plan.results if each.name == "c"]
        assert written == bl.MemoryDesc(SHAPE, "f32")


def test_formats_at_the_border_are_not_those_of_names_within_a_subgraph() -> None:
    branches = [
        graph_of([NODE("Conv", ["x", "w1"], ["u"]), NODE(op_type, ["u"], ["v"])], {}, {"v": STATE})
        for op_type in ("Relu", "Neg")
    ]
    nodes = [
        NODE("ReduceSum", ["x"], ["sum"], keepdims=0),
        NODE("Greater", ["sum", "large"], ["c"]),
        NODE("If", ["c"], ["y"], name="which", then_branch=branches[0], else_branch=branches[1]),
    ]
    x = feed()["x"]
    model = model_of(nodes, {"x": x}, large=np.float32(1e6), **WEIGHTS)
    turned = bl.load(model, io_layout={"x": "nhwc"})(np.ascontiguousarray(x.transpose(0, 2, 3, 1)))
    np.testing.assert_allclose(turned, bl.load(model)(x), rtol=1e-4, atol=1e-4)


def _nodes(kinds: list[str]) -> list[onnx.NodeProto]:
    """Nodes behind each other, from ``v`` to ``v2``."""
    nodes, last = [], "v"
    for place, kind in enumerate(kinds):
        name = "v2" if place == len(kinds) - 1 else f"t{place}"
        made = {
            "Conv": lambda: NODE("Conv", [last, "w1"], [name], **PADDED),  # noqa: B023 - called at once
            "Add": lambda: NODE("Add", [last, "v"], [name]),  # noqa: B023
            "Around": lambda: NODE("Sub", [last, "around"], [name]),  # noqa: B023
            "Transpose": lambda: NODE("Transpose", [last], [name], perm=[0, 1, 3, 2]),  # noqa: B023
            "Tanh": lambda: NODE("Tanh", [last], [name]),  # noqa: B023
            "MaxPool": lambda: NODE("MaxPool", [last], [name], kernel_shape=[3, 3], **PADDED),  # noqa: B023
        }
        nodes.append(made[kind]())
        last = name
    return nodes


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(["Conv", "Add", "Around", "Transpose", "Tanh", "MaxPool"]), min_size=1, max_size=5),
    st.sampled_from([*POLICIES, "nChw8c", "chwn"]),
    st.integers(0, 3),
)
def test_random_bodies_are_right_under_every_policy(kinds: list[str], policy: str, n: int) -> None:
    step = _nodes([*kinds, "Tanh"])
    body = graph_of(
        [*step, NODE("Identity", ["goes_on"], ["again"])],
        {"i": S64, "goes_on": BOOL, "v": STATE},
        {"again": BOOL, "v2": STATE},
    )
    loop = NODE("Loop", ["n", "", "x"], ["y"], name="loop", body=body)
    fed = feed(n, (1, N_CHANNELS, 7, 7)) | {"around": nets.random_input((1, N_CHANNELS, 7, 7))}
    session = bl.load(model_of([loop], fed, **WEIGHTS), layout=policy, tune="model")
    [output] = session.run(None, fed)
    np.testing.assert_allclose(output, repeated(step, fed), rtol=1e-3, atol=1e-3)
    for plan in session.plans:
        results = {result.name: result.desc for result in plan.results}
        assert results["v2"] == dict(plan.inputs).get("v", results["v2"])
