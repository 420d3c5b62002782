from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from blocklayout.errors import ModelError
from blocklayout.model.onnx_read import open_onnx
from blocklayout.model.tensors import MIN_NBYTES, split_raw_data


def proto_of_weights(sizes: list[int], *, is_raw: bool, opset: int = 17) -> ModelProto:
    """A sum of vectors ``w0``, ``w1``, ... of these sizes, each reduced to a scalar; they need not be in raw data."""
    arrays = [np.arange(size, dtype=np.float32) for size in sizes]
    weights = [
        numpy_helper.from_array(array, f"w{index}")
        if is_raw
        else helper.make_tensor(f"w{index}", TensorProto.FLOAT, array.shape, array)
        for index, array in enumerate(arrays)
    ]
    nodes = [helper.make_node("ReduceSum", [f"w{index}"], [f"s{index}"], keepdims=0) for index in range(len(sizes))]
    nodes.append(helper.make_node("Sum", ["x", *(f"s{index}" for index in range(len(sizes)))], ["y"]))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in "xy")
    graph = helper.make_graph(nodes, "sums", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def whole(contents: bytes) -> ModelProto | None:
    """What protobuf makes of the bytes; ``None`` where it refuses them."""
    try:
        proto: ModelProto = ModelProto.FromString(contents)
    except DecodeError:
        return None
    return proto


def rejoined(contents: bytes) -> ModelProto | None:
    """The same, the raw data split off and put back."""
    rest, found = split_raw_data(memoryview(contents))
    proto = whole(bytes(rest))
    if proto is None:
        return None
    for index, data in found.items():
        assert len(data) >= MIN_NBYTES
        proto.graph.initializer[index].raw_data = bytes(data)
    return proto


@pytest.mark.parametrize("is_raw", [False, True])
@given(sizes=st.lists(st.integers(0, 2 * MIN_NBYTES), max_size=5))
def test_what_is_split_off_is_what_is_missing(sizes: list[int], *, is_raw: bool) -> None:
    contents = proto_of_weights(sizes, is_raw=is_raw).SerializeToString()
    assert rejoined(contents) == whole(contents)
    n_large = sum(4 * size >= MIN_NBYTES for size in sizes)
    assert len(split_raw_data(memoryview(contents))[1]) == (n_large if is_raw else 0)


@given(st.data())
def test_damaged_bytes_are_what_protobuf_makes_of_them(data: st.DataObject) -> None:
    contents = bytearray(proto_of_weights([3, MIN_NBYTES], is_raw=True).SerializeToString())
    at = data.draw(st.integers(0, len(contents) - 1))
    contents[at] = data.draw(st.integers(0, 255))
    cut = bytes(contents[: data.draw(st.integers(at, len(contents)))])
    assert rejoined(cut) == whole(cut)


def test_two_graphs_are_left_to_protobuf() -> None:
    contents = proto_of_weights([MIN_NBYTES], is_raw=True).SerializeToString()
    assert rejoined(contents + contents) == whole(contents + contents)


def test_a_model_that_is_converted_keeps_its_weights() -> None:
    proto = proto_of_weights([MIN_NBYTES], is_raw=True, opset=6)
    (array,) = (array for name, array in open_onnx(proto.SerializeToString()).constants.items() if name == "w0")
    np.testing.assert_array_equal(array, numpy_helper.to_array(proto.graph.initializer[0]))


def test_raw_data_of_another_size_are_refused() -> None:
    proto = proto_of_weights([MIN_NBYTES], is_raw=True)
    proto.graph.initializer[0].dims[0] += 1
    with pytest.raises(ModelError, match="'w0' has not the data its extents ask for"):
        open_onnx(proto.SerializeToString())
