"""Products of matrices of bytes, against ONNX's reference: exact, whatever computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.dnnl import own

Array = np.ndarray
BYTES = ("uint8", "int8")
IS_EXACT = own.multiplies_bytes()
MIDDLES = {"uint8": 128, "int8": 0}


def model(fed: dict[str, Array], constants: dict[str, Array]) -> onnx.ModelProto:
    """A MatMulInteger of the operands ``a``, ``b``, ``a_zero`` and ``b_zero``, as far as they are given."""
    inputs = [name if name in fed | constants else "" for name in ("a", "b", "a_zero", "b_zero")]
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in fed.items()
    ]
    result = helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)
    arrays = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([helper.make_node("MatMulInteger", inputs, ["y"])], "product", values, [result], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(fed: dict[str, Array], constants: dict[str, Array]) -> bl.Session:
    made = model(fed, constants)
    session = bl.load(made, tune="model", threads=1)
    expected: Any = ReferenceEvaluator(made).run(None, dict(fed))
    [result] = session.run(None, fed)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, expected[0])
    return session


def extreme(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Bytes of which many are the largest and the smallest there are, so that sums of products are, too."""
    limits, generator = np.iinfo(dtype), np.random.default_rng(seed)
    values = generator.integers(limits.min, limits.max + 1, shape)
    return np.where(generator.random(shape) < 0.5, generator.choice([limits.min, limits.max]), values).astype(dtype)


@settings(max_examples=40, deadline=None)
@given(
    batch=st.sampled_from([(), (2,), (2, 3)]),
    extents=st.tuples(st.integers(1, 40), st.integers(1, 300), st.integers(1, 70)),
    dtypes=st.tuples(st.sampled_from(BYTES), st.sampled_from(BYTES)),
    zeros=st.tuples(*[st.sampled_from(["", "known", "computed"])] * 2),
    is_known=st.booleans(),
    seed=st.integers(0, 99),
)
def test_sums_are_exact(
    batch: tuple[int, ...],
    extents: tuple[int, int, int],
    dtypes: tuple[str, str],
    zeros: tuple[str, str],
    *,
    is_known: bool,
    seed: int,
) -> None:
    rows, inner, columns = extents
    a, b = extreme((*batch, rows, inner), dtypes[0], seed), extreme((inner, columns), dtypes[1], seed + 1)
    fed, constants = {"a": a}, dict[str, Array]()
    (constants if is_known else fed)["b"] = b if is_known else np.broadcast_to(b, (*batch, *b.shape)).copy()
    for name, how, dtype in zip(("a_zero", "b_zero"), zeros, dtypes, strict=True):
        if how:
            (constants if how == "known" else fed)[name] = extreme((), dtype, seed + 2)
    check(fed, constants)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("zero", ["known", "computed"])
def test_one_primitive_multiplies_by_known_weights(dtype: str, zero: str) -> None:
    fed = {"a": extreme((3, 20, 64), "uint8", 0)}
    b_zero = 7 if dnnl.sums_bytes_exactly() else MIDDLES[dtype]
    constants = {"b": extreme((64, 48), dtype, 1), "b_zero": np.array(b_zero, dtype)}
    (constants if zero == "known" else fed)["a_zero"] = np.array(131, np.uint8)
    kinds = [step.spec.kind for step in check(fed, constants).plan.steps]
    if IS_EXACT:
        assert kinds == ["matmul"] if zero == "known" else ["reorder", "matmul"]


