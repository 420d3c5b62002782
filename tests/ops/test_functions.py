"""Operators' functions in numpy, against the reference: every layout, indices, ties, signs, empty tensors and types."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.dtypes import from_numpy
from blocklayout.ir import HostSpec, NodeInfo, Problem, Recipe, TensorInfo, Value, Wish
from blocklayout.ops import functions
from blocklayout.runtime.host import HostExecution, HostMemory, host_function
from tests import nets
from tests.ops.harness import assert_padding_is_zero, packed, poisoned

OPSET = 24
LAYOUTS = ("plain", "channels_last", "dcba", "blocked8", "blocked16")
RNG = np.random.default_rng(3)
IMAGE = (2, 17, 3, 5)


def floats(*dims: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(dims).astype(dtype)


def integers(*dims: int, low: int = -9, high: int = 9, dtype: str = "int64") -> np.ndarray:
    return RNG.integers(low, high, dims).astype(dtype)


def scalar(number: float, dtype: str = "int64") -> np.ndarray:
    return np.array(number, dtype)


class Case(Struct, frozen=True, eq=False):
    """A node with its inputs; ``None`` is one left out."""

    op_type: str
    sources: Sequence[np.ndarray | None]
    attrs: dict[str, Any] = {}
    n_outputs: int = 1
    opset: int = OPSET

    def __str__(self) -> str:
        given = ",".join("-" if each is None else f"{each.dtype}{list(each.shape)}" for each in self.sources)
        return f"{self.op_type}({given}){self.attrs or ''}"

    @property
    def names(self) -> list[str]:
        return ["" if each is None else f"x{place}" for place, each in enumerate(self.sources)]

    @property
    def feed(self) -> dict[str, np.ndarray]:
        return {name: each for name, each in zip(self.names, self.sources, strict=True) if each is not None}

    def expected(self) -> list[np.ndarray]:
        outputs = [f"y{place}" for place in range(self.n_outputs)]
        node = helper.make_node(self.op_type, self.names, outputs, **self.attrs)
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
            for name, each in self.feed.items()
        ]
        results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
        graph = helper.make_graph([node], "one", infos, results)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        with np.errstate(all="ignore"):
            found: Any = ReferenceEvaluator(model).run(None, self.feed)
        return [np.asarray(each) for each in found]

    def node(self, results: Sequence[np.ndarray]) -> NodeInfo:
        def value(name: str, array: np.ndarray | None) -> Value | None:
            return None if array is None else Value(name, array.shape, from_numpy(array.dtype))

        inputs = tuple(map(value, self.names, self.sources))
        outputs = tuple(value(f"y{place}", each) for place, each in enumerate(results))
        return NodeInfo("own", self.op_type, self.attrs, inputs, outputs, self.opset)


def computed(case: Case, results: Sequence[np.ndarray], layout: str = "plain") -> list[np.ndarray] | None:
    """The node's results by its function in numpy, in a layout; ``None`` where it does not compute in that."""
    operator = functions.operator_of(case.node(results))
    assert operator is not None
    problem = Problem({}, {}, TensorInfo(results[0].shape or (1,), from_numpy(results[0].dtype)), 1)
    recipe = operator.lower(problem, Wish(layout, layout), dnnl.Attr())
    return None if recipe is None else _run(recipe, list(case.feed.values()), results)


