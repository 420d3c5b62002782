"""Casts to floats against ONNX's reference, in every layout; what gives integers is refused."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.errors import UnsupportedError
from blocklayout.ir import NodeInfo, Value, Wish
from tests.ops.cases import OpCase, bind, problem_of
from tests.ops.harness import check_case, in_narrow_floats

IMAGE = (2, 17, 3, 5)
TO_FLOAT = {"to": TensorProto.FLOAT}
CASES = [
    OpCase("Cast", (IMAGE,), TO_FLOAT, low=0, high=256, fed="uint8"),
    OpCase("Cast", (IMAGE,), TO_FLOAT, low=-128, high=128, fed="int8"),
    OpCase("Cast", (IMAGE,), TO_FLOAT, low=-(2**31), high=2**31 - 1, fed="int32"),
    OpCase("Cast", (IMAGE,), TO_FLOAT, fed="bool"),
    OpCase("Cast", (IMAGE,), TO_FLOAT),
    OpCase("CastLike", ((4, 10), np.zeros(1, np.float32)), low=-128, high=128, fed="int8"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.fed}-{case}")
def test_agrees_with_the_reference_in_every_layout(case: OpCase) -> None:
    ran = check_case(case)
    blocked = {"blocked8", "blocked16"} if case.fed != "bool" else set()
    assert case.lowered().operator.role == "view" or {"plain", "channels_last"} | blocked == set(ran)
    assert not any("ref" in impl for impl in ran.values())


@in_narrow_floats
@pytest.mark.parametrize("case", CASES[:2], ids=lambda case: case.fed)
def test_agrees_with_the_reference_in_narrow_floats(case: OpCase, dtype: str) -> None:
    check_case(case, dtype)


def cast(src: str, dst: str, shape: tuple[int, ...] = (2, 3)) -> NodeInfo:
    return NodeInfo("tested", "Cast", {}, (Value("x", (2, 3), src),), (Value("y", shape, dst),), 17)


@pytest.mark.parametrize(("src", "dst"), [("f32", "s32"), ("f32", "u8"), ("u8", "s32"), ("f32", "bool")])
def test_casts_to_integers_are_unsupported(src: str, dst: str) -> None:
    with pytest.raises(UnsupportedError, match=f"'tested'.*y is {dst}"):
        bind(cast(src, dst))


@pytest.mark.parametrize("src", ["s64", "u64", "s16", "f64"])
def test_types_that_no_reorder_takes_are_unsupported(src: str) -> None:
    with pytest.raises(UnsupportedError, match=f"'tested'.*x is {src}"):
        bind(cast(src, "f32"))


def test_between_floats_no_byte_moves() -> None:
    assert bind(cast("f16", "bf16")).operator.role == "view"


def test_it_takes_no_post_ops() -> None:
    lowered = CASES[0].lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    assert lowered.operator.lower(problem_of(lowered, IMAGE), Wish("plain", "plain"), attr) is None


def test_a_network_reads_bytes_and_masks() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["image"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["mask"], ["weight"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["image", "weight"], ["y"]),
    ]
    types = {"x": TensorProto.UINT8, "mask": TensorProto.BOOL, "y": TensorProto.FLOAT}
    x, mask, y = (helper.make_tensor_value_info(name, elem_type, IMAGE) for name, elem_type in types.items())
    model = helper.make_model(helper.make_graph(nodes, "net", [x, mask], [y]), ir_version=8)
    rng = np.random.default_rng(0)
    image, chosen = rng.integers(0, 256, IMAGE, np.uint8), rng.random(IMAGE) < 0.5
    session = bl.load(model, threads=1)
    np.testing.assert_array_equal(session.run(None, {"x": image, "mask": chosen})[0], image * chosen)
    assert not any(step.is_plain for step in session.plan.steps)
