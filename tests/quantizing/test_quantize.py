"""Models that are quantised: their structure, their answers, and what is refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout.zoo import digits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnx import ModelProto, NodeProto


def weights(*shape: int) -> np.ndarray:
    return (
        np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
        / np.float32(np.prod(shape[1:])) ** 0.5
    )


def residual_net() -> bl.Builder:
    """Two branches that are added, pooled, concatenated, flattened and multiplied."""
    b = bl.Builder()
    x = b.input("x", (2, 3, 8, 8))
    stem = x.conv(weights(8, 3, 3, 3), weights(8), pads=1).relu()
    branch = stem.conv(weights(8, 8, 3, 3), pads=1)
    both = (branch + stem).relu().max_pool(2, strides=2)
    joined = b.concat([both, both.conv(weights(4, 8, 1, 1), weights(4)).relu()])
    b.output("y", joined.flatten().gemm(weights(12 * 16, 5), weights(5)))
    return b


def feeds(shape: tuple[int, ...] = (2, 3, 8, 8), n: int = 6) -> list[np.ndarray]:
    return [np.random.default_rng(seed).standard_normal(shape).astype(np.float32) for seed in range(n)]


def everything(recipe: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A recipe by which all that can be is quantised, whatever the error and the time."""
    return {"max_error": "any", **(recipe or {})}


def quantized(net: Any, recipe: Mapping[str, Any] | None = None, shape: tuple[int, ...] = (2, 3, 8, 8)) -> ModelProto:
    model = bl.quantize(net, feeds(shape), everything(recipe))
    onnx.checker.check_model(model, full_check=True)
    return model


def of_type(model: ModelProto, op_type: str) -> list[NodeProto]:
    return [node for node in model.graph.node if node.op_type == op_type]