def _run(recipe: Recipe, sources: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> list[np.ndarray]:
    [spec] = [step.spec for step in recipe.steps if isinstance(step.spec, HostSpec) and step.spec.node]
    descs = dict(spec.descs)
    buffers = {f"src_{place}": packed(descs[f"src_{place}"], array) for place, array in enumerate(sources)}
    written = {arg: poisoned(desc) for arg, desc in descs.items() if arg.startswith("dst")}
    for step in recipe.steps:
        assert isinstance(step.spec, HostSpec)
        function = host_function(step.spec, functions.compute_of(step.spec) if step.spec.node else None)
        memories = {
            arg: HostMemory(step.spec.memory_desc(arg), (buffers | written)[operand]) for arg, operand in step.operands
        }
        HostExecution(function, memories).run()
    for arg, buffer in written.items():
        assert_padding_is_zero(descs[arg], buffer)
    shaped = zip(written.items(), results, strict=True)
    return [descs[arg].unpack(buffer).reshape(each.shape) for (arg, buffer), each in shaped]


def check(case: Case, layouts: Sequence[str] = ("plain",), tolerance: float = 2e-6) -> set[str]:
    """Compare with the reference; the layouts that it computes in."""
    expected, ran = case.expected(), set()
    for layout in layouts:
        found = computed(case, expected, layout)
        if found is None:
            continue
        ran.add(layout)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours.astype("f8"), theirs.astype("f8"), rtol=tolerance, atol=tolerance)
    return ran


SPECIAL = floats(*IMAGE)
SPECIAL[0, 0, 0, :3] = np.nan, np.inf, -np.inf
SIGNED, DIVISORS = integers(*IMAGE), integers(*IMAGE, low=1) * RNG.choice([-1, 1], IMAGE)
CHANNELS = floats(17, 1, 1)
ELEMENTWISE = [
    Case("Where", (integers(*IMAGE) > 0, floats(*IMAGE), floats(*IMAGE))),
    Case("Where", (integers(*IMAGE) > 0, floats(*IMAGE), scalar(0.5, "float32"))),
    Case("Greater", (SPECIAL, floats(*IMAGE))),
    Case("And", (integers(*IMAGE) > 0, integers(*IMAGE) > 0)),
    Case("BitShift", (integers(*IMAGE, low=0, dtype="uint8"), scalar(3, "uint8")), {"direction": "LEFT"}),
    Case("Add", (SIGNED, DIVISORS)),
    Case("Div", (SIGNED, DIVISORS)),
    Case("Div", (integers(*IMAGE, low=0, dtype="uint8"), scalar(3, "uint8"))),
    Case("Mod", (SIGNED, DIVISORS)),
    Case("Mod", (floats(*IMAGE), floats(*IMAGE)), {"fmod": 1}),
    Case("Pow", (SIGNED, scalar(2))),
    Case("Max", (SPECIAL.astype("f8"), floats(*IMAGE, dtype="f8"), scalar(0, "f8"))),
    Case("Mean", (floats(*IMAGE, dtype="f8"), floats(*IMAGE, dtype="f8"))),
    Case("Erf", (SPECIAL,)),
    Case("Erf", (floats(*IMAGE, dtype="float16"),)),
    Case("Cos", (floats(*IMAGE, dtype="f8"),)),
    Case("IsInf", (SPECIAL,), {"detect_negative": 0}),
    Case("Shrink", (SIGNED.astype("f8"),), {"lambd": 1.5, "bias": 0.5}),
    Case("Clip", (SIGNED, None, scalar(3))),
    Case("Cast", (integers(*IMAGE, dtype="float32") / 4,), {"to": TensorProto.INT64}),
    Case("QuantizeLinear", (floats(*IMAGE), scalar(0.02, "float32"), scalar(130, "uint8"))),
    Case("DequantizeLinear", (SIGNED.astype("int8"), scalar(0.02, "float32"), scalar(3, "int8"))),
]


@pytest.mark.parametrize("case", ELEMENTWISE, ids=str)
def test_an_elementwise_function_computes_in_every_layout(case: Case) -> None:
    tolerance = 1e-3 if case.sources[0].dtype == np.float16 else 2e-6  # type: ignore[union-attr]
    assert check(case, LAYOUTS, tolerance) == set(LAYOUTS)


@pytest.mark.parametrize(
    "case",
    [
        Case("Less", (floats(*IMAGE), CHANNELS)),
        Case("Where", (integers(2, 1, 3, 5) > 0, floats(*IMAGE), CHANNELS)),
        Case("Sub", (floats(5, dtype="f8"), floats(*IMAGE, dtype="f8"))),
    ],
    ids=str,
)
def test_what_is_broadcast_is_read_in_any_order_of_dimensions(case: Case) -> None:
    assert check(case, LAYOUTS) == {"plain", "channels_last", "dcba"}


