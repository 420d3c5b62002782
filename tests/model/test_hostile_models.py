"""Files that somebody made to do harm, or that chance did: each ends in one error of ours, soon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

import blocklayout as bl
from blocklayout.model.onnx_read import open_onnx
from tests.model.protos import make_model, relu_model


def _load(model: ModelProto) -> bl.Session:
    return bl.load(model.SerializeToString(), tune="model", threads=1)


def _constant_without_value() -> ModelProto:
    return make_model(
        [helper.make_node("Constant", [], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])], {"x": (1, 2)}
    )


def _attribute_of_a_function() -> ModelProto:
    model = make_model([helper.make_node("Elu", ["x"], ["y"], name="elu", alpha=1.0)], {"x": (1, 2)})
    model.graph.node[0].attribute[0].ref_attr_name = "slope"
    return model


def _range_of_no_type() -> ModelProto:
    """A type that shape inference throws at, where it is told of a number that is none."""
    model = make_model([helper.make_node("Cast", ["x"], ["y"], name="cast", to=0)], {"x": (1, 2)})
    assert model.graph.node[0].attribute[0].type == AttributeProto.INT
    return model


def _quantized_to_floats() -> ModelProto:
    model = make_model(
        [helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"], name="q", domain="com.microsoft")],
        {"x": (1, 2)},
        constants={"scale": np.ones((), np.float32), "zero": np.zeros((), np.float32)},
    )
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


CASES: dict[str, tuple[Callable[[], ModelProto], str]] = {
    "more outputs than parts": (
        lambda: make_model(
            [
                helper.make_node("Split", ["x"], ["a", "b", "c", "d"], name="split", axis=1, num_outputs=3),
                helper.make_node("Add", ["a", "d"], ["y"]),
            ],
            {"x": (1, 6)},
        ),
        "'split': Split has num_outputs=3 and 4 outputs",
    ),
    "a permutation of fewer dimensions": (
        lambda: make_model([helper.make_node("Transpose", ["x"], ["y"], name="turn", perm=[2, 0])], {"x": (2, 3, 4)}),
        r"'turn': attribute perm is \(2, 0\); it must order the dimensions 0 to 2",
    ),
    "a permutation beyond the dimensions": (
        lambda: make_model([helper.make_node("Transpose", ["x"], ["y"], name="turn", perm=[0, 2])], {"x": (2, 3)}),
        "'turn'",
    ),
    "a constant without value": (_constant_without_value, "0 attributes and 1 outputs; a constant has one of each"),
    "an attribute of a function": (_attribute_of_a_function, "'elu'.*'alpha' is that of a function, 'slope'"),
    "a type that is none": (_range_of_no_type, "'cast'"),
    "quantised to floats": (_quantized_to_floats, "'q'"),
    "an input beyond memory": (lambda: relu_model((1, 2**40)), "'x'.* of extents .*1099511627776"),
    "an input beyond numpy": (lambda: relu_model((3, 2**62, 5)), "'x'.* extents .*4611686018427387904"),
    "an unread input beyond numpy": (
        lambda: make_model([helper.make_node("Shape", ["x"], ["y"])], {"x": (3, 2**62, 5)}),
        "'x'.* extents",
    ),
    "a step of no elements": (
        lambda: make_model(
            [helper.make_node("STFT", ["x", "step", "window"], ["y"], name="stft")],
            {"x": (1, 128, 1), "window": (16,)},
            constants={"step": np.zeros(0, np.int64)},
        ),
        "'stft'",
    ),
    "a letter of two extents": (
        lambda: make_model(
            [helper.make_node("Einsum", ["x", "z"], ["y"], name="sum", equation="bij,bjk->bik")],
            {"x": (5, 2, 3), "z": (6, 3, 4)},
        ),
        r"'sum'.*'b' has the extents \[5, 6\]; they must be equal",
    ),
    "a letter that comes twice": (
        lambda: make_model([helper.make_node("Einsum", ["x"], ["y"], name="sum", equation="ij->ii")], {"x": (3, 3)}),
        "'sum'.* once; 'i' is not",
    ),
    "more dimensions than arrays have": (
        lambda: make_model(
            [helper.make_node("Reshape", ["x", "s"], ["z"], name="long"), helper.make_node("Relu", ["z"], ["y"])],
            {"x": (2,)},
            constants={"s": np.array([1] * 69 + [2])},
        ),
        "'long'.* would have 70 dimensions; arrays have up to 64",
    ),
    "an operand that is left out": (
        lambda: make_model([helper.make_node("Max", ["x", ""], ["y"], name="max")], {"x": (2, 3)}, opset=7),
        "'max': input 1 .* is missing",
    ),
    "fewer than no dimensions of batches": (
        lambda: make_model(
            [helper.make_node("GatherND", ["x", "i"], ["y"], name="pick", batch_dims=-873)],
            {"x": (8, 8, 0, 0, 8)},
            constants={"i": np.zeros(0, np.int64)},
        ),
        "'pick': attribute batch_dims is -873; give 0 or more",
    ),
    "channels that make no blocks": (
        lambda: make_model(
            [helper.make_node("DepthToSpace", ["w"], ["y"], name="blocks", blocksize=4)],
            {},
            constants={"w": np.zeros((5, 1, 7, 2), np.float32)},
        ),
        "'blocks': DepthToSpace with blocksize=4 has channels=1; give a multiple of 16",
    ),
    "lines that make no blocks": (
        lambda: make_model(
            [helper.make_node("SpaceToDepth", ["x"], ["y"], name="blocks", blocksize=2)], {"x": (1, 1, 7, 2)}
        ),
        "'blocks': SpaceToDepth with blocksize=2 has height=7; give a multiple of 2",
    ),
    "a pad beyond memory": (
        lambda: make_model(
            [helper.make_node("Pad", ["x", "pads"], ["y"], name="pad")],
            {"x": (1, 1, 2, 2)},
            constants={"pads": np.array([0, 0, 2**31, 2**31, 0, 0, 2**31, 2**31])},
        ),
        "'pad'.* extents",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused(case: str) -> None:
    make, message = CASES[case]
    with pytest.raises(bl.BlockLayoutError, match=message):
        _load(make())


def test_functions_that_call_one_another_are_not_inlined_for_ever() -> None:
    """Thirty lines that are a billion nodes."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    model = make_model([helper.make_node("f29", ["x"], ["y"], domain="own")], {"x": (1, 2)})
    model.opset_import.append(opsets[1])
    for level in range(30):
        inner = (f"f{level - 1}", "own") if level else ("Relu", "")
        nodes = [
            helper.make_node(inner[0], [name], [result], domain=inner[1]) for name, result in (("a", "b"), ("b", "c"))
        ]
        model.functions.append(helper.make_function("own", f"f{level}", ["a"], ["c"], nodes, opsets))
    with pytest.raises(bl.UnsupportedError, match="has 1,073,741,824 nodes; 1,048,576 can be read"):
        _load(model)


