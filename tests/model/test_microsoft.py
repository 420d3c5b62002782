"""Files with operators of onnxruntime's own: what they compute, beside onnxruntime, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

import blocklayout as bl
from blocklayout import dnnl, zoo
from blocklayout.errors import BlockLayoutError, ModelError, UnsupportedError
from blocklayout.model import read, simplify, to_model

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

RNG = np.random.default_rng(0)
B, S, H, N = 2, 5, 12, 3


def f(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def i(high: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, high, shape, np.int32)


def u8(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, np.uint8)


def s8(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape, np.int8)


def step(size: float) -> np.float32:
    return np.float32(size)


def zero(point: int) -> np.uint8:
    return np.uint8(point)


def lstm(n_steps: int, direction: str, *scale: int, batch: int = 1) -> tuple[Any, ...]:
    n, size = scale[0], 4
    steps = [np.abs(f(*scale)) / 50, np.zeros(scale, np.int8)]
    # Of 7 bits: without VNNI onnxruntime adds pairs of products in 16 bits, and larger ones do not fit.
    weights = [s8(n, 3, 4 * size) // 2, s8(n, size, 4 * size) // 2]
    inputs = [f(n_steps, batch, 3), *weights, f(n, 8 * size), None, f(n, batch, size)]
    attrs = {"hidden_size": size, "direction": direction}
    return "DynamicQuantizeLSTM", [*inputs, f(n, batch, size), None, *steps, *steps], attrs, (0, 1, 2)


MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)
QKV = (f(B, S, H), f(H, 3 * H) / 3, f(3 * H))
IMAGE = (f(1, 4, 7, 7), f(6, 4, 3, 3), f(6))
IN_GROUPS = (f(1, 4, 7, 7), f(6, 2, 3, 3))
REQUANTIZED = (step(0.2), zero(100))
OF_BITS = {"K": 8, "N": 4, "block_size": 16}
WORDS = (f(B, S, H), f(B, S, H), f(H))

CASES: list[tuple[Any, ...]] = [
    ("Gelu", [f(2, 3, 4)], {}),
    ("BiasGelu", [f(2, 3, 4), f(4)], {}),
    ("FastGelu", [f(2, 3, 4)], {}),
    ("FastGelu", [f(2, 3, 4), f(4)], {}),
    ("QuickGelu", [f(2, 3, 4)], {"alpha": 0.7}),
    *(
        (
            "FusedConv",
            IMAGE,
            {"activation": name, "strides": [2, 2], **({"activation_params": [*given]} if given else {})},
        )
        for name, given in {"Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": (0.2,), "Clip": (-0.5, 0.7)}.items()
    ),
    ("FusedConv", IMAGE, {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]}),
    ("FusedConv", [*IN_GROUPS, f(6), f(1, 6, 7, 7)], {"activation": "Relu", "group": 2, "pads": [1, 1, 1, 1]}),
    ("FusedConv", [*IN_GROUPS, None, f(1, 6, 7, 7)], {"activation": "Relu", "group": 2, "pads": [1, 1, 1, 1]}),
    ("FusedGemm", [f(3, 4), f(4, 5), f(5)], {"activation": "Relu", "alpha": 0.5, "beta": 2.0}),
    ("FusedGemm", [f(4, 3), f(5, 4)], {"activation": "LeakyRelu", "activation_alpha": 0.3, "transA": 1, "transB": 1}),
    ("FusedMatMul", [f(2, 4, 3), f(2, 5, 4)], {"alpha": 0.125, "transA": 1, "transB": 1}),
    ("FusedMatMul", [f(3, 2, 6, 4), f(2, 6, 4, 5)], {"transBatchA": 1}),
    ("FusedMatMul", [f(4, 2, 6, 3), f(2, 6, 4, 5)], {"transBatchA": 1, "transA": 1}),
    ("FusedMatMul", [f(3, 2, 6, 4), f(5, 2, 6, 4)], {"transBatchA": 1, "transBatchB": 1, "transB": 1}),
    ("FusedMatMul", [f(4), f(4, 5)], {"transA": 1}),
    ("TransposeMatMul", [f(2, 4, 3), f(2, 4, 5)], {"transA": 1}),
    ("SkipLayerNormalization", [*WORDS, f(H), f(H)], {"epsilon": 1e-5}, (0, 3)),
    ("SkipLayerNormalization", [f(B, S, H), f(S, H), f(H)], {}),
    ("SkipSimplifiedLayerNormalization", [*WORDS, f(H)], {"epsilon": 1e-5}, (0, 3)),
    ("SimplifiedLayerNormalization", [f(B, S, H), f(H)], {"axis": -1, "epsilon": 1e-5}, (0,), ""),
    ("LayerNormalization", [f(B, S, H), f(S, H), f(S, H)], {"axis": 1, "epsilon": 1e-4}, (0,), ""),
    ("EmbedLayerNormalization", [i(9, B, S), i(2, B, S), f(9, H), f(7, H), f(2, H), f(H), f(H), MASK], {}, (0, 1, 2)),
    ("EmbedLayerNormalization", [i(9, B, S), None, f(9, H), f(7, H), None, f(H), f(H), None, i(7, B, S)], {}, (0, 1)),
    ("Attention", QKV, {"num_heads": N}),
    ("Attention", [*QKV, MASK], {"num_heads": N, "mask_filter_value": -3.0, "scale": 0.3}),
    ("Attention", [*QKV, MASK], {"num_heads": N, "unidirectional": 1}),
    ("Attention", [*QKV, np.array([3, 4], np.int32)], {"num_heads": N}),
    ("Attention", [*QKV, np.array([4, 5, 1, 0], np.int32)], {"num_heads": N}),
    ("Attention", [*QKV, np.tril(np.ones((B, S, S), np.int32))], {"num_heads": N}),
    ("Attention", [f(B, S, H), f(H, 30), f(30)], {"num_heads": N, "qkv_hidden_sizes": [12, 12, 6]}),
    ("Attention", [*QKV, None, f(2, B, N, 4, 4)], {"num_heads": N, "unidirectional": 1}, (0, 1)),
    ("Attention", [*QKV, None, None, f(1, N, S, S)], {"num_heads": N}),
    ("MultiHeadAttention", [f(B, S, H), f(B, 7, H), f(B, 7, 6), f(30)], {"num_heads": N}),
    ("MultiHeadAttention", [*(f(B, S, H),) * 3, f(36), MASK, f(B, 1, S, S)], {"num_heads": N, "unidirectional": 1}),
    ("MultiHeadAttention", [f(B, S, N, 3, 4)], {"num_heads": N}),
    ("MultiHeadAttention", [f(B, S, H), f(B, 7, N, 2, 4)], {"num_heads": N}),
    ("MultiHeadAttention", [f(B, S, H), f(B, N, 7, 4), f(B, N, 7, 4)], {"num_heads": N, "scale": 0.4}),
    (
        "MultiHeadAttention",
        [f(B, S, H), f(B, S, H), f(B, S, H), None, None, None, f(B, N, 4, 4), f(B, N, 4, 4)],
        {"num_heads": N},
        (0, 1, 2),
    ),
    ("DynamicQuantizeMatMul", [f(3, 8), u8(8, 5), step(0.02), zero(120), f(5)], {}),
    ("DynamicQuantizeMatMul", [f(2, 3, 8), s8(8, 5), np.abs(f(5)) / 50, s8(5)], {}),
    ("MatMulIntegerToFloat", [u8(3, 8), s8(8, 5), step(0.02), step(0.03), zero(100), np.int8(3), f(5)], {}),
    *(
        ("MatMulNBits", [f(2, 3, 40), u8(6, 3, 2 * bits), f(18), *given], {"K": 40, "N": 6, "block_size": 16, **attrs})
        for bits, given, attrs in (
            (4, [], {}),
            (4, [u8(12), None, f(6)], {"bits": 4, "accuracy_level": 1}),
            (4, [f(18)], {}),
            (4, [None, i(3, 40)], {}),
            (8, [u8(18)], {"bits": 8}),
            (2, [], {"bits": 2}),
        )
    ),
    ("QLinearAdd", [u8(2, 3), step(0.1), zero(3), u8(2, 3), step(0.2), zero(30), step(0.2), zero(100)], {}),
    ("QLinearMul", [u8(2, 3), step(0.1), zero(3), u8(2, 3), step(0.2), zero(30), step(4), zero(100)], {}),
    ("QLinearSigmoid", [u8(2, 3), step(0.1), zero(30), step(0.004), zero(1)], {}),
    ("QLinearLeakyRelu", [u8(2, 3), step(0.1), zero(30), step(0.1), zero(1)], {"alpha": 0.2}),
    ("QLinearGlobalAveragePool", [u8(1, 3, 4, 4), step(0.1), zero(30), step(0.05), zero(1)], {}),
    ("QLinearAveragePool", [u8(1, 3, 4, 4), step(0.1), zero(30), step(0.05), zero(1)], {"kernel_shape": [2, 2]}),
    ("QLinearConcat", [step(0.1), zero(30), u8(1, 3), step(0.05), zero(1), u8(1, 2), step(0.07), zero(9)], {"axis": 1}),
    (
        "QGemm",
        [
            *(u8(3, 8), step(0.02), zero(100), s8(5, 8) // 2),  # else some of onnxruntime's kernels saturate
            *(np.abs(f(5)) / 50, np.zeros(5, np.int8)),
            i(900, 5),
            *REQUANTIZED,
        ],
        {"transB": 1, "alpha": 0.5},
    ),
    ("QGemm", [u8(3, 8), step(0.02), zero(100), u8(8, 5), step(0.03), zero(120), i(900, 5)], {}),
    ("QLinearSoftmax", [u8(2, 3, 4), step(0.1), zero(30), step(0.004), zero(0)], {"opset": 13, "axis": 2}),
    (
        "QLinearWhere",
        [np.array([True, False, True]), u8(2, 3), step(0.1), zero(3), u8(2, 3), step(0.2), zero(30), *REQUANTIZED],
        {},
    ),
    ("QuantizeLinear", [f(2, 3), np.abs(f(3)), u8(3)], {"axis": 1}, (0,), ""),
    ("DequantizeLinear", [s8(2, 3), np.abs(f(3)), s8(3)], {"axis": 1}, (0,), ""),
]
UNKNOWN_THERE = {(B, S, N, 3, 4), (B, 7, N, 2, 4)}
"""Packed heads, which onnxruntime does not compute on a CPU."""


def written(case: tuple[Any, ...]) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """A file of one node, and what it is fed."""
    defaults: tuple[Any, ...] = ((0,), "com.microsoft")
    op_type, inputs, attrs, read_outputs, domain = (*case, *defaults[len(case) - 3 :])
    arrays = {f"in {index}": np.asarray(array) for index, array in enumerate(inputs) if array is not None}
    known = {name for name in arrays if op_type == "DynamicQuantizeLSTM" and name not in ("in 0", "in 5", "in 6")}
    outputs = [f"out {index}" if index in read_outputs else "" for index in range(max(read_outputs) + 1)]
    names = [name if name in arrays else "" for name in (f"in {index}" for index in range(len(inputs)))]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, outputs, name="node", domain=domain, **attrs)],
        "one",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in arrays.items()
            if name not in known
        ],
        [ValueInfoProto(name=name) for name in outputs if name],
        [numpy_helper.from_array(arrays[name], name) for name in sorted(known)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)] if domain else [helper.make_opsetid("", 16)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return model, {name: array for name, array in arrays.items() if name not in known}


def their_session(model: ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # of several, each quantises the states of its own sequences in an LSTM
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def typed(model: ModelProto, session: Any) -> ModelProto:
    types = {"tensor(float)": TensorProto.FLOAT, "tensor(int32)": TensorProto.INT32, "tensor(uint8)": TensorProto.UINT8}
    for info, output in zip(model.graph.output, session.get_outputs(), strict=True):
        info.CopyFrom(helper.make_tensor_value_info(info.name, types[output.type], None))
    return model


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    "case", [(1, "forward", 1), (4, "reverse", 1), (3, "bidirectional", 2, 16), (300, "bidirectional", 2)]
)
def test_an_lstm_of_bytes_is_a_few_steps_however_long_it_is(case: tuple[Any, ...], batch: int) -> None:
    model, feed = written(lstm(*case, batch=batch))
    theirs = their_session(model)
    session = bl.load(typed(model, theirs), tune="model")
    assert len(session.plan.steps) < 30
    if dnnl.has_native_executor() and dnnl.has_isa("avx2"):
        assert [step.spec.impl for step in session.plan.steps].count("dynamic_lstm:avx2") == 1
    for expected, actual in zip(theirs.run(None, feed), session.run(None, feed), strict=True):
        # a state between two bytes may become either, and some states behind it are a little different then
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 if case[0] < 100 else 0.02)


def test_a_graph_keeps_an_lstm_of_bytes_as_its_file_has_it() -> None:
    """Files that are written of it are read elsewhere."""
    model, feed = written(lstm(3, "bidirectional", 2))
    theirs = their_session(model)
    graph = simplify(read(typed(model, theirs)))
    assert [node.op_type for node in graph.nodes] == ["com.microsoft.DynamicQuantizeLSTM"]
    for expected, actual in zip(theirs.run(None, feed), their_session(to_model(graph)).run(None, feed), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("unread", [(0,), (0, 1), (1, 2), (2,)])
def test_an_lstm_of_bytes_may_have_unread_outputs(unread: tuple[int, ...]) -> None:
    op_type, inputs, attrs, _ = lstm(3, "bidirectional", 2)
    inputs[5:7] = None, None
    model, feed = written((op_type, inputs, attrs, tuple({0, 1, 2} - {*unread})))
    theirs = their_session(model)
    for expected, actual in zip(theirs.run(None, feed), bl.load(typed(model, theirs)).run(None, feed), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


def test_an_lstm_of_bytes_is_computed_alike_where_there_is_no_code_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model, feed = written(lstm(5, "bidirectional", 2, 16, batch=3))
    theirs = their_session(model)
    monkeypatch.setattr(dnnl, "has_optimised", lambda _: False)
    session = bl.load(typed(model, theirs), tune="model")
    assert "DynamicLSTM" in str(session.plan)
    for expected, actual in zip(theirs.run(None, feed), session.run(None, feed), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("index", "what"), [(1, "W"), (3, "B"), (6, "initial_c"), (8, "W_scale")])
def test_an_lstm_of_bytes_of_extents_that_do_not_fit_is_refused(index: int, what: str) -> None:
    op_type, inputs, attrs, read_outputs = lstm(2, "forward", 1)
    model, _ = written((op_type, inputs, attrs, read_outputs))
    typed(model, their_session(model))
    inputs[index] = np.concatenate([inputs[index]] * 2)
    broken, _ = written((op_type, inputs, attrs, read_outputs))
    for info, right in zip(broken.graph.output, model.graph.output, strict=True):
        info.CopyFrom(right)
    with pytest.raises(ModelError, match=what):
        bl.load(broken)


@pytest.mark.parametrize(
    "attrs",
    [{"direction": "up"}, {"activations": 5}, {"activations": [1, 2]}, {"activations": ["Foo"] * 3}, {"clip": "x"}],
)
def test_an_lstm_of_bytes_with_attributes_that_are_none_is_refused(attrs: dict[str, Any]) -> None:
    model, _ = written(lstm(2, "forward", 1))
    typed(model, their_session(model))
    [node] = model.graph.node
    kept = [each for each in node.attribute if each.name not in attrs]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(name, value) for name, value in attrs.items())])
    with pytest.raises(ModelError, match=next(iter(attrs))):
        bl.load(model)


@pytest.mark.parametrize(
    ("attrs", "has_peepholes"),
    [({"direction": "reverse", "clip": 0.5}, True), ({"activations": ["Sigmoid", "Relu", "Tanh"]}, False)],
)
def test_bytes_of_an_lstm_stand_for_numbers(attrs: dict[str, Any], *, has_peepholes: bool) -> None:
    """As an LSTM of these numbers, but for what rounding states to bytes takes away."""
    batch, size = 2, 4
    kept = {"hidden_size": size, "input_forget": int(not has_peepholes), **attrs}
    weights, recurrent = s8(1, 3, 4 * size), s8(1, size, 4 * size)
    inputs = [f(5, batch, 3), weights, recurrent, f(1, 8 * size), None, f(1, batch, size), f(1, batch, size)]
    inputs.append(f(1, 3 * size) if has_peepholes else None)
    scales = [np.full(1, 0.01, np.float32), np.full(1, 3, np.int8)] * 2
    quantized = written(("DynamicQuantizeLSTM", [*inputs, *scales], kept, (0, 1, 2)))
    inputs[1:3] = [np.float32(0.01) * (each.transpose(0, 2, 1) - np.float32(3)) for each in (weights, recurrent)]
    real = written(("LSTM", inputs, kept, (0, 1, 2), ""))
    theirs = their_session(real[0])
    expected, given = theirs.run(None, real[1]), bl.load(typed(quantized[0], theirs)).run(None, quantized[1])
    for got, wanted in zip(given, expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=0.03)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_operators_of_onnxruntime_are_written_in_those_of_onnx(case: tuple[Any, ...]) -> None:
    model, feed = written(case)
    session = their_session(model)
    graph = read(typed(model, session))
    assert not any(node.domain for node in graph.nodes)
    if case[1][0].shape in UNKNOWN_THERE or (len(case[1]) > 1 and np.shape(case[1][1]) in UNKNOWN_THERE):
        assert [graph.shape(name) for name in graph.outputs] == [(B, S, H)]
        return
    for expected, actual in zip(session.run(None, feed), their_session(to_model(graph)).run(None, feed), strict=True):
        assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
        scale = 1e-5 * np.abs(expected).max() if expected.dtype == np.float32 else 1  # bytes may be rounded up or down
        np.testing.assert_allclose(actual.astype(float), expected.astype(float), rtol=0, atol=scale)


OPTIMISED = [
    ("vit_b_16", {"size": 49, "layers": 1, "features": 36, "heads": 3, "classes": 10}, "EXTENDED"),
    ("vit_b_16", {"size": 49, "layers": 1, "features": 36, "heads": 3, "classes": 10}, "BASIC"),
    ("mobilenet_v2", {"size": 49, "stacks": ((1, 16, 1, 1), (6, 24, 2, 2)), "classes": 10}, "EXTENDED"),
    ("efficientnet_b0", {"size": 49, "stages": ((1, 3, 1, 16, 1), (6, 5, 2, 24, 2)), "classes": 10}, "EXTENDED"),
]


@pytest.mark.parametrize(
    ("name", "variant", "level"),
    [OPTIMISED[0], *(pytest.param(*each, marks=pytest.mark.full_size) for each in OPTIMISED[1:])],
)
def test_files_that_onnxruntime_optimised_run_natively(
    name: str, variant: dict[str, Any], level: str, tmp_path: Path
) -> None:
    network = zoo.build(name, **variant)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    theirs = onnxruntime.InferenceSession(network.to_onnx().SerializeToString(), options)
    nodes = onnx.load(options.optimized_model_filepath).graph.node
    assert any(node.domain == "com.microsoft" for node in nodes) == (level == "EXTENDED")
    x = RNG.standard_normal(network.to_graph().shape("x"), np.float32)
    session = bl.load(options.optimized_model_filepath, tune="model")
    assert session.plan.plain_steps == ()
    [expected] = theirs.run(None, {"x": x})
    assert np.abs(session(x) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.filterwarnings("ignore::blocklayout.PlainKernelWarning")
def test_a_file_that_was_quantised_dynamically_computes_what_it_says(tmp_path: Path) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    b = bl.Builder()
    y = b.input("x", (1, 3, 6, 6)).conv(f(4, 3, 3, 3), f(4)).relu().flatten()
    b.output("y", y.gemm(f(5, 64), f(5), trans_b=True))
    onnx.save(b.to_onnx(), tmp_path / "net.onnx")
    quantization.quantize_dynamic(tmp_path / "net.onnx", tmp_path / "small.onnx")
    x = f(1, 3, 6, 6)
    [expected] = onnxruntime.InferenceSession(tmp_path / "small.onnx").run(None, {"x": x})
    actual = bl.load(tmp_path / "small.onnx", tune="model")(x)
    assert np.abs(actual - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("case", "error", "message"),
    [
        (("FusedConv", IMAGE, {"activation": "Softsign"}), UnsupportedError, "'activation' 'Softsign'"),
        (("FusedConv", IMAGE, {"activation": "Clip"}), UnsupportedError, r"'activation_params' \[\]"),
        (("FusedConv", IMAGE, {"activation": "Relu", "fancy": 1}), ModelError, "'fancy'"),
        (("FusedGemm", IMAGE, {"fancy": 1.0}), UnsupportedError, "'fancy'"),
        (("FusedMatMul", IMAGE[:2], {"fancy": 1}), UnsupportedError, "'fancy'"),
        (("BiasGelu", IMAGE[:1], {}), ModelError, "'bias' is missing"),
        (("Attention", QKV, {}), ModelError, "'num_heads' is missing"),
        (("Attention", QKV, {"num_heads": 5}), UnsupportedError, "'num_heads' is 5; it must divide 12"),
        (("Attention", QKV, {"num_heads": N, "do_rotary": 1}), UnsupportedError, "'do_rotary'"),
        (("Attention", [*QKV, i(2, B, 1, S, S)], {"num_heads": N}), UnsupportedError, "the mask has extents"),
        (("SkipLayerNormalization", WORDS, {}, (0, 1)), UnsupportedError, "output 1, 'out 1', is read"),
        (("QLinearSigmoid", [u8(2), step(1)], {}), ModelError, "missing"),
        (("Gelu", [f(2), f(2)], {}), ModelError, "2 inputs"),
        (("MatMulNBits", [f(2, 8), u8(4, 3), f(4)], {**OF_BITS, "bits": 3}), UnsupportedError, "'bits' is 3"),
        (("MatMulNBits", [f(2, 8), u8(4, 4), f(5)], OF_BITS), ModelError, "reshape"),
        (("Frobnicate", [f(2)], {}), UnsupportedError, r"com\.microsoft.*register"),
        (("Conv", IMAGE, {}, (0,), "com.microsoft.nchwc"), UnsupportedError, "ORT_ENABLE_EXTENDED"),
    ],
)
def test_each_is_refused_by_name_where_it_asks_for_more(
    case: tuple[Any, ...], error: type[BlockLayoutError], message: str
) -> None:
    model, _ = written(case)
    for info in model.graph.output:
        info.CopyFrom(helper.make_tensor_value_info(info.name, TensorProto.FLOAT, None))
    with pytest.raises(error, match=rf"node.*{case[0]}.*{message}"):
        read(model)