@settings(max_examples=40, deadline=None)
@given(
    batch=st.sampled_from([(), (2,), (2, 3)]),
    extents=st.tuples(st.integers(1, 40), st.integers(1, 300), st.integers(1, 70)),
    dtypes=st.tuples(st.sampled_from(BYTES), st.sampled_from(BYTES)),
    scales=st.tuples(st.sampled_from(["none", "fed"]), st.sampled_from(["one", "each", "fed", "fed each"])),
    tail=st.sampled_from([(), ("Add",), ("Add", "Relu"), ("Relu",), ("Add", "Tanh")]),
)
def test_sums_are_scaled_and_shifted_by_the_same_primitive(
    batch: tuple[int, ...],
    extents: tuple[int, int, int],
    dtypes: tuple[str, str],
    scales: tuple[str, str],
    tail: tuple[str, ...],
) -> None:
    rows, inner, columns = extents
    rng = np.random.default_rng(rows)
    b = bl.Builder(opset=17)
    fed: dict[str, Array] = {"a": extreme((*batch, rows, inner), dtypes[0], 0), "zero": extreme((), dtypes[0], 1)}
    zero = np.full(columns, MIDDLES[dtypes[1]], dtypes[1])
    a, a_zero = (b.input(name, array.shape, "u8" if array.dtype == np.uint8 else "s8") for name, array in fed.items())
    product = b.op("MatMulInteger", a, extreme((inner, columns), dtypes[1], 2), a_zero, zero).astype("f32")
    fed["scale"] = rng.uniform(0.01, 0.02, () if "each" not in scales[1] else columns).astype(np.float32)
    scale: Any = b.input("scale", fed["scale"].shape) if "fed" in scales[1] else fed.pop("scale")
    if scales[0] == "fed":
        fed["other"] = np.array(0.03, np.float32)
        scale = b.input("other", ()) * scale
    y = product * scale
    for op_type in tail:
        y = b.op(op_type, y, *[rng.standard_normal(columns).astype(np.float32)] * (op_type == "Add"))
    b.output("y", y)
    session = bl.load(b, tune="model", threads=2)
    [result] = session.run(None, fed)
    expected: Any = ReferenceEvaluator(b.to_onnx()).run(None, fed)
    np.testing.assert_allclose(result, expected[0], rtol=1e-5, atol=1e-5 * np.abs(expected[0]).max())
    if IS_EXACT and not dnnl.sums_bytes_exactly():
        kinds = [step.spec.kind for step in session.plan.steps]
        assert kinds == ["reorder", "matmul", *["eltwise"] * ("Tanh" in tail)]


@pytest.mark.parametrize(
    ("fed", "constants"),
    [
        (
            {"a": extreme((4, 9), "uint8", 0)},
            {"b": extreme((9, 5), "int8", 1), "a_zero": np.arange(4, dtype=np.uint8)[:, None]},
        ),
        ({"a": extreme((4, 9), "uint8", 0)}, {"b": extreme((9, 5), "int8", 1), "b_zero": np.arange(5, dtype=np.int8)}),
        (
            {"a": extreme((4, 9), "uint8", 0)},
            {"b": extreme((9, 5), "uint8", 1), "b_zero": np.arange(5, dtype=np.uint8)},
        ),
        ({"a": extreme((4, 9), "uint8", 0), "b": extreme((9, 5), "uint8", 1)}, {}),
        ({"a": extreme((9,), "uint8", 0)}, {"b": extreme((9, 5), "int8", 1)}),
    ],
    ids=["zeros of rows", "zeros of columns", "zeros of unsigned columns", "computed u8", "vector"],
)
def test_numpy_computes_the_others(fed: dict[str, Array], constants: dict[str, Array]) -> None:
    steps = check(fed, constants).plan.steps
    assert "matmul" not in [step.spec.kind for step in steps]


@pytest.mark.parametrize("dtype", BYTES)
def test_tensors_are_multiplied_by_name(dtype: str) -> None:
    a, b = extreme((3, 9), "uint8", 0), extreme((9, 5), dtype, 1)
    zeros = np.array(3, np.uint8), np.array(5, dtype)
    result = bl.op("MatMulInteger", bl.from_array(a), bl.from_array(b), *zeros)
    np.testing.assert_array_equal(result.numpy(), (a.astype(int) - 3) @ (b.astype(int) - 5))


def test_packed_weights_outlive_their_session(tmp_path: Any) -> None:
    fed = {"a": extreme((20, 64), "int8", 0)}
    session = check(fed, {"b": extreme((64, 48), "int8", 1), "a_zero": np.array(-5, np.int8)})
    session.save(tmp_path / "saved")
    [result] = bl.load(tmp_path / "saved").run(None, fed)
    np.testing.assert_array_equal(result, session.run(None, fed)[0])