TIES = integers(4, 200, low=0, high=9).astype(np.float32)
ROWS = floats(3, 4, 5)
OTHERS = [
    Case("Gather", (SIGNED, integers(2, 3, low=-5, high=5)), {"axis": -1}),
    Case("Gather", (SIGNED, scalar(-1)), {"axis": 1}),
    Case("GatherND", (ROWS, integers(3, 2, 1, low=-4, high=4)), {"batch_dims": 1}),
    Case("GatherElements", (ROWS, integers(3, 2, 5, low=0, high=4)[:, :1]), {"axis": 1}),
    Case("ScatterND", (ROWS, np.array([[0, 1], [2, 3], [0, 1]]), floats(3, 5)), {"reduction": "add"}),
    Case("ScatterND", (ROWS, np.array([[-1], [0]]), floats(2, 4, 5)), {"reduction": "max"}),
    Case("ScatterElements", (ROWS, np.array([[[1, 1, -1]]]), floats(1, 1, 3)), {"axis": 2, "reduction": "mul"}),
    Case("ScatterElements", (SIGNED, integers(1, 2, 1, 1, low=-9, high=-7), integers(1, 2, 1, 1)), {"axis": 1}),
    Case("TopK", (TIES, np.array([7])), n_outputs=2),
    Case("TopK", (TIES, np.array([7])), {"largest": 0}, n_outputs=2),
    Case("TopK", (floats(200, 3), np.array([4])), {"axis": 0}, n_outputs=2),
    Case("TopK", (floats(3, 200), np.array([4])), {"largest": 0}, n_outputs=2),
    Case("TopK", (integers(2, 5, low=0, dtype="uint8"), np.array([5])), n_outputs=2),
    Case("ArgMax", (TIES,), {"axis": 1, "select_last_index": 1, "keepdims": 0}),
    Case("ArgMin", (SPECIAL,), {"axis": -2}),
    Case("CumSum", (ROWS, scalar(-2)), {"exclusive": 1, "reverse": 1}),
    Case("CumSum", (np.zeros((0, 3), "f4"), scalar(0)), {"exclusive": 1}),
    Case("CumProd", (SIGNED, scalar(1)), {"reverse": 1}, opset=26),
    Case("Trilu", (SPECIAL, scalar(-1)), {"upper": 0}),
    Case("Trilu", (SPECIAL, scalar(9))),
    Case("OneHot", (integers(2, 3, low=-6), scalar(5), np.array([2, 7], "int32")), {"axis": 1}),
    Case("Hardmax", (TIES,)),
    Case("LpNormalization", (np.abs(ROWS),), {"p": 1, "axis": 1}),
    Case("ReduceLogSumExp", (SPECIAL * 200, np.array([1, -1])), {"keepdims": 0}),
    Case("ReduceSum", (SIGNED, np.array([], np.int64)), {"noop_with_empty_axes": 1}),
    Case("ReduceSum", (SIGNED, np.array([0, 2]))),
    Case("ReduceMean", (SIGNED, np.array([-1])), {"keepdims": 0}),
    Case("ReduceMax", (SIGNED,), {"axes": [1, 3]}, opset=13),
    Case("ReduceMin", (np.zeros((2, 0), "int32"), np.array([1]))),
    Case("ReduceProd", (ROWS.astype("f8"),), {"keepdims": 0}),
    Case("ReduceL1", (SIGNED, np.array([1]))),
    Case("Slice", (SIGNED, np.array([9, 0]), np.array([-99, 2]), np.array([1, -1]), np.array([-3, 1]))),
    Case("Split", (SIGNED,), {"axis": 1, "num_outputs": 3}, n_outputs=3),
    Case("Split", (SIGNED, np.array([1, 16])), {"axis": -3}, n_outputs=2),
    Case("Concat", (SIGNED, DIVISORS[:, :0], DIVISORS), {"axis": 1}),
    Case("Tile", (SIGNED, np.array([1, 2, 1, 3]))),
    Case("Expand", (integers(17, 1, 1), np.array([2, 1, 3, 1]))),
    Case("Pad", (SIGNED, np.array([1, 0, 0, 2]), scalar(7), np.array([-1, 0]))),
    Case("Pad", (SIGNED, np.array([2, 1]), None, np.array([3])), {"mode": "reflect"}),
    Case("ReverseSequence", (ROWS, np.array([1, 0, 4])), {"batch_axis": 0, "time_axis": 1}),
    Case("MatMul", (integers(2, 3, 4), integers(4, 5))),
    Case("Softmax", (floats(2, 3, dtype="f8"),), {"axis": 0}),
    Case("LogSoftmax", (floats(2, 3, dtype="f8"),)),
    Case("QLinearMatMul", (
        *(integers(3, 4, low=0, dtype="uint8"), scalar(0.1, "float32"), scalar(3, "uint8")),
        *(integers(4, 2, dtype="int8"), scalar(0.2, "float32"), scalar(0, "int8")),
        *(scalar(0.3, "float32"), scalar(8, "uint8")),
    )),
    Case("ConvInteger", (
        *(integers(2, 4, 6, 5, low=0, dtype="uint8"), integers(6, 2, 3, 2, low=0, dtype="uint8")),
        *(scalar(2, "uint8"), scalar(3, "uint8")),
    ), {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
    Case("GridSample", (floats(2, 3, 4, 5), floats(2, 3, 2, 2) * 2), {"mode": "cubic", "padding_mode": "border"}),
    Case("GridSample", (floats(1, 2, 3, 4, 2), floats(1, 2, 2, 3, 3) * 3), {"padding_mode": "reflection"}),
    Case("RoiAlign", (floats(2, 3, 9, 8), np.array([[-9, 1, 6, 7], [3, 3, 3, 3], [1, 2, 30, 9]], "f4"),
                      np.array([1, 0, 1])), {"output_height": 2, "output_width": 3, "mode": "max"}),
    Case("RoiAlign", (floats(2, 3, 9, 8), np.array([[0, 1, 6, 7.5]], "f4"), np.array([1])),
         {"output_height": 2, "output_width": 3, "coordinate_transformation_mode": "output_half_pixel"}),
    Case("DFT", (floats(2, 7, 3, 2, dtype="f8"), scalar(9), scalar(1))),
    Case("DFT", (floats(2, 7, 1), None, scalar(1)), {"onesided": 1}),
    Case("DFT", (floats(2, 5, 2), scalar(8), scalar(1)), {"onesided": 1, "inverse": 1}),
    Case("STFT", (floats(2, 20, 1), scalar(3), np.hanning(8).astype("f4"), scalar(8)), {"onesided": 0}),
    Case("RandomNormal", (), {"shape": [3, 4], "seed": 7.0, "mean": 2.0}),
    Case("RandomUniformLike", (ROWS,), {"seed": 7.0, "low": -1.0}),
    Case("Dropout", (ROWS, scalar(0.3, "float32"), scalar(1, "bool")), {"seed": 5}, n_outputs=2),
]  # fmt: skip


@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_a_function_is_right_on_row_major_arrays(case: Case) -> None:
    assert check(case, tolerance=2e-5) == {"plain"}


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@settings(max_examples=40)
@given(st.data(), SHAPES)
def test_places_are_those_of_numpy(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    seed = np.random.default_rng(data.draw(st.integers(0, 99)))
    places = seed.integers(-shape[axis], shape[axis], data.draw(SHAPES)[:2])
    [taken] = computed(Case("Gather", (x, places), {"axis": axis}), [np.take(x, places, axis)]) or []
    np.testing.assert_array_equal(taken, np.take(x, places, axis))
    along = seed.integers(-shape[axis], shape[axis], shape)
    wanted = np.take_along_axis(x, along, axis)
    [gathered] = computed(Case("GatherElements", (x, along), {"axis": axis}), [wanted]) or []
    np.testing.assert_array_equal(gathered, wanted)
    [counted] = (
        computed(Case("ScatterElements", (x * 0, along, x * 0 + 1), {"axis": axis, "reduction": "add"}), [x]) or []
    )
    np.testing.assert_array_equal(counted.sum(axis), np.full_like(x, 1).sum(axis))
    depth = data.draw(st.integers(1, x.ndim))
    points = np.stack([seed.integers(-n, n, 5) for n in shape[:depth]], -1)
    wanted = x[tuple(points.T)]
    [sliced] = computed(Case("GatherND", (x, points)), [wanted]) or []
    np.testing.assert_array_equal(sliced, wanted)
    [written] = computed(Case("ScatterND", (x * 0, points, wanted)), [x]) or []
    np.testing.assert_array_equal(written[tuple(points.T)], wanted)


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from([0.0, 1.0, 1.5, -2.0, np.inf, -np.inf, np.nan]), min_size=1, max_size=40),
    st.integers(1, 5),
    st.booleans(),
)
def test_of_equal_elements_the_first_are_largest(numbers: list[float], k: int, is_largest: bool) -> None:  # noqa: FBT001
    x = np.array(numbers, np.float32)
    check(Case("TopK", (x, np.array([min(k, x.size)])), {"largest": int(is_largest)}, n_outputs=2))


@pytest.mark.parametrize(
    ("case", "told"),
    [
        (Case("Gather", (ROWS, np.array([5])), {"axis": 1}), "an extent of 4 has -4 to 3"),
        (Case("ScatterND", (ROWS, np.array([[3]]), ROWS[:1])), "out of bounds"),
        (Case("RandomNormal", (), {"shape": [2], "seed": 1.0, "scale": "x"}), "it must be a finite number"),
    ],
    ids=lambda case: str(case)[:20],
)
def test_a_wrong_index_or_attribute_is_one_error_that_names_the_node(case: Case, told: str) -> None:
    with pytest.raises((bl.InputError, bl.ModelError), match=rf"'own'.*{told}"):
        computed(case, [ROWS])


def _spec(case: Case) -> HostSpec:
    operator = functions.operator_of(case.node(case.expected()))
    assert operator is not None
    return operator.spec


@pytest.mark.parametrize("damage", ["{}", "none", '{"inputs": 3}', "[1]", "null"])
def test_a_step_that_holds_no_node_is_refused(damage: str) -> None:
    with pytest.raises(bl.PlanError, match="step of Greater is none"):
        functions.compute_of(replace(_spec(ELEMENTWISE[2]), node=damage))


def test_a_step_of_other_extents_or_of_no_operator_is_refused() -> None:
    spec = _spec(ELEMENTWISE[2])
    said = json.loads(spec.node)
    said["inputs"][0][1] = [1]
    for changed in (replace(spec, node=json.dumps(said)), replace(spec, label="Conv"), replace(spec, label="Nothing")):
        with pytest.raises(bl.PlanError):
            functions.compute_of(changed)


@pytest.mark.parametrize("layout", ["nhwc", "blocked", "plain", "auto"])
def test_between_convolutions_nothing_is_reordered_for_it(layout: str) -> None:
    b = bl.Builder()
    y = b.input("x", (1, 16, 6, 6)).conv(nets.he(RNG, 16, 16, 3, 3), pads=1, name="before")
    y = b.op("Where", b.op("IsNaN", y), y, b.op("Sin", y))
    b.output("y", y.conv(nets.he(RNG, 16, 16, 3, 3), pads=1, name="behind"))
    session = bl.load(b, layout=layout)
    plan = session.plan
    assert not plan.plain_steps
    assert {step.kernel for step in plan.steps if step.is_reorder} <= {"before", "the caller"}
    feed = nets.feed_of(session)
    expected: Any = ReferenceEvaluator(b.to_onnx()).run(None, feed)
    np.testing.assert_allclose(session.run(None, feed)[0], expected[0], rtol=1e-4, atol=1e-4)
