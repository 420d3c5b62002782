"""Functions of bytes that write bytes, by one primitive each, against ONNX's reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout.ir import BYTES, Wish
from blocklayout.layout import MemoryDesc
from blocklayout.model import BuildValue, to_model
from blocklayout.model.lowering import lower
from blocklayout.plan.candidates.recipes import TileRecipes
from blocklayout.plan.candidates.tiles import Tile, fuse
from tests.ops.harness import packed, poisoned, run_step

Body = Callable[..., BuildValue]
Scheme = tuple[str, int]
IMAGE = (2, 16, 3, 5)
SCHEMES: list[Scheme] = [("u8", 0), ("u8", 131), ("s8", 0), ("s8", -7)]
SCALE, SCALE_OF_RESULT = np.float32(1 / 32), np.float32(0.05)
NUMPY = {"u8": np.uint8, "s8": np.int8}
LAYOUTS = ("channels_last", "plain", "blocked8", "blocked16")


def function(op_type: str, *constants: Any, **attrs: Any) -> Body:
    return lambda x: x.builder.op(op_type, x, *constants, **attrs)


FUNCTIONS: dict[str, Body] = {
    **{name: function(name) for name in ("Abs", "Exp", "HardSigmoid", "HardSwish", "Mish", "Neg", "Relu", "Round")},
    **{name: function(name) for name in ("Sigmoid", "Softplus", "Tanh", "Elu", "LeakyRelu", "Gelu")},
    "Log": lambda x: (x.abs() + np.float32(0.1)).log(),
    "Sqrt": lambda x: x.abs().sqrt(),
    "Gelu by tanh": function("Gelu", approximate="tanh"),
    "Pow": function("Pow", np.float32(2)),
    "Clip": function("Clip", np.float32(-0.5), np.float32(0.7)),
    "a number less": lambda x: x - np.float32(0.5),
    "of a number": lambda x: np.float32(0.5) - x,
    "several": lambda x: (x + np.float32(3)).clip(0, 6) * np.float32(1 / 6),
}
MEANS: dict[str, Body] = {
    "global": function("GlobalAveragePool"),
    "windows": function("AveragePool", kernel_shape=[3, 2], strides=[2, 1]),
    "uncounted pads": function("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "counted pads": function("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    "rectified": lambda x: x.global_average_pool().relu(),
}


def tile_of(
    body: Body, shapes: Iterable[tuple[int, ...]], schemes: Iterable[Scheme], result: Scheme
) -> tuple[Any, Tile]:
    """The model of a function of quantised inputs, whose result is quantised; and the tile that it is."""
    b = bl.Builder(opset=20)
    read = []
    for index, (shape, (dtype, zero)) in enumerate(zip(shapes, schemes, strict=True)):
        given = b.input(f"x{index}", shape, dtype)
        read.append(b.op("DequantizeLinear", given, SCALE, NUMPY[dtype](zero)))
    dtype, zero = result
    b.output("y", b.op("QuantizeLinear", body(*read), SCALE_OF_RESULT, NUMPY[dtype](zero)))
    graph = b.to_graph()
    [tile] = [tile for tile in fuse(lower(graph), "f32", 1) if not tile.is_view]
    return to_model(graph), tile


def check(body: Body, shapes: Iterable[tuple[int, ...]], schemes: Iterable[Scheme], result: Scheme) -> set[str]:
    """The layouts in which one primitive that is no reference computes it, to one quantum.

    A row that is broadcast may be copied before.
    """
    shapes, schemes = tuple(shapes), tuple(schemes)
    model, tile = tile_of(body, shapes, schemes, result)
    assert tile.takes_bytes
    rng, feeds = np.random.default_rng(2), {}
    for index, (shape, (dtype, _)) in enumerate(zip(shapes, schemes, strict=True)):
        limits = np.iinfo(NUMPY[dtype])
        given = rng.integers(limits.min, limits.max, shape, limits.dtype, endpoint=True)
        feeds[f"x{index}"] = np.where(given == 0, given.dtype.type(1), given)  # some divide by it
    results: Any = ReferenceEvaluator(model).run(None, feeds)
    found = set()
    for layout in LAYOUTS:
        for candidate in TileRecipes(tile, BYTES, 1).wished(Wish(layout, layout)):
            if candidate.is_reference or candidate.dst.dtype not in NUMPY:
                continue
            assert len(candidate.steps) == 1 + len(candidate.temporaries)
            dst = candidate.dst
            assert isinstance(dst, MemoryDesc)
            buffers = {"dst": (dst, poisoned(dst))}
            for (operand, desc), given in zip(candidate.sources, feeds.values(), strict=True):
                assert isinstance(desc, MemoryDesc)
                buffers[operand] = desc, packed(desc, given)
            buffers |= {name: (desc, packed(desc, tile.constants[name].array)) for name, desc in candidate.constants}
            buffers |= {name: (desc, poisoned(desc)) for name, desc in candidate.temporaries}
            for each in candidate.steps:
                run_step(each, {}, buffers, frozenset(buffers))
            actual = dst.unpack(buffers["dst"][1])
            assert np.abs(actual.astype(np.int32) - results[0].astype(np.int32)).max() <= 1
            found.add(layout)
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_read_and_write_bytes(name: str, scheme: Scheme) -> None:
    for result in (("u8", 9), ("s8", 0)):
        assert check(FUNCTIONS[name], [IMAGE], [scheme], result) == {*LAYOUTS}


def test_padding_is_never_computed_with() -> None:
    assert check(FUNCTIONS["Sigmoid"], [(2, 17, 3, 5)], [("u8", 3)], ("u8", 0)) == {"channels_last", "plain"}


def test_functions_of_bytes_that_make_numbers_have_no_primitive() -> None:
    b = bl.Builder(opset=20)
    b.output("y", b.op("DequantizeLinear", b.input("x", IMAGE, "u8"), SCALE, np.uint8(3)).sigmoid())
    [tile] = [tile for tile in fuse(lower(b.to_graph()), "f32", 1) if not tile.is_view]
    assert not list(TileRecipes(tile, BYTES, 1).wished(Wish("plain", "plain")))


PAIRS: dict[str, tuple[Body, list[tuple[Scheme, Scheme]]]] = {
    "Add": (lambda x, y: x + y, [(first, second) for first in SCHEMES for second in SCHEMES]),
    "Sub": (lambda x, y: x - y, [(first, second) for first in SCHEMES for second in SCHEMES]),
    "Mul": (
        lambda x, y: x * y,
        [(first, second) for first in SCHEMES for second in SCHEMES if 0 in (first[1], second[1])],
    ),
    "Div": (lambda x, y: x / y, [(first, second) for first in SCHEMES for second in SCHEMES if not second[1]]),
    "Max": (lambda x, y: x.builder.op("Max", x, y), [(("u8", 0), ("s8", 0))]),
    "rectified": (lambda x, y: (x + y).relu(), [(("u8", 3), ("u8", 3))]),
    "product": (lambda x, y: (x * y).sigmoid(), [(("u8", 3), ("u8", 0))]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_functions_of_two_read_and_write_bytes(name: str) -> None:
    body, schemes = PAIRS[name]
    for pair in schemes:
        for result in (("u8", 9), ("s8", 0)):
            assert check(body, [IMAGE, IMAGE], pair, result) == {*LAYOUTS}


@pytest.mark.parametrize("schemes", [(("u8", 0), ("u8", 0)), (("u8", 3), ("u8", 0)), (("s8", 0), ("u8", 5))])
@pytest.mark.parametrize("shape", [(1, 16, 1, 1), (1, 1, 1, 1)])
@pytest.mark.parametrize("name", ["Add", "Mul"])
def test_the_second_of_two_may_be_broadcast(name: str, shape: tuple[int, ...], schemes: tuple[Scheme, Scheme]) -> None:
    image = (1, 16, 20, 40)  # more pixels than copies of a row
    for shapes, given in (((image, shape), schemes), ((shape, image), schemes[::-1])):
        if name == "Mul" and schemes[1][1]:  # the shifted source is the one that is broadcast
            assert check(PAIRS[name][0], shapes, given, ("u8", 9)) == set()
        else:
            assert check(PAIRS[name][0], shapes, given, ("u8", 9)) >= {"channels_last"}


def test_images_have_scales_of_their_own() -> None:
    body, _ = PAIRS["Mul"]
    shapes = [IMAGE, (2, 16, 1, 1)]
    assert check(body, shapes, [("u8", 0), ("u8", 0)], ("u8", 9)) >= {"channels_last"}


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("shape", [(16, 1, 1), (1,)])
def test_constants_stay_real_numbers(name: str, shape: tuple[int, ...]) -> None:
    constant = np.linspace(0.5, 3, 16 if shape[0] == 16 else 1, dtype=np.float32).reshape(shape)
    for scheme in SCHEMES:
        found = check(lambda x: PAIRS[name][0](x, constant), [(1, 16, 3, 5)], [scheme], ("u8", 9))
        assert found >= {"channels_last"}


def test_constants_of_bytes_are_real_numbers() -> None:
    known = np.arange(16, dtype=np.uint8).reshape(1, 16, 1, 1)

    def body(x: BuildValue) -> BuildValue:
        constant = x.builder.op("DequantizeLinear", known, SCALE, np.uint8(3))
        result: BuildValue = constant * x
        return result

    assert check(body, [(1, 16, 3, 5)], [("u8", 3)], ("u8", 9)) >= {"channels_last"}


@pytest.mark.parametrize("name", MEANS)
def test_means_of_bytes_are_bytes(name: str) -> None:
    for scheme in SCHEMES:
        for zero in (9, 0):
            result = scheme[0], zero
            is_shifted = name == "counted pads" and scheme[1]
            assert check(MEANS[name], [IMAGE], [scheme], result) == (set() if is_shifted else {"channels_last"})


@pytest.mark.parametrize(
    "body",
    [
        function("MaxPool", kernel_shape=[2, 2]),
        function(
            "AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 0], ceil_mode=1, count_include_pad=1
        ),
    ],
)
def test_other_windows_of_bytes_have_no_primitive(body: Body) -> None:
    assert check(body, [IMAGE], [("u8", 0)], ("u8", 9)) == set()


def test_a_product_behind_a_product_is_a_step_of_its_own() -> None:
    vector = np.arange(1, IMAGE[1] + 1, dtype=np.float32).reshape(1, -1, 1, 1) / 16
    check(lambda x, y: x * y * vector, [IMAGE, IMAGE], [("u8", 0), ("u8", 0)], ("u8", 9))
