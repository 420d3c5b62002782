from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from blocklayout.errors import BlockLayoutError, ModelError, UnsupportedError
from blocklayout.model import Builder, Graph, read, simplify
from tests.model.protos import conv_net, make_model, relu_model

OpTypes = Callable[[Graph], list[str]]
NEWEST = onnx.defs.onnx_opset_version()


@pytest.mark.parametrize("opset", [*range(7, 24), NEWEST])
def test_every_operator_set_gives_the_same_kernels(
    opset: int, op_types: OpTypes, request: pytest.FixtureRequest
) -> None:
    # the reference trains BatchNormalization before 14; other runtimes do not know the newest yet
    run = request.getfixturevalue("run" if opset >= 14 else "run_in_onnxruntime")
    graph = read(conv_net(opset), {"x": (2, 3, 8, 8)})
    simple = simplify(graph)
    assert op_types(simple) == ["Conv", "Relu", "MaxPool", "Reshape", "Gemm", "Softmax"]
    assert simple.shape("y") == (2, 5)
    np.testing.assert_allclose(run(simple)[0], run(graph)[0], atol=1e-6)


EXPECTED = {
    "bvlc_alexnet": {"Conv": 5, "Gemm": 3, "LRN": 2},
    "densenet121": {"Conv": 121, "BatchNormalization": 62, "Concat": 58, "Mul": 0, "Add": 0},
    "inception_v1": {"Conv": 57, "Concat": 9, "Reshape": 1},
    "inception_v2": {"Conv": 69, "BatchNormalization": 0, "Mul": 0, "Add": 0, "Unsqueeze": 0},
    "resnet50": {"Conv": 53, "BatchNormalization": 0, "Sum": 16, "ConstantOfShape": 0},
    "shufflenet": {"Conv": 49, "BatchNormalization": 0, "Transpose": 16},
    "squeezenet": {"Conv": 26, "Dropout": 0, "Concat": 8},
    "vgg19": {"Conv": 16, "Gemm": 3, "Dropout": 0},
    "zfnet512": {"Conv": 5, "Gemm": 3, "LRN": 2},
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full_size if name == "densenet121" else ()) for name in EXPECTED]
)
def test_published_networks_become_concrete_and_small(name: str, light_models: Path) -> None:
    graph = simplify(read(light_models / f"light_{name}.onnx"))
    counts = Counter(node.op_type for node in graph.nodes)
    assert {op_type: counts[op_type] for op_type in EXPECTED[name]} == EXPECTED[name]
    assert len(graph.inputs) == 1
    assert graph.shape(graph.inputs[0]) == (1, 3, 224, 224)
    assert set(graph.shape(graph.outputs[0])) == {1, 1000}


def test_initializers_among_the_inputs_are_no_inputs() -> None:
    weights = np.ones((1, 2), np.float32)
    model = make_model(
        [helper.make_node("Add", ["x", "w"], ["y"])], {"x": (1, 2), "w": (1, 2)}, constants={"w": weights}
    )
    graph = read(model)
    assert graph.inputs == ("x",)
    assert graph.constant("w") is not None


def test_a_given_proto_is_not_changed() -> None:
    model = conv_net(13)
    before = model.SerializeToString(deterministic=True)
    read(model, {"x": (1, 3, 8, 8)})
    assert model.SerializeToString(deterministic=True) == before


def test_nameless_nodes_are_named_by_type_and_index() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="relu_1"), helper.make_node("Relu", ["a"], ["y"])]
    assert [node.name for node in read(make_model(nodes, {"x": (1,)})).nodes] == ["relu_1", "relu_1_1"]


def test_repeated_names_become_unique() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="r"), helper.make_node("Relu", ["a"], ["y"], name="r")]
    assert [node.name for node in read(make_model(nodes, {"x": (1,)})).nodes] == ["r", "r_1"]


def test_model_functions_are_inlined(op_types: OpTypes) -> None:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    body = [helper.make_node("Relu", ["a"], ["t"]), helper.make_node("Sigmoid", ["t"], ["b"])]
    function = helper.make_function("own", "Twice", ["a"], ["b"], body, opsets[:1])
    model = relu_model()
    model.graph.node[0].CopyFrom(helper.make_node("Twice", ["x"], ["y"], domain="own"))
    model.functions.append(function)
    model.opset_import.append(opsets[1])
    assert op_types(read(model)) == ["Relu", "Sigmoid"]


def test_a_shape_that_only_a_function_body_tells_is_inferred() -> None:
    b = Builder()
    y = b.op("MeanVarianceNormalization", b.input("x", (1, 2, 3, 3)))
    assert y.shape == (1, 2, 3, 3)


# --- damaged and foreign files


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no such file: .*absent\.onnx"):
        read(tmp_path / "absent.onnx")