def arrays(model: ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def producer(model: ModelProto, name: str) -> NodeProto:
    found: list[NodeProto] = [node for node in model.graph.node if name in node.output]
    return found[0]


def net_of(nodes: list[NodeProto], constants: dict[str, np.ndarray], opset: int = 17, **shapes: Any) -> ModelProto:
    """A model of ``x`` and ``y`` in f32."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes.get(name)) for name in ("x", "y")]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "net", infos[:1], infos[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def relative_error(model: Any, net: Any, feed: np.ndarray) -> float:
    found, expected = np.asarray(bl.load(model)(feed)), np.asarray(bl.load(net)(feed))
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def test_each_value_has_one_pair_and_weights_are_bytes_per_channel() -> None:
    model = quantized(residual_net())
    constants = arrays(model)
    by_source = Counter(node.input[0] for node in of_type(model, "QuantizeLinear"))
    assert set(by_source.values()) == {1}
    for node in of_type(model, "Conv"):
        dequantizing = producer(model, node.input[1])
        integers, scales = (constants[name] for name in dequantizing.input)
        assert integers.dtype == np.int8
        assert integers.min() >= -127
        assert [(each.name, each.i) for each in dequantizing.attribute] == [("axis", 0)]
        assert scales.shape == integers.shape[:1]
        assert (np.abs(integers).reshape(len(integers), -1).max(1) == 127).all()
        bias = producer(model, node.input[2])
        [source] = [constants[producer(model, node.input[0]).input[1]]]
        assert constants[bias.input[0]].dtype == np.int32
        np.testing.assert_array_equal(constants[bias.input[1]], scales * source)
    assert len(of_type(model, "Gemm")) == 1
    assert [(each.name, each.i) for each in producer(model, of_type(model, "Gemm")[0].input[1]).attribute] == [
        ("axis", 1)
    ]


def test_bytes_are_unsigned_where_nothing_is_negative_and_clips_are_observed_behind() -> None:
    model = quantized(residual_net())
    constants = arrays(model)
    types = {node.input[0]: constants[node.input[2]].dtype for node in of_type(model, "QuantizeLinear")}
    assert types["x"] == np.int8
    written = {node.output[0]: node.op_type for node in model.graph.node}
    assert {written[name] for name in types if name != "x"} == {"Relu", "Conv", "MaxPool", "Concat", "Flatten"}
    for name, dtype in types.items():
        assert name == "x" or dtype == (np.int8 if written[name] == "Conv" else np.uint8)
    assert not any(constants[node.input[2]].any() for node in of_type(model, "QuantizeLinear"))
    for node in of_type(model, "Relu"):  # behind a convolution or a sum, which writes real numbers
        assert producer(model, node.input[0]).op_type in ("Conv", "Add")


def test_what_is_moved_or_concatenated_shares_a_scheme() -> None:
    model = quantized(residual_net())
    scales = {node.input[0]: node.input[1] for node in of_type(model, "QuantizeLinear")}
    [concat], [pool], [flatten] = (of_type(model, op_type) for op_type in ("Concat", "MaxPool", "Flatten"))
    read = [producer(model, producer(model, name).input[0]).input[0] for name in (*concat.input, *pool.input)]
    assert {scales[name] for name in (*read, concat.output[0], pool.output[0], flatten.output[0])} == {scales[read[0]]}


def test_answers_are_those_of_the_reference_to_one_quantum() -> None:
    model = quantized(residual_net())
    constants = arrays(model)
    pairs = {node.output[0]: node for node in of_type(model, "QuantizeLinear")}
    dequantizing = [node for node in of_type(model, "DequantizeLinear") if node.input[0] in pairs]
    for node in dequantizing:
        model.graph.output.append(helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None))
    [feed, *_] = feeds()
    names = [node.output[0] for node in dequantizing]
    found, expected = bl.load(model).run(names, {"x": feed}), ReferenceEvaluator(model).run(names, {"x": feed})
    for node, ours, theirs in zip(dequantizing, found, expected, strict=True):
        assert np.abs(np.asarray(ours) - theirs).max() <= constants[node.input[1]] * 1.001, node.output[0]
    assert relative_error(quantized(residual_net()), residual_net(), feed) < 0.03


def test_the_digits_are_recognised_as_well_as_in_f32() -> None:
    images, labels = digits.held_out()

    def accuracy(model: Any) -> float:
        return float((np.asarray(bl.load(model)(images)).argmax(1) == labels).mean())

    expected = accuracy(digits.model_bytes())
    for recipe in (None, {"activations": "minmax"}, {"activations": "entropy"}, {"weights": "tensor"}):
        model = bl.quantize(digits.model_bytes(), np.split(images[:128], 8), everything(recipe))
        assert accuracy(model) >= expected - 0.005, recipe
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert model.ByteSize() < 0.4 * len(digits.model_bytes())


def test_onnxruntime_gives_the_same_answers() -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: nothing to compare with")
    images, _ = digits.held_out()
    model = bl.quantize(digits.model_bytes(), np.split(images[:64], 8), everything())
    options = onnxruntime.SessionOptions()  # its kernels of bytes saturate on some CPUs
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    [theirs] = peer.run(None, {"image": images})
    assert np.abs(np.asarray(bl.load(model)(images)) - theirs).max() < 0.02


def test_corrected_biases_take_the_mean_error() -> None:
    net = net_of(
        [helper.make_node("Conv", ["x", "w", "b"], ["y"], "conv")],
        {"w": weights(6, 4, 3, 3) ** 3, "b": weights(6)},
        x=["N", 4, 6, 6],
    )
    data = [np.abs(each) for each in feeds((3, 4, 6, 6))]
    data[-1] = data[-1][:1]
    errors = []
    for is_corrected in (True, False):
        recipe = {"activations": "percentile", "percentile": 97.0, "bias_correction": is_corrected}
        model = bl.quantize(net, data, everything(recipe))
        found, expected = (np.asarray(bl.load(each)(np.concatenate(data))) for each in (model, net))
        errors.append(np.abs((found - expected).mean((0, 2, 3))).max())
    assert errors[0] < errors[1] / 20


def test_products_of_other_forms() -> None:
    nodes = [
        helper.make_node("ConvTranspose", ["x", "t", "tb"], ["a"], "up", strides=[2, 2]),
        helper.make_node("Flatten", ["a"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "m"], ["p"], "product"),
        helper.make_node("Add", ["p", "mb"], ["s"], "sum"),
        helper.make_node("Gemm", ["s", "g", "gb"], ["y"], "gemm", alpha=0.5, beta=2.0, transB=1),
    ]
    constants = {"t": weights(3, 4, 2, 2), "tb": weights(4), "m": weights(4 * 64, 7), "mb": weights(7)}
    net = net_of(nodes, constants | {"g": weights(5, 7), "gb": weights(5)}, x=[2, 3, 4, 4])
    model = quantized(net, shape=(2, 3, 4, 4))
    axes = {
        node.input[0].split("_")[0]: node.attribute[0].i
        for node in of_type(model, "DequantizeLinear")
        if node.attribute
    }
    assert axes == {"up": 0, "product": 1, "gemm": 0}
    assert len(of_type(model, "QuantizeLinear")) == 4  # x, a and f of one scheme, s: not between MatMul and its bias
    assert relative_error(model, net, feeds((2, 3, 4, 4))[0]) < 0.03


def test_exceptions_stay_in_f32_and_read_real_numbers() -> None:
    net = net_of(
        [
            helper.make_node("Relu", ["x"], ["r"], "relu"),
            helper.make_node("Conv", ["r", "w"], ["a"], "first"),
            helper.make_node("Conv", ["r", "w"], ["b"], "second"),
            helper.make_node("Mul", ["a", "b"], ["y"], "times"),
        ],
        {"w": weights(4, 3, 1, 1)},
        x=[1, 3, 5, 5],
    )
    model = quantized(net, {"exceptions": {"sec*": "f32"}}, (1, 3, 5, 5))
    [first, second] = of_type(model, "Conv")
    assert producer(model, first.input[0]).op_type == "DequantizeLinear"
    assert list(second.input) == ["r", "w"]
    assert Counter(node.op_type for node in model.graph.node)["QuantizeLinear"] == 1
    both = quantized(net, {"operators": ["Conv", "Mul"], "exceptions": {"a": {"activations": "minmax"}}}, (1, 3, 5, 5))
    assert len(of_type(both, "QuantizeLinear")) == 3
    with pytest.raises(bl.InputError, match="recipe: it leaves nothing to quantise"):
        bl.quantize(net, feeds((1, 3, 5, 5)), {"operators": ["Gemm"]})
    with pytest.raises(bl.InputError, match=r"exceptions: 'frist' is no node, .* did you mean 'first'"):
        bl.quantize(net, feeds((1, 3, 5, 5)), {"exceptions": {"frist": "f32"}})


def test_a_zero_point_covers_what_is_not_around_0() -> None:
    net = net_of([helper.make_node("Conv", ["x", "w"], ["y"], "conv")], {"w": weights(4, 3, 1, 1)}, x=[1, 3, 5, 5])
    data = [(each / 10 + 2 * (each > 0)).astype(np.float32) for each in feeds((1, 3, 5, 5))]
    errors = []
    for zero_point in ("zero", "any"):
        model = bl.quantize(net, data, everything({"zero_point": zero_point}))
        errors.append(relative_error(model, net, data[0]))
    assert arrays(model)["x_zero_point"].dtype == np.uint8
    assert arrays(model)["x_zero_point"] > 0
    assert errors[1] < errors[0]


def test_what_depthwise_convolutions_read_has_a_scale_for_each_channel() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "w", "b"], ["c"], "depthwise", group=4, pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "p"], ["y"], "pointwise"),
    ]
    net = net_of(nodes, {"w": weights(4, 1, 3, 3), "b": weights(4), "p": weights(5, 4, 1, 1)}, x=[1, 4, 6, 6])
    ranges = np.array([1, 1e-3, 0, 50], np.float32).reshape(4, 1, 1)
    data = [each * ranges for each in feeds((1, 4, 6, 6))]
    constants, errors = {}, []
    for depthwise in ("channel", "tensor"):
        model = bl.quantize(net, data, everything({"depthwise": depthwise}))
        [scale] = [arrays(model)[node.input[1]] for node in of_type(model, "QuantizeLinear") if node.input[0] == "r"]
        constants[depthwise] = scale
        probe = helper.make_tensor_value_info("c", TensorProto.FLOAT, None)
        for each in (model, net):
            del each.graph.output[:]
            each.graph.output.append(probe)
        found, expected = (np.asarray(bl.load(each)(data[0])) for each in (model, net))
        errors.append(np.abs(found - expected)[:, 1].max())
        net.graph.output[0].name = "y"
    assert constants["tensor"].shape == ()
    largest = np.maximum([each.max((0, 2, 3)) for each in data], 0).max(0)
    largest[2] = largest.max()  # it is always 0
    np.testing.assert_allclose(constants["channel"], largest / 255, rtol=1e-6)
    assert errors[0] < errors[1] / 20
    with pytest.raises(bl.InputError, match="r is 0 in all calibration data"):
        bl.quantize(net, [-np.abs(data[0])])


def test_a_large_bias_of_small_weights_stays_exact() -> None:
    w = weights(3, 3, 1, 1)
    w[0] *= np.float32(1e-9)
    w[1] = 0
    constants = {"w": w, "b": np.array([5, -7, 0.25], np.float32)}
    net = net_of([helper.make_node("Conv", ["x", "w", "b"], ["y"], "conv")], constants, x=[1, 3, 5, 5])
    model = quantized(net, shape=(1, 3, 5, 5))
    found, expected = (np.asarray(bl.load(each)(feeds((1, 3, 5, 5))[0])) for each in (model, net))
    np.testing.assert_allclose(found[:, :2], expected[:, :2], rtol=1e-5)


def test_data_may_be_an_iterator_of_other_extents_each() -> None:
    net = net_of(
        [helper.make_node("Conv", ["x", "w", "b"], ["y"], "conv", pads=[1, 1, 1, 1])],
        {"w": weights(4, 3, 3, 3), "b": weights(4)},
        x=["N", 3, None, "W"],
    )

    def data() -> Iterator[dict[str, np.ndarray]]:
        for extent in (5, 7, 5):
            yield {"x": np.ones((extent, 3, extent, 9), np.float32) * extent}

    told: list[str] = []
    model = bl.quantize(net, data(), everything(), progress=told.append)
    assert "feed 3 of 3" in told
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == ["N", 3, 0, "W"]
    for shape in ((1, 3, 4, 4), (2, 3, 9, 5)):
        feed = np.full(shape, 3, np.float32)
        assert relative_error(model, net, feed) < 0.03


def test_old_operator_sets_are_converted() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("Softmax", ["c"], ["y"], "s", axis=1),
    ]
    net = net_of(nodes, {"w": weights(4, 3, 5, 5)}, opset=11, x=[1, 3, 5, 5])
    for source in (net, net.SerializeToString()):
        model = quantized(source, shape=(1, 3, 5, 5))
        assert model.opset_import[0].version == 17
        assert relative_error(model, net, feeds((1, 3, 5, 5))[0]) < 0.03


def test_metadata_stay() -> None:
    net = net_of([helper.make_node("Conv", ["x", "w"], ["y"], "conv")], {"w": weights(4, 3, 1, 1)}, x=[1, 3, 5, 5])
    net.metadata_props.add(key="names", value="['a', 'b']")
    model = quantized(net, shape=(1, 3, 5, 5))
    assert [(each.key, each.value) for each in model.metadata_props] == [("names", "['a', 'b']")]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "calibration_data: there are no feeds"),
        (3, "calibration_data: int; give an iterable of feeds"),
        ([{"z": np.zeros((1, 3, 5, 5), np.float32)}], "calibration feed 1: it has z, and the model's inputs are x"),
        ([np.ones((1, 3, 5), np.float32)], "calibration feed 1: .*x"),
        ([np.ones((1, 3, 5, 5), np.float32), np.ones((1, 3, 6, 5), np.float32)], "calibration feed 2: .*x"),
        ([np.full((1, 3, 5, 5), np.nan, np.float32)], "calibration feed 1: x is NaN somewhere"),
        ([np.zeros((1, 3, 5, 5), np.float32)], "x is 0 in all calibration data"),
    ],
)
def test_calibration_data_that_do_not_fit(data: Any, said: str) -> None:
    net = net_of([helper.make_node("Conv", ["x", "w"], ["y"], "conv")], {"w": weights(4, 3, 1, 1)}, x=[1, 3, 5, 5])
    with pytest.raises(bl.InputError, match=said):
        bl.quantize(net, data)


def test_infinities_inside_are_named() -> None:
    nodes = [helper.make_node("Exp", ["x"], ["e"], "exp"), helper.make_node("Conv", ["e", "w"], ["y"], "conv")]
    net = net_of(nodes, {"w": weights(4, 3, 1, 1)}, x=[1, 3, 5, 5])
    fine, wrong = np.ones((1, 3, 5, 5), np.float32), np.full((1, 3, 5, 5), 100, np.float32)
    with pytest.raises(bl.InputError, match="calibration feed 2: e is infinite somewhere"):
        bl.quantize(net, [fine, wrong])


def test_several_inputs_need_names() -> None:
    b = bl.Builder()
    b.output("y", b.input("x", (1, 3, 5, 5)) + b.input("z", (1, 3, 5, 5)))
    feed = feeds((1, 3, 5, 5))[0]
    with pytest.raises(bl.InputError, match="calibration feed 1: give a dict by input name: the model has 2: x, z"):
        bl.quantize(b, [feed])
    assert len(of_type(bl.quantize(b, {"x": feed, "z": feed}, everything()), "QuantizeLinear")) == 2
