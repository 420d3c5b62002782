"""A model's nodes as records, from a file and from a builder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

import blocklayout as bl
from blocklayout import model
from tests import nets

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_and_its_builder_tell_the_same(tmp_path: Path) -> None:
    builder = nets.residual()
    model.write(builder, tmp_path / "net.onnx")
    told = model.described_nodes(builder.to_graph())
    assert model.described_nodes(model.read(tmp_path / "net.onnx")) == told
    [stem] = [each for each in told if each["name"] == "stem"]
    assert stem["op_type"] == "Conv"
    assert dict(stem["attributes"])["pads"] == "1, 1, 1, 1"
    assert [(each["dims"], each["is_constant"]) for each in stem["inputs"]] == [
        ((2, 3, 14, 14), False),
        ((24, 3, 3, 3), True),
    ]


def test_sessions_tell_the_nodes_of_the_model_whenever_their_plans_were_made(tmp_path: Path) -> None:
    model.write(nets.chain(), tmp_path / "net.onnx")
    told = model.described_nodes(nets.chain().to_graph())
    for _ in range(2):  # the second plan is remembered, and nothing of the model was read for it
        session = bl.load(tmp_path / "net.onnx")
        assert session.report().record["nodes"] == told
    planned = {node for choice in session.plan.choices for node in choice.nodes}
    assert planned <= {each["name"] for each in told}


def test_nodes_have_the_extents_of_what_was_fed() -> None:
    session = bl.load(nets.free_model())
    image = np.zeros((1, 3, 9, 7), np.float32)
    session.run(None, {"x": image})
    [first, *_] = session.report({"x": image}).record["nodes"]
    assert first["inputs"][0]["dims"] == (1, 3, 9, 7)


def test_a_file_that_was_altered_tells_nothing(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    model.write(nets.chain(), path)
    session = bl.load(path)
    path.write_bytes(path.read_bytes() + b"\0")
    assert session.report().record["nodes"] is None


def test_nodes_are_told_where_contents_decide_extents() -> None:
    nodes = [helper.make_node("Reshape", ["x", "target"], ["t"], name="shaped"), helper.make_node("Relu", ["t"], ["y"])]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 6)),
        helper.make_tensor_value_info("target", TensorProto.INT64, (2,)),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    opset = [helper.make_opsetid("", 18)]
    proto = helper.make_model(helper.make_graph(nodes, "net", inputs, outputs), opset_imports=opset, ir_version=9)
    feed = {"x": np.ones((2, 6), np.float32), "target": np.array([3, -1])}
    session = bl.load(proto)
    [shaped, relu] = session.report(feed).record["nodes"]
    assert (shaped["name"], shaped["outputs"][0]["dims"], relu["op_type"]) == ("shaped", (3, 4), "Relu")
