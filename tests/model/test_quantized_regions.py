"""Regions of bytes: which nodes read bytes, and that the results are those of the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.model import BuildValue, Graph, simplify, to_model

OPSET = 21
SCALE = np.float32(0.05)
SCHEMES = [("u8", 0), ("u8", 131), ("s8", 0), ("s8", -7)]
NUMPY = {"u8": np.uint8, "s8": np.int8}
Body = Callable[[BuildValue], BuildValue]


def dequantized(x: BuildValue, zero: int = 0, scale: Any = SCALE, **attrs: Any) -> BuildValue:
    result: BuildValue = x.builder.op("DequantizeLinear", x, scale, NUMPY[x.dtype](zero), **attrs)
    return result


def quantized(x: BuildValue, dtype: str = "u8", zero: int = 0, scale: Any = SCALE) -> BuildValue:
    result: BuildValue = x.builder.op("QuantizeLinear", x, scale, NUMPY[dtype](zero))
    return result


def network(body: Body, dtype: str = "u8", zero: int = 0, *, is_requantized: bool = False, opset: int = OPSET) -> Graph:
    b = bl.Builder(opset=opset)
    y = body(dequantized(b.input("x", (2, 4, 6, 6), dtype), zero))
    b.output("y", quantized(y, dtype, zero) if is_requantized else y)
    return b.to_graph()


def run(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    feed = {}
    for name in graph.inputs:
        value = graph.values[name]
        limits = np.iinfo(NUMPY[value.dtype]) if value.dtype in NUMPY else None
        feed[name] = (
            rng.standard_normal(value.shape, np.float32) * 9
            if limits is None
            else rng.integers(limits.min, limits.max, value.shape, limits.dtype, endpoint=True)
        )
    results: Any = ReferenceEvaluator(to_model(graph)).run(None, feed)
    return list(results)


def types(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]


def changed(graph: Graph) -> list[str]:
    """The types of nodes after the passes, whose results are those of before."""
    after = simplify(graph)
    for expected, actual in zip(run(graph), run(after), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)
    return types(after)


def split(x: BuildValue) -> BuildValue:
    first, second = x.builder.op("Split", x, n_outputs=2, num_outputs=2, axis=1)
    return x.builder.concat([second, first], 2)


def resize(x: BuildValue, **attrs: Any) -> BuildValue:
    result: BuildValue = x.builder.op("Resize", x, None, np.array([1, 1, 2, 2], np.float32), **attrs)
    return result


NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
PADS = np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)

MOVES: dict[str, Body] = {
    "Reshape": lambda x: x.reshape((2, -1)),
    "Flatten": lambda x: x.flatten(),
    "Unsqueeze": lambda x: x.builder.op("Unsqueeze", x, [1]),
    "Transpose": lambda x: x.transpose((0, 2, 3, 1)),
    "shuffle": lambda x: x.reshape((2, 2, 2, 6, 6)).transpose((0, 2, 1, 3, 4)).reshape((2, 4, 6, 6)),
    "Slice": lambda x: x.slice([1], [3], [1]),
    "steps": lambda x: x.builder.op("Slice", x, [1], [6], [2], [2]),
    "Split": split,
    "Gather": lambda x: x.builder.op("Gather", x, np.array([2, 0, 0], np.int64), axis=1),
    "Expand": lambda x: x.builder.op("Expand", x.slice([1], [2], [1]), np.array([2, 4, 6, 6], np.int64)),
    "Tile": lambda x: x.builder.op("Tile", x, np.array([1, 2, 1, 1], np.int64)),
    "DepthToSpace": lambda x: x.builder.op("DepthToSpace", x, blocksize=2),
    "SpaceToDepth": lambda x: x.builder.op("SpaceToDepth", x, blocksize=2),
    "MaxPool": lambda x: x.max_pool(3, strides=2, pads=1),
    "Resize": lambda x: resize(x, **NEAREST),
    "Concat": lambda x: x.builder.concat([x, x.transpose((0, 1, 3, 2))], 1),
    "constant": lambda x: x.builder.concat([x, np.full((2, 1, 6, 6), np.float32(4) * SCALE)], 1),
    "Pad": lambda x: x.builder.op("Pad", x, PADS),
    "Pad by 3": lambda x: x.builder.op("Pad", x, PADS, np.float32(3) * SCALE),
    "edge": lambda x: x.builder.op("Pad", x, PADS, mode="edge"),
}


@pytest.mark.parametrize("is_requantized", [False, True])
@pytest.mark.parametrize(("dtype", "zero"), SCHEMES)
@pytest.mark.parametrize("name", MOVES)
def test_what_only_moves_elements_reads_bytes(name: str, dtype: str, zero: int, *, is_requantized: bool) -> None:
    graph = network(MOVES[name], dtype, zero, is_requantized=is_requantized)
    found = changed(graph)
    assert found.count("DequantizeLinear") == (not is_requantized)
    assert "QuantizeLinear" not in found
    assert is_requantized or found[-1] == "DequantizeLinear"


@pytest.mark.filterwarnings("ignore::blocklayout.PlainKernelWarning")
@pytest.mark.parametrize(("dtype", "zero"), SCHEMES[1:3])
@pytest.mark.parametrize("name", MOVES)
def test_plans_compute_the_same_on_bytes(name: str, dtype: str, zero: int) -> None:
    graph = network(MOVES[name], dtype, zero)
    limits = np.iinfo(NUMPY[dtype])
    x = np.random.default_rng(1).integers(limits.min, limits.max, (2, 4, 6, 6), limits.dtype, endpoint=True)
    expected: Any = ReferenceEvaluator(to_model(graph)).run(None, {"x": x})
    np.testing.assert_array_equal(bl.load(to_model(graph), tune="model")(x), expected[0])


STAYS: dict[str, Body] = {
    "Resize": lambda x: resize(x, mode="linear"),
    "AveragePool": lambda x: x.average_pool(2),
    "Pad by a fraction": lambda x: x.builder.op("Pad", x, PADS, np.float32(0.07)),
    "Pad out of range": lambda x: x.builder.op("Pad", x, PADS, np.float32(400)),
    "Concat": lambda x: x.builder.concat([x, x.builder.input("other", (2, 1, 6, 6))], 1),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_makes_other_numbers_reads_numbers(name: str) -> None:
    graph = network(STAYS[name])
    assert types(simplify(graph)) == types(graph)


def test_a_maximum_reads_numbers_where_the_operator_set_has_it_of_no_bytes() -> None:
    assert types(simplify(network(MOVES["MaxPool"], opset=11))) == ["DequantizeLinear", "MaxPool"]
    assert types(simplify(network(MOVES["MaxPool"], opset=12))) == ["MaxPool", "DequantizeLinear"]


def two(first: Any, second: Any, dtypes: tuple[str, str] = ("u8", "u8")) -> list[str]:
    b = bl.Builder(opset=OPSET)
    scales = [scale if isinstance(scale, BuildValue) else np.float32(scale) for scale, _ in (first, second)]
    parts = [
        dequantized(b.input(f"x{index}", (1, 2, 4, 4), dtype), zero, scale)
        for index, (dtype, scale, (_, zero)) in enumerate(zip(dtypes, scales, (first, second), strict=True))
    ]
    b.output("y", b.concat(parts, 1))
    return changed(b.to_graph())


def test_only_numbers_of_one_scheme_are_bytes_side_by_side() -> None:
    assert two((0.1, 3), (0.1, 3)) == ["Concat", "DequantizeLinear"]
    for other in ((0.2, 3), (0.1, 4)):
        assert two((0.1, 3), other)[-1] == "Concat"
    assert two((0.1, 3), (0.1, 3), ("u8", "s8"))[-1] == "Concat"


def test_scales_at_run_time_and_of_channels_stay_where_they_are() -> None:
    b = bl.Builder(opset=OPSET)
    x, scale = b.input("x", (1, 2, 4, 4), "u8"), b.input("scale", ())
    b.output("y", b.op("DequantizeLinear", x, scale).transpose((0, 2, 3, 1)))
    b.output("z", b.op("DequantizeLinear", x, np.array([0.1, 0.2], np.float32), axis=1).transpose((0, 2, 3, 1)))
    after = simplify(b.to_graph())
    assert all(node.inputs[0] != "x" for node in after.nodes if node.op_type == "Transpose")


def test_numbers_with_several_readers_stay_beside_bytes() -> None:
    b = bl.Builder(opset=OPSET)
    y = dequantized(b.input("x", (1, 2, 4, 4), "u8"))
    b.output("y", y)
    b.output("z", quantized(y.max_pool(2)))
    b.output("mean", y.average_pool(2))
    assert changed(b.to_graph()) == ["DequantizeLinear", "MaxPool", "AveragePool"]


def test_bytes_of_other_schemes_are_made_of_numbers() -> None:
    for scale, zero, dtype in ((0.06, 0, "u8"), (SCALE, 1, "u8"), (SCALE, 0, "s8")):
        graph = network(lambda x, s=scale, z=zero, d=dtype: quantized(x.max_pool(2), d, z, np.float32(s)))  # type: ignore[misc]
        assert changed(graph) == ["MaxPool", "DequantizeLinear", "QuantizeLinear"]


def test_padding_between_bytes_goes_into_the_convolution() -> None:
    weights = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32)

    def padded(x: BuildValue) -> BuildValue:
        return dequantized(quantized(x.builder.op("Pad", x, PADS), zero=131), 131).conv(weights)

    assert types(simplify(network(padded, zero=131))) == ["DequantizeLinear", "Conv"]


# --- averages of what is scaled


def averaged(scaled: Body, *, is_quantized: bool = True, is_seen: bool = False) -> Graph:
    """Numbers times a constant, quantised by themselves as well as in their average."""
    b = bl.Builder(opset=OPSET)
    x = scaled(dequantized(b.input("x", (2, 4, 5, 7), "u8"), 3))
    average = x.global_average_pool()
    b.output("x6", quantized(x, zero=3, scale=np.float32(0.01)))
    b.output("average", quantized(average, zero=5, scale=np.float32(0.007)) if is_quantized else average)
    if is_seen:
        b.output("seen", average)
    return b.to_graph()


@pytest.mark.parametrize("scaled", [lambda x: x / 6, lambda x: x * np.float32(0.125)])
def test_bytes_are_averaged_in_place_of_their_multiples(scaled: Body) -> None:
    graph = averaged(scaled)
    after = simplify(graph)
    pooling = next(node for node in after.nodes if node.op_type == "GlobalAveragePool")
    assert after.producers()[pooling.inputs[0]].op_type == "DequantizeLinear"
    for expected, actual in zip(run(graph), run(after), strict=True):
        assert np.abs(actual.astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize(
    ("scaled", "options"),
    [
        (lambda x: x / np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1), {}),
        (lambda x: x * 0, {}),
        (lambda x: x + 6, {}),
        (lambda x: x / 6, {"is_quantized": False}),
        (lambda x: x / 6, {"is_seen": True}),
    ],
    ids=["channels", "zero", "sum", "numbers", "output"],
)
def test_other_averages_stay_behind(scaled: Body, options: dict[str, bool]) -> None:
    after = simplify(averaged(scaled, **options))
    pooling = next(node for node in after.nodes if node.op_type == "GlobalAveragePool")
    assert after.producers()[pooling.inputs[0]].op_type in ("Mul", "Div", "Add")


# --- quantising before what moves


def raised(body: Body, *others: Body, zero: int = 0) -> list[str]:
    """The types of nodes of a network that makes numbers, moves them and quantises the result."""
    b = bl.Builder(opset=OPSET)
    y = b.input("x", (2, 4, 6, 6)).sigmoid() * 12
    b.output("y", quantized(body(y), zero=zero))
    for index, other in enumerate(others):
        b.output(f"other{index}", other(y))
    return changed(b.to_graph())


@pytest.mark.parametrize("zero", [0, 7])
@pytest.mark.parametrize("name", [name for name in MOVES if name != "Concat"])
def test_numbers_are_quantised_before_they_are_moved(name: str, zero: int) -> None:
    found = raised(MOVES[name], zero=zero)
    assert found[:3] == ["Sigmoid", "Mul", "QuantizeLinear"]
    assert not {"DequantizeLinear", "QuantizeLinear"} & {*found[3:]}


def test_numbers_that_others_read_are_moved_as_they_are() -> None:
    assert raised(lambda x: x.max_pool(2), lambda x: x.average_pool(2))[-2:] == ["QuantizeLinear", "AveragePool"]


def test_a_clip_before_what_moves_goes_too() -> None:
    assert raised(lambda x: (x - 3).relu().max_pool(2).flatten())[-3:] == ["QuantizeLinear", "MaxPool", "Flatten"]


def test_bytes_side_by_side_are_brought_to_one_scheme_before() -> None:
    b = bl.Builder(opset=OPSET)
    parts = [dequantized(b.input(f"x{zero}", (1, 2, 4, 4), "u8"), zero) for zero in (0, 3)]
    b.output("y", quantized(b.concat([*parts, np.full((1, 1, 4, 4), 0.07, np.float32)], 1), zero=3))
    assert changed(b.to_graph()) == ["DequantizeLinear", "QuantizeLinear", "Concat"]


@pytest.mark.parametrize("has_executor", [True, False])
def test_bytes_are_left_to_a_primitive_that_brings_them_to_one_scheme(
    monkeypatch: pytest.MonkeyPatch, *, has_executor: bool
) -> None:
    monkeypatch.setattr(dnnl, "has_native_executor", lambda: has_executor)
    b = bl.Builder(opset=OPSET)
    parts = [dequantized(b.input(f"x{zero}", (1, 2, 4, 4), "u8"), zero) for zero in (0, 3)]
    parts.append(b.input("numbers", (1, 2, 4, 4)).sigmoid())
    b.output("y", quantized(b.concat(parts, 1), zero=5))
    found = changed(b.to_graph())
    if has_executor:  # numbers are quantised before, since they are none of bytes
        expected = ["DequantizeLinear"] * 2 + [
            "Sigmoid",
            "QuantizeLinear",
            "DequantizeLinear",
            "Concat",
            "QuantizeLinear",
        ]
    else:
        expected = ["DequantizeLinear", "QuantizeLinear"] * 2 + ["Sigmoid", "QuantizeLinear", "Concat"]
    assert sorted(found) == sorted(expected)
    assert found[-1] == expected[-1]


# --- clips


def clips(body: Body, *, zero: int = 0, scale: float = 0.1) -> list[str]:
    b = bl.Builder(opset=OPSET)
    b.output("y", quantized(body(b.input("x", (2, 4, 6, 6)).sigmoid() * 60 - 20), "u8", zero, np.float32(scale)))
    return changed(b.to_graph())


@pytest.mark.parametrize(
    ("body", "zero", "scale", "goes"),
    [
        (lambda x: x.relu(), 0, 0.1, True),
        (lambda x: x.relu(), 3, 0.1, False),
        (lambda x: x.clip(0, 6), 0, 6 / 255, True),
        (lambda x: x.clip(0, 6), 0, 7 / 255, False),
        (lambda x: x.clip(-1, 30), 10, 0.1, True),
        (lambda x: x.clip(-0.8, 30), 10, 0.1, False),
        (lambda x: x.clip(-30, 10), 0, 0.1, False),
    ],
)
def test_a_clip_goes_where_quantising_saturates_there(body: Body, zero: int, scale: float, *, goes: bool) -> None:
    found = clips(body, zero=zero, scale=scale)
    assert bool({"Relu", "Clip"} & {*found}) != goes


@pytest.mark.parametrize(
    ("body", "zero", "goes"),
    [
        (lambda x: x.relu(), 0, True),
        (lambda x: x.max_pool(2).relu(), 0, True),
        (lambda x: x.relu(), 1, False),
        (lambda x: x.clip(0, 13), 0, True),
        (lambda x: x.clip(0, 12), 0, False),
    ],
)
def test_a_clip_goes_that_no_byte_reaches(body: Body, zero: int, *, goes: bool) -> None:
    assert bool({"Relu", "Clip"} & {*changed(network(body, zero=zero))}) != goes


def test_a_clip_stays_that_others_see() -> None:
    b = bl.Builder(opset=OPSET)
    y = b.input("x", (2, 4)).relu()
    b.output("y", quantized(y))
    b.output("z", y.sigmoid())
    assert changed(b.to_graph())[0] == "Relu"