@pytest.mark.parametrize("n", [2, 1000])
def test_any_number_of_sources_has_a_price(n: int) -> None:
    model = make_model([helper.make_node("Concat", ["x"] * n, ["y"], axis=0)], {"x": (1, 2)})
    assert _load(model).run(None, {"x": np.ones((1, 2), np.float32)})[0].shape == (n, 2)


def test_a_concatenation_of_hundreds_of_values_is_planned() -> None:
    names = [f"s{index}" for index in range(200)]
    nodes = [
        helper.make_node("Split", ["x"], names, num_outputs=200, axis=0),
        helper.make_node("Concat", names[::-1], ["y"], axis=0),
    ]
    x = np.arange(400, dtype=np.float32).reshape(200, 2)
    np.testing.assert_array_equal(_load(make_model(nodes, {"x": (200, 2)})).run(None, {"x": x})[0], x[::-1])


def test_a_pad_of_gigabytes_is_refused_within_a_limit() -> None:
    pads = np.array([0, 0, 0, 2**29, 0, 0, 0, 0])
    model = make_model([helper.make_node("Pad", ["x", "pads"], ["y"])], {"x": (1, 1, 1, 2)}, constants={"pads": pads})
    with bl.limits(nbytes=1 << 28), pytest.raises(bl.LimitError, match=r"bl\.limits allows 268,435,456"):
        _load(model)


def test_operands_may_be_one_constant() -> None:
    weights = np.linspace(-1, 1, 16 * 16, dtype=np.float32).reshape(16, 16)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Gemm", ["a", "w", "w"], ["b"]),
        helper.make_node("Add", ["b", "w"], ["y"]),
    ]
    x = np.ones((16, 16), np.float32)
    [found] = _load(make_model(nodes, {"x": (16, 16)}, constants={"w": weights})).run(None, {"x": x})
    np.testing.assert_allclose(found, x @ weights @ weights + 2 * weights, rtol=1e-4, atol=1e-4)


