"""Constants of int4 and uint4: unpacked behind a DequantizeLinear, and refused elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.model.onnx_read import open_onnx
from tests.quantised import check_within, feed_of, reference, results_of

TYPES: dict[int, tuple[Any, int, int]] = {
    TensorProto.INT4: (ml_dtypes.int4, -8, 8),
    TensorProto.UINT4: (ml_dtypes.uint4, 0, 16),
}
UNPACKED = "constants of four bits or fewer, {} in number, are unpacked: they take twice the memory as bytes"
K, N = 33, 17

SCALES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "one": ((), {}),
    "of channels": ((N,), {"axis": 1}),
    "of rows": ((K,), {"axis": 0}),
    "in blocks": ((9, N), {"axis": 0, "block_size": 4}),
}


def model_of(
    nodes: Sequence[onnx.NodeProto], given: Sequence[onnx.TensorProto], elem_type: int = TensorProto.UINT8
) -> onnx.ModelProto:
    """A model of one input ``x`` and one output ``y``."""
    infos = [helper.make_tensor_value_info("x", elem_type, (16, K)), helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph(nodes, "net", infos[:1], infos[1:], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def product(
    elem_type: int, name: str = "one", *, has_zeros: bool = False, is_raw: bool = True, size: int = N
) -> onnx.ModelProto:
    """A product of bytes by weights of four bits: an odd number of them, if ``size`` is odd."""
    (dtype, low, high), (extents, attrs) = TYPES[elem_type], SCALES[name]
    rng = np.random.default_rng(0)
    integers = rng.integers(low, high, (K, size))
    zeros = rng.integers(low, high, extents)
    scales = {"sx": np.float32(0.03), "zx": np.uint8(7), "s": rng.uniform(0.01, 0.02, extents).astype(np.float32)}
    given = [numpy_helper.from_array(np.asarray(array), name) for name, array in scales.items()]
    for key, array in {"w": integers, "z": zeros}.items():
        raw = numpy_helper.from_array(array.astype(dtype), key)
        given.append(raw if is_raw else helper.make_tensor(key, elem_type, array.shape, array.reshape(-1).tolist()))
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["numbers"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"] if has_zeros else ["w", "s"], ["weights"], **attrs),
        helper.make_node("MatMul", ["numbers", "weights"], ["y"]),
    ]
    return model_of(nodes, given if has_zeros else given[:-1])


@pytest.mark.parametrize("is_raw", [False, True])
@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("elem_type", TYPES)
def test_weights_are_unpacked(elem_type: int, name: str, *, has_zeros: bool, is_raw: bool) -> None:
    model = product(elem_type, name, has_zeros=has_zeros, is_raw=is_raw)
    with pytest.warns(UserWarning, match=UNPACKED.format(1 + has_zeros)):
        session = bl.load(model, tune="model")
    check_within(results_of(session, model)[0], reference(model, feed_of(model))[0])
    found = [desc.dtype for step in session.plan.steps for arg, desc in step.spec.descs if arg == "weights"]
    has_bytes = name in ("one", "of channels")
    assert found == ["f32"] or (has_bytes and found == ["s8"])
    assert found == ["s8"] or not (has_bytes and dnnl.sums_bytes_exactly())


@pytest.mark.parametrize("size", [N, 9001])
def test_weights_of_files_are_unpacked_with_one_warning_a_load(tmp_path: Path, size: int) -> None:
    model = product(TensorProto.INT4, size=size)
    [expected] = reference(model, feed_of(model))
    onnx.save(model, tmp_path / "inside.onnx")
    onnx.save(model, tmp_path / "beside.onnx", save_as_external_data=True, location="data", size_threshold=0)
    for name in ("inside", "inside", "beside"):
        with pytest.warns(UserWarning, match=UNPACKED.format(1)) as told:
            got = results_of(bl.load(tmp_path / f"{name}.onnx"), model)
        assert len(told) == 1
        check_within(got[0], expected)


@pytest.mark.parametrize(("contents", "dims"), [(b"\1" * 2, (3, 3)), (b"\1" * 6, (3, 3)), (b"", (1 << 62, 8))])
def test_data_of_another_size_are_refused(contents: bytes, dims: tuple[int, ...]) -> None:
    model = product(TensorProto.INT4)
    weights = model.graph.initializer[-1]
    weights.dims[:], weights.raw_data = dims, contents
    with pytest.raises(bl.ModelError, match=r"^the constant 'w' has not the data its extents ask for: (?!the)"):
        open_onnx(model)


QUANTIZED = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])]
REFUSED: dict[str, list[onnx.NodeProto]] = {
    "an activation": [*QUANTIZED, helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])],
    "by its type": [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"], output_dtype=TensorProto.INT4),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"]),
    ],
    "no DequantizeLinear": [
        helper.make_node("Cast", ["w"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "c"], ["y"]),
    ],
}


@pytest.mark.parametrize("name", REFUSED)
def test_four_bits_elsewhere_are_refused(name: str) -> None:
    arrays = {"s": np.float32(0.1), "z": np.array(1, ml_dtypes.int4), "w": np.ones((K, N), ml_dtypes.int4)}
    read = {each for node in REFUSED[name] for each in node.input}
    given = [numpy_helper.from_array(np.asarray(array), key) for key, array in arrays.items() if key in read]
    with pytest.raises(bl.UnsupportedError, match="element type INT4; supported are"):
        bl.load(model_of(REFUSED[name], given, TensorProto.FLOAT))


def test_weights_of_few_bits_as_onnxruntime_keeps_them_are_told_of() -> None:
    rng = np.random.default_rng(0)
    packed, scales = rng.integers(0, 256, (N, 3, 8), np.uint8), rng.random((N, 3), np.float32)
    inputs = ["x", "packed", "scales"]
    node = helper.make_node("MatMulNBits", inputs, ["y"], domain="com.microsoft", K=K, N=N, block_size=16)
    constants = [numpy_helper.from_array(packed, "packed"), numpy_helper.from_array(scales, "scales")]
    model = model_of([node], constants, TensorProto.FLOAT)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    weights = np.stack([packed % 16, packed // 16], -1).reshape(N, 3, 16) - np.float32(8)
    weights = (weights * scales[:, :, None]).reshape(N, -1)[:, :K]
    x = rng.random((16, K)).astype(np.float32)
    with pytest.warns(UserWarning, match=UNPACKED.format(1)):
        session = bl.load(model)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weights.T, rtol=1e-4)