@pytest.mark.parametrize("contents", [b"", b"\x89PNG\r\n\x1a\n" * 30, b"hello world", bytes(100), b"{}"])
def test_another_format_is_refused(contents: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(contents)
    with pytest.raises(ModelError, match=r"not an ONNX model: .*model\.onnx"):
        read(path)


def test_a_truncated_file_is_refused_wherever_it_ends() -> None:
    contents = conv_net(13).SerializeToString()
    for end in range(1, len(contents), 37):
        with pytest.raises(ModelError):
            read(contents[:end], {"x": (1, 3, 8, 8)})


def test_flipped_bytes_end_in_our_errors_only() -> None:
    contents = conv_net(13).SerializeToString()
    rng = np.random.default_rng(3)
    for _ in range(300):
        damaged = bytearray(contents)
        for position in rng.integers(0, len(damaged), 3):
            damaged[position] = rng.integers(0, 256)
        try:
            simplify(read(bytes(damaged), {"x": (1, 3, 8, 8)}))
        except BlockLayoutError as error:
            assert str(error)  # noqa: PT017  # most damage is found; some only changes a weight


def test_a_checker_that_gives_no_reason_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise onnx.checker.ValidationError

    monkeypatch.setattr(onnx.checker, "check_model", refuse)
    with pytest.raises(ModelError, match=r"against ONNX's specification: it does not say why"):
        read(conv_net(13).SerializeToString(), {"x": (1, 3, 8, 8)})


def test_a_directory_and_a_wrong_type_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a directory"):
        read(tmp_path)
    with pytest.raises(ModelError, match="cannot read a model from int"):
        read(5)


def test_a_foreign_operator_is_named_with_its_domain() -> None:
    model = relu_model()
    model.graph.node[0].CopyFrom(helper.make_node("Frobnicate", ["x"], ["y"], name="f", domain="com.microsoft"))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(UnsupportedError, match=r"'f'.*com\.microsoft"):
        read(model)


@pytest.mark.parametrize("version", [0, NEWEST + 1])
def test_other_operator_sets_are_refused(version: int) -> None:
    model = relu_model()
    model.opset_import[0].version = version
    with pytest.raises(UnsupportedError, match=f"operator set {version}; 7 to {NEWEST}"):
        read(model)


def test_an_invented_operator_is_against_the_specification() -> None:
    model = make_model([helper.make_node("Frobnicate", ["x"], ["y"])], {"x": (1,)})
    with pytest.raises(ModelError, match="Frobnicate"):
        read(model)


def test_a_loop_is_in_no_graph() -> None:
    given = [helper.make_tensor_value_info("n", 7, ()), helper.make_tensor_value_info("c", 9, ())]
    given.append(helper.make_tensor_value_info("v", 1, (1, 2)))
    results = [helper.make_tensor_value_info("c2", 9, ()), helper.make_tensor_value_info("v2", 1, (1, 2))]
    nodes = [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Relu", ["v"], ["v2"])]
    body = helper.make_graph(nodes, "body", given, results)
    loop = helper.make_node("Loop", ["m", "", "x"], ["y"], name="i", body=body)
    with pytest.raises(UnsupportedError, match=r"node 'i': Loop runs a subgraph as often as its data say"):
        read(make_model([loop], {"x": (1, 2)}, constants={"m": np.array(2)}))


def test_extents_that_depend_on_data_are_not_supported() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["i"], name="nz"), helper.make_node("Cast", ["i"], ["y"], to=1)]
    with pytest.raises(UnsupportedError, match=r"'nz'.*depend on data"):
        read(make_model(nodes, {"x": (3,)}))


def test_contradicting_extents_name_the_node() -> None:
    model = make_model([helper.make_node("Add", ["x", "z"], ["y"], name="sum")], {"x": (2, 3), "z": (2, 4)})
    with pytest.raises(ModelError, match=r"node 'sum': Add of 'x' \(2, 3\), 'z' \(2, 4\)"):
        read(model)


def test_contradicting_types_name_the_node() -> None:
    model = make_model(
        [helper.make_node("Add", ["x", "w"], ["y"], name="sum")], {"x": (2,)}, constants={"w": np.ones(2)}
    )
    with pytest.raises(ModelError, match=r"node 'sum'.*tensor\(double\).*cast"):
        read(model)


def test_a_declared_output_type_must_hold() -> None:
    model = relu_model()
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    with pytest.raises(ModelError, match="'y' is declared f64"):
        read(model)


def test_strings_are_not_supported() -> None:
    model = relu_model()
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(UnsupportedError, match="'x' has ONNX's element type STRING"):
        read(model)


# --- external data


def _external(tmp_path: Path) -> tuple[Path, ModelProto]:
    path = tmp_path / "model.onnx"
    model = conv_net(13)
    onnx.save_model(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path, onnx.load(path, load_external_data=False)


def test_external_data_are_read(tmp_path: Path) -> None:
    path, _ = _external(tmp_path)
    given = {"x": (1, 3, 8, 8)}
    inline, beside = read(conv_net(13), given), read(path, given)
    assert str(inline) == str(beside)
    for name, value in inline.values.items():
        if value.data is not None:
            np.testing.assert_array_equal(value.data, beside.constant(name))


def test_external_data_need_a_path(tmp_path: Path) -> None:
    path, model = _external(tmp_path)
    for source in (path.read_bytes(), model):
        with pytest.raises(ModelError, match="give the model's path"):
            read(source, {"x": (1, 3, 8, 8)})


def test_missing_and_short_external_data_are_refused(tmp_path: Path) -> None:
    path, _ = _external(tmp_path)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(ModelError, match="which ends before"):
        read(path, {"x": (1, 3, 8, 8)})
    weights.unlink()
    with pytest.raises(ModelError, match="no such file"):
        read(path, {"x": (1, 3, 8, 8)})


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../../b", ""])
def test_external_data_stay_beside_the_model(location: str, tmp_path: Path) -> None:
    path, model = _external(tmp_path)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="must be a file beside the model"):
        read(path, {"x": (1, 3, 8, 8)})