def test_weights_and_bias_may_be_one_constant() -> None:
    w = np.ones((1, 1, 1), np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("PRelu", ["a", "w"], ["y"])]
    x = np.linspace(-1, 1, 5, dtype=np.float32).reshape(1, 1, 5)
    [found] = _load(make_model(nodes, {"x": (1, 1, 5)}, constants={"w": w})).run(None, {"x": x})
    np.testing.assert_array_equal(found, x)


def test_an_input_without_a_rank_is_said_to_be_one() -> None:
    model = relu_model()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    session = _load(model)
    assert session.get_inputs()[0].shape is None
    np.testing.assert_array_equal(session.run(None, {"x": np.array([[-1, 1]], np.float32)})[0], [[0, 1]])


def test_a_value_that_is_no_tensor_is_refused() -> None:
    model = relu_model()
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(2, np.float32), "x"))
    model.graph.initializer[0].data_type = TensorProto.STRING
    with pytest.raises(bl.BlockLayoutError, match="'x'"):
        _load(model)


MARK = "qqqq"


def _with_texts() -> bytes:
    """A model with a text in every place that is read."""
    branch = helper.make_graph(
        [helper.make_node("Identity", ["z"], ["inner " + MARK], name="inner node " + MARK)],
        "branch " + MARK,
        [],
        [helper.make_tensor_value_info("inner " + MARK, TensorProto.FLOAT, None)],
    )
    model = make_model(
        [
            helper.make_node("Gelu", ["x"], ["a " + MARK], name="gelu " + MARK, approximate="tanh"),
            helper.make_node("Add", ["a " + MARK, "w " + MARK], ["z"]),
            helper.make_node("If", ["so"], ["y"], name="if", then_branch=branch, else_branch=branch),
        ],
        {"x": (1, "n " + MARK)},
        constants={"w " + MARK: np.zeros(1, np.float32), "so": np.array(True)},
    )
    model.graph.name = MARK
    model.metadata_props.add(key="key " + MARK, value="value " + MARK)
    model.opset_import.append(helper.make_opsetid("domain " + MARK, 1))
    model.graph.node[0].attribute[0].s = MARK.encode()
    content: bytes = model.SerializeToString()
    return content


@pytest.mark.parametrize("place", range(_with_texts().count(MARK.encode())))
def test_a_text_that_is_not_utf8_is_named(place: int) -> None:
    parts = _with_texts().split(MARK.encode())
    spoilt = MARK.encode().join(parts[: place + 1]) + b"q\x96qq" + MARK.encode().join(parts[place + 1 :])
    with pytest.raises(bl.ModelError, match=r"the given bytes has the text b'.*q\\x96qq', which is not UTF-8"):
        bl.load(spoilt, tune="model", threads=1)


def test_a_place_beside_the_model_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    model = make_model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (2,)}, constants={"w": np.ones(2, "f4")})
    [tensor] = model.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=MARK)
    path = tmp_path / "x.onnx"
    path.write_bytes(model.SerializeToString().replace(MARK.encode(), b"q\x96qq"))
    with pytest.raises(bl.ModelError, match=r"has the text b'q\\x96qq', which is not UTF-8"):
        bl.load(path)


def test_a_target_without_rank_is_one_extent() -> None:
    reshape = helper.make_node("Reshape", ["x", "s"], ["y"])
    model = make_model([reshape], {"x": (1, 0)}, constants={"s": np.array(-1)}, opset=9)
    assert _load(model).run(None, {"x": np.zeros((1, 0), np.float32)})[0].size == 0


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
def test_a_view_of_a_constant_that_the_reference_does_not_fold_is_refused_by_name() -> None:
    constants = {"w": np.ones((), np.float32), "s": np.array(-1)}
    reshape = helper.make_node("Reshape", ["w", "s"], ["y"], name="flat")
    session = _load(make_model([reshape], {}, constants=constants))
    with pytest.raises(bl.UnsupportedError, match="node 'flat': "):
        session.run(None, {})


def test_a_node_that_writes_nothing_is_left_out() -> None:
    unread = helper.make_node("LSTM", ["x", "w", "r"], [""], hidden_size=1)
    shapes = {"x": (1, 1, 2), "w": (1, 4, 2), "r": (1, 4, 1)}
    model = make_model([unread, helper.make_node("Relu", ["x"], ["y"])], shapes)
    assert [node.op_type for node in open_onnx(model).nodes] == ["Relu"]
