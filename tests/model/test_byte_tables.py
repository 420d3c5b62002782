"""Functions between bytes and bytes become tables, which say of each byte what ONNX's reference does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.model import BuildValue, Graph, legalize, simplify

pytestmark = pytest.mark.skipif(not dnnl.has_native_executor(), reason="takes a compiler at installation")

NUMPY: dict[str, Any] = {"u8": np.uint8, "s8": np.int8}
SHAPE = (1, 5, 16, 16)  # each byte five times


def dequantized(x: BuildValue, scale: Any = 0.05, zero: int = 0, dtype: str = "u8") -> BuildValue:
    result: BuildValue = x.builder.op("DequantizeLinear", x, np.float32(scale), NUMPY[dtype](zero))
    return result


def quantized(x: BuildValue, scale: Any = 0.03, zero: int = 0, dtype: str = "u8") -> BuildValue:
    result: BuildValue = x.builder.op("QuantizeLinear", x, np.float32(scale), NUMPY[dtype](zero))
    return result


def through(x: BuildValue, scale: float = 0.03, zero: int = 0) -> BuildValue:
    return dequantized(quantized(x, scale, zero), scale, zero)


def network(body: Callable[[BuildValue], BuildValue], dtype: str = "u8", zero: int = 7) -> bl.Builder:
    b = bl.Builder(opset=21)
    b.output("y", body(dequantized(b.input("x", SHAPE, dtype), 0.05, zero, dtype)))
    return b


def types(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]


def check(b: bl.Builder, expected: list[str], layout: str = "auto") -> bl.Session:
    """The types of nodes after legalization, and that a session computes what the reference does, to the last byte."""
    graph = legalize(simplify(b.to_graph()))
    assert types(graph) == expected
    model = b.to_onnx()
    session = bl.load(model, layout=layout, tune="model")
    feed = {
        value.name: np.arange(np.prod(SHAPE))
        .astype(np.uint8)
        .view(NUMPY[graph.values[value.name].dtype])
        .reshape(SHAPE)
        for value in session.get_inputs()
    }
    wanted: Any = ReferenceEvaluator(model).run(None, feed)
    for got, reference in zip(session.run(None, feed), wanted, strict=True):
        np.testing.assert_array_equal(got, reference)
    return session


FUNCTIONS: dict[str, Callable[[BuildValue], BuildValue]] = {
    "HardSwish": lambda x: x.builder.op("HardSwish", x),
    "its parts": lambda x: x * (x + 3).clip(0, 6) / 6,
    "quantised parts": lambda x: through(x * through((x + 3).clip(0, 6), 6 / 255)) / 6,
    "SiLU": lambda x: x * through(x.sigmoid(), 1 / 255),
    "Div": lambda x: 6 / (x + 100),
    "Pow": lambda x: x.builder.op("Pow", x, np.float32(2)),
    "nothing": lambda x: x,
}


@pytest.mark.parametrize("layout", ["auto", "nhwc", "blocked", "plain"])
@pytest.mark.parametrize(("dtype", "zero"), [("u8", 7), ("s8", -3)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_one_tensor_is_a_table(name: str, dtype: str, zero: int, layout: str) -> None:
    session = check(network(lambda x: quantized(FUNCTIONS[name](x), 0.04, 3), dtype, zero), ["ByteTable"], layout)
    assert [step.spec.kind for step in session.plan.steps] == ["lookup"]
    again = bl.Plan.from_json(session.plan.to_json())
    assert again == session.plan


def test_what_quantises_in_between_and_is_read_by_others_is_a_table_too() -> None:
    b = bl.Builder(opset=21)
    x = dequantized(b.input("x", SHAPE, "u8"), 0.05, 7)
    inner = quantized(x.sigmoid(), 1 / 255)
    b.output("inner", inner)
    b.output("y", quantized(x * dequantized(inner, 1 / 255)))
    session = check(b, ["ByteTable", "ByteTable"])
    assert all(dict(step.spec.descs)["src"].dtype == "u8" for step in session.plan.steps)


def test_the_kernel_stands_for_all_that_are_gone() -> None:
    b = network(lambda x: quantized(x * x.sigmoid()))
    graph = legalize(simplify(b.to_graph()))
    [node] = graph.nodes
    assert {node.name, *node.absorbed} == {each.name for each in b.to_graph().nodes}


LEFT: dict[str, Callable[[BuildValue], BuildValue]] = {
    "of another": lambda x: x * dequantized(x.builder.input("z", SHAPE, "u8")),
    "of channels": lambda x: x * np.arange(1, 6, dtype=np.float32).reshape(5, 1, 1),
    "wider": lambda x: x.reshape((1, 5, 1, 256)) * dequantized(x.builder.input("z", (1, 5, 256, 1), "u8")),
    "moved": lambda x: x + x.transpose((0, 1, 3, 2)),
    "undefined": lambda x: x.builder.op("Log", x),
    "random": lambda x: x.builder.op("Bernoulli", x.sigmoid()),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_follows_from_more_than_one_byte_or_is_no_number_stays(name: str) -> None:
    with np.errstate(all="ignore"):
        graph = legalize(simplify(network(lambda x: quantized(LEFT[name](x))).to_graph()))
    assert "QuantizeLinear" in types(graph)
    assert "ByteTable" not in types(graph)


def test_without_an_executor_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dnnl, "has_native_executor", lambda: False)
    graph = legalize(simplify(network(lambda x: quantized(x.sigmoid())).to_graph()))
    assert types(graph) == ["DequantizeLinear", "Sigmoid", "QuantizeLinear"]
