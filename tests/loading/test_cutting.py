"""Models in pieces: extents that depend on data, subgraphs that loop, sequences, and what they cannot be."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout.affordable import memory_nbytes
from blocklayout.runtime import ContentsNeededError
from tests import nets

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")

NODE = helper.make_node
F32, S64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(0)
IMAGE = nets.random_input((1, 3, 8, 8))
CONSTANTS = {
    "w": RNG.standard_normal((8, 3, 3, 3)).astype(np.float32),
    "square": RNG.standard_normal((8, 8)).astype(np.float32) / 4,
    "zero": np.float32(0),
    "none": np.array(0),
    "one": np.array(1),
    "minus": np.array([-1]),
    "ones": np.array([1]),
    "firsts": np.array([0]),
    "yes": np.array(True),
}
CONV = NODE("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1])


def graph_of(nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], name: str = "body") -> Any:
    infos = (
        [helper.make_tensor_value_info(each, *((F32, info) if isinstance(info, tuple) else (info, ())))]
        for side in (inputs, outputs)
        for each, info in side.items()
    )
    flat = [info for [info] in infos]
    return helper.make_graph(nodes, name, flat[: len(inputs)], flat[len(inputs) :])


def model_of(
    nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, int] | None = None, **constants: Any
) -> ModelProto:
    """Inputs by their arrays; outputs by their types."""
    given = {name: np.asarray(array) for name, array in inputs.items()}
    kinds = {"f": F32, "l": S64, "?": BOOL}
    read = {name for node in nodes for name in node.input}
    read |= {name for node in nodes for each in node.attribute for inner in each.g.node for name in inner.input}
    arrays = {name: np.asarray(array) for name, array in (CONSTANTS | constants).items() if name in read - given.keys()}
    graph = helper.make_graph(
        nodes,
        "net",
        [
            helper.make_tensor_value_info(name, kinds[array.dtype.char], [None] * array.ndim)
            for name, array in given.items()
        ],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in (outputs or {"y": F32}).items()],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@dataclass(frozen=True)
class Case:
    """Nodes, some feeds after each other, and the operators at which the model is cut."""

    nodes: list[Any]
    feeds: list[dict[str, Any]]
    cut: list[str]
    outputs: dict[str, int] = field(default_factory=lambda: {"y": F32})
    expected: Callable[..., Any] | None = None


PLACES = [CONV, NODE("Greater", ["c", "zero"], ["m"]), NODE("NonZero", ["m"], ["p"], name="nz")]
STEP = graph_of(
    [
        NODE("Conv", ["v", "square4"], ["u"]),
        NODE("Tanh", ["u"], ["v2"]),
        NODE("ReduceSum", ["v2"], ["row"], keepdims=0),
        NODE("Identity", ["goes_on"], ["again"]),
    ],
    {"i": S64, "goes_on": BOOL, "v": (1, 8, None, None)},
    {"again": BOOL, "v2": (1, 8, None, None), "row": ()},
)
SQUARE4 = CONSTANTS["square"][:, :, None, None]


def _stepped(x: np.ndarray, n: int) -> np.ndarray:
    for _ in range(n):
        x = np.tanh(np.einsum("oi,nihw->nohw", CONSTANTS["square"], x))
    return x


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
ONE_OF = {
    name: graph_of([NODE(op_type, ["v"], [name])], {}, {name: ()}) for name, op_type in (("a", "Relu"), ("b", "Neg"))
}
ROW = RNG.standard_normal(600).astype(np.float32)

CASES = {
    "NonZero": Case(
        [
            *PLACES,
            NODE("Transpose", ["p"], ["pt"]),
            NODE("GatherND", ["c", "pt"], ["v"]),
            NODE("Shape", ["p"], ["n"]),
            NODE("Softmax", ["c"], ["s"], axis=1),
            NODE("Relu", ["v"], ["y"]),
        ],
        [{"x": IMAGE}, {"x": -IMAGE}, {"x": IMAGE[:, :, :5]}],
        ["nz"],
        {"y": F32, "n": S64, "s": F32},
    ),
    "TopK of a computed k, and one cut behind another": Case(
        [
            *PLACES,
            NODE("Shape", ["p"], ["n"]),
            NODE("Slice", ["n", "ones", "two"], ["k"]),
            NODE("Compress", ["x", "kept"], ["some"]),
            NODE("Shape", ["some"], ["many"]),
            NODE("Min", ["k", "many"], ["least"]),
            NODE("Reshape", ["c", "minus"], ["flat"]),
            NODE("TopK", ["flat", "least"], ["y", "at"]),
        ],
        [{"x": IMAGE, "kept": np.arange(192) % 5 == 0}],
        ["nz"],
        {"y": F32, "at": S64},
    ),
    "Range and Reshape of computed values": Case(
        [
            NODE("ReduceMax", ["x"], ["most"], keepdims=0),
            NODE("Cast", ["most"], ["n"], to=S64),
            NODE("Range", ["none", "n", "one"], ["r"], name="numbers"),
            NODE("Cast", ["r"], ["f"], to=F32),
            NODE("Unsqueeze", ["f", "minus"], ["y"]),
        ],
        [{"x": np.float32([3.5, *ROW])}, {"x": np.float32([6.5, *ROW])}],
        ["numbers"],
    ),
    "Resize to computed sizes": Case(
        [
            NODE("ReduceMax", ["x"], ["most"], keepdims=0),
            NODE("Cast", ["most"], ["n"], to=S64),
            NODE("Reshape", ["n", "ones"], ["n1"]),
            NODE("Concat", ["ones", "three", "n1", "n1"], ["to"], axis=0),
            NODE("Resize", ["x", "", "", "to"], ["y"], name="resize", mode="nearest"),
        ],
        [{"x": np.full((1, 3, 16, 16), 16, np.float32)}, {"x": np.full((1, 3, 16, 16), 24, np.float32)}],
        ["resize"],
    ),
    "Unique": Case(
        [NODE("Unique", ["x"], ["u", "first", "back", "count"], name="u", sorted=0), NODE("Neg", ["u"], ["y"])],
        [{"x": np.float32([2, 1, 1, 3, 4, 3])}],
        ["u"],
        {"y": F32, "first": S64, "back": S64, "count": S64},
    ),
    "Loop": Case(
        [
            NODE("Conv", ["x", "w"], ["c"]),
            NODE("Loop", ["n", "", "c"], ["z", "rows"], name="loop", body=STEP),
            NODE("Abs", ["z"], ["y"]),
        ],
        [{"x": IMAGE, "n": np.array(n)} for n in (3, 0, 1)],
        ["loop"],
        {"y": F32, "rows": F32},
    ),
    "Loop with growing state": Case(
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
    "sequences": Case(
        [
            NODE("Relu", ["x"], ["r"]),
            NODE("SplitToSequence", ["r", "sizes"], ["parts"], name="split", axis=1),
            NODE("SequenceAt", ["parts", "minus0"], ["last"]),
            NODE("SequenceInsert", ["parts", "last"], ["more"]),
            NODE("SequenceErase", ["more", "none"], ["fewer"]),
            NODE("SequenceLength", ["fewer"], ["n"]),
            NODE("ConcatFromSequence", ["fewer"], ["joined"], name="join", axis=1),
            NODE("Neg", ["joined"], ["y"]),
        ],
        [{"x": ROW.reshape(6, 100)}],
        ["split", "join"],
        {"y": F32, "n": S64},
    ),
    "Optional": Case(
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
MORE = {
    "square4": SQUARE4,
    "sizes": np.array([30, 50, 20]),
    "minus0": np.array(-1),
    "two": np.array([2]),
    "three": np.array([3]),
}


def made(case: Case) -> ModelProto:
    first = case.feeds[0]
    return model_of(case.nodes, first, case.outputs, **{k: v for k, v in MORE.items() if k not in first})


@pytest.mark.parametrize("name", CASES)
def test_a_model_runs_in_pieces(name: str) -> None:
    case = CASES[name]
    session = bl.load(made(case))
    for _ in range(2):
        for feed in case.feeds:
            outputs = session.run(None, feed)
            if case.expected is not None:
                expected = case.expected(**feed)
            elif "n" in feed:
                y = _stepped(_reference_conv(feed["x"]), int(feed["n"]))
                rows = [_stepped(_reference_conv(feed["x"]), i + 1).sum() for i in range(int(feed["n"]))]
                expected = [np.abs(y), np.array(rows, np.float32)]
            else:
                expected = ReferenceEvaluator(made(case)).run(None, feed)
            for output, wanted in zip(outputs, expected, strict=True):
                assert (output.dtype, output.shape) == (wanted.dtype, wanted.shape)
                np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-4)
    text = str(session.pieces)
    assert all(each in text for each in case.cut), text


def _reference_conv(x: np.ndarray) -> np.ndarray:
    [y] = ReferenceEvaluator(model_of([NODE("Conv", ["x", "w"], ["y"])], {"x": x})).run(None, {"x": x})
    return y


@pytest.mark.parametrize("is_centered", [False, True])
@pytest.mark.parametrize(("n_most", "least"), [(0, 0.3), (1, 0.3), (5, 0.3), (100, 0.0)])
def test_boxes_that_overlap_better_ones_go(n_most: int, least: float, *, is_centered: bool) -> None:
    feed = {"boxes": RNG.random((2, 40, 4)).astype(np.float32), "scores": RNG.random((2, 3, 40)).astype(np.float32)}
    node = NODE("NonMaxSuppression", [*feed, "k", "i", "s"], ["y"], center_point_box=int(is_centered))
    limits = {"k": np.array([n_most]), "i": np.float32([0.5]), "s": np.float32([least])}
    model = model_of([node], feed, {"y": S64}, **limits)
    np.testing.assert_array_equal(bl.load(model).run(None, feed)[0], ReferenceEvaluator(model).run(None, feed)[0])


def test_a_session_in_pieces_shows_them_and_answers_all_else_or_says_why_not() -> None:
    model = made(CASES["NonZero"])
    with bl.load(model, shapes={"x": (1, 3, 8, 8)}, streams=2, threads=2) as session:
        assert session.pieces is not None
        assert [len(piece.sessions) for piece in session.pieces] == [1, 0, 0]  # the first one has its plan
        outputs = session.run(["s", "y"], {"x": IMAGE})
        assert [
            np.array_equal(*pair)
            for pair in zip(session.submit({"x": IMAGE}, ["s", "y"]).result(), outputs, strict=True)
        ]
        out = np.empty_like(outputs[1])
        assert session.run(["y"], {"x": IMAGE}, out={"y": out})[0] is out
        np.testing.assert_array_equal(out, outputs[1])
        assert len(session.plans) == session.memory().n_plans == 2
        assert "cut into 3 pieces" in repr(session)
        with bl.checking(), bl.watch("record") as moves:
            session.run(None, {"x": IMAGE})
        assert str(moves)
        for refused in (lambda: session.plan, lambda: session.plan_for({"x": (1, 3, 8, 8)})):
            with pytest.raises(bl.PlanError, match=r"cut into 3 pieces.*print\(session.pieces\)"):
                refused()
        with pytest.raises(bl.PlanError, match="cannot be saved"):
            session.save("x.session")
        with pytest.raises(bl.InputError, match="the model has no input 'z'"):
            session.run(None, {"z": IMAGE})
    with pytest.raises(bl.InputError, match="closed"):
        session.run(None, {"x": IMAGE})
    for options in ({"pin": {"conv": "nhwc"}}, {"precision": {"conv": "f32"}}):
        with pytest.raises(bl.PlanError, match="cut into pieces"):
            bl.load(model, shapes={"x": (1, 3, 8, 8)}, **options)
    nhwc = bl.load(model, io_layout={"x": "nhwc", "s": "nhwc"})
    turned = nhwc.run(["s"], {"x": np.ascontiguousarray(IMAGE.transpose(0, 2, 3, 1))})[0]
    np.testing.assert_allclose(turned.transpose(0, 3, 1, 2), outputs[0], rtol=1e-5, atol=1e-6)


def test_nothing_to_plan_before_the_first_run_is_said() -> None:
    session = bl.load(model_of([NODE("NonZero", ["x"], ["y"])], {"x": ROW}, {"y": S64}))
    with pytest.raises(ContentsNeededError, match="run once"):
        session.prepare({"x": (600,)})


def test_an_endless_loop_ends_by_ctrl_c_and_the_session_goes_on() -> None:
    forever = graph_of(
        [NODE("Identity", ["v"], ["v2"]), NODE("Greater", ["v", "zero"], ["again"])],
        {"i": S64, "goes_on": BOOL, "v": ()},
        {"again": BOOL, "v2": ()},
    )
    model = model_of([NODE("Loop", ["", "yes", "x"], ["y"], body=forever)], {"x": np.float32(1)})
    session = bl.load(model)
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


HUGE = np.array([memory_nbytes()])


@pytest.mark.parametrize(
    ("node", "feed"),
    [
        (NODE("Range", ["none", "n", "one"], ["y"], name="big"), {"n": HUGE[0]}),
        (NODE("ConstantOfShape", ["n"], ["y"], name="big"), {"n": HUGE}),
        (NODE("Expand", ["none", "n"], ["y"], name="big"), {"n": HUGE}),
        (NODE("Tile", ["ones", "n"], ["y"], name="big"), {"n": HUGE}),
    ],
    ids=lambda each: each.op_type if hasattr(each, "op_type") else "",
)
@pytest.mark.parametrize("is_computed", [False, True])
def test_extents_beyond_memory_are_refused(node: Any, feed: dict[str, Any], *, is_computed: bool) -> None:
    nodes = [node]
    if is_computed:
        renamed = [name if name != "n" else "n2" for name in node.input]
        copy = helper.make_node(node.op_type, renamed, ["y"], name=node.name)
        nodes = [NODE("ReduceMax", ["many"], ["top"], keepdims=0), NODE("Add", ["n", "top"], ["n2"]), copy]
        feed = feed | {"many": np.zeros(600, np.int64)}
    model = model_of(nodes, feed, {"y": F32 if node.op_type == "ConstantOfShape" else S64})
    with pytest.raises(bl.UnsupportedError, match=r"node 'big'.*GiB; this process may have .* GiB of memory"):
        bl.load(model).run(None, feed)


def test_a_function_that_calls_itself_is_refused() -> None:
    inner = helper.make_function(
        "own", "f", ["a"], ["b"], [NODE("f", ["a"], ["b"], domain="own")], [helper.make_opsetid("own", 1)]
    )
    graph = graph_of([NODE("f", ["x"], ["y"], domain="own")], {"x": (2,)}, {"y": (2,)})
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=[inner])
    with pytest.raises(bl.ModelError, match="'f'"):
        bl.load(model)
