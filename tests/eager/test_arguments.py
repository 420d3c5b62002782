"""Every argument of every function and method in turn replaced by what it cannot be: one error that names it."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import eager
from blocklayout.eager import backward
from blocklayout.eager.operands import READERS
from blocklayout.errors import BlockLayoutError
from blocklayout.operators import Operators

IMAGE, VECTOR = bl.ones((2, 16, 6, 5)), bl.ones((16,))
WEIGHTS = bl.ones((8, 16, 3, 3))
MAXIMA, INDICES = bl.max_pool_with_indices(bl.ones((2, 16, 6, 4)), 2)

USUAL: dict[str, Any] = {
    "x": IMAGE,
    "grad": IMAGE,
    "other": IMAGE,
    "source": IMAGE,
    "y": IMAGE,
    "tensors": [IMAGE, IMAGE],
    "weights": WEIGHTS,
    "exponent": 2.0,
    "slope": bl.ones((16, 1, 1)),
    **dict.fromkeys(("scale", "shift", "bias", "mean", "var", "variance"), VECTOR),
    "kernel": 2,
    "n_groups": 4,
    "groups": 4,
    "size": 5,
    "shape": (2, -1),
    "sizes": (8, 8),
    "starts": (1,),
    "ends": (3,),
    "pads": (0, 0, 1, 1, 0, 0, 1, 1),
    "scales": (1, 1, 2, 2),
    "dtype": "f32",
    "perm": (0, 2, 3, 1),
}
"""An argument that fits, by the name of its parameter."""

OWN: dict[str, dict[str, Any]] = {
    "conv_transpose": {"weights": bl.ones((16, 8, 3, 3))},
    "conv_transpose_weights": {"weights": bl.ones((16, 8, 3, 3))},
    "matmul": {"y": bl.ones((5, 7))},
    "gemm": {"x": bl.ones((4, 5)), "y": bl.ones((5, 7))},
    "layer_norm": {"scale": bl.ones((5,))},
    "squeeze": {"x": bl.ones((2, 1, 6, 5)), "axes": 1},
    "unsqueeze": {"axes": 1},
    "expand": {"x": bl.ones((2, 1, 6, 5)), "shape": (2, 16, 6, 5)},
    "slice": {"axes": (2,)},
    "slice_backward": {"grad": bl.ones((16, 2, 5)), "index": (1, slice(None), slice(2, 4))},
    "resize": {"scales": (1, 1, 2, 2)},
    "conv_backward": {"grad": bl.ones((2, 8, 4, 3))},
    "conv_backward_data": {"grad": bl.ones((2, 8, 4, 3))},
    "conv_backward_weights": {"grad": bl.ones((2, 8, 4, 3))},
    "inner_product": {"x": bl.ones((2, 16)), "weights": bl.ones((8, 16))},
    "inner_product_backward": {"grad": bl.ones((2, 8)), "x": bl.ones((2, 16)), "weights": bl.ones((8, 16))},
    "dropout3d": {"x": bl.ones((2, 16, 3, 2, 2))},
    "max_unpool": {"x": MAXIMA, "indices": INDICES},
    "max_pool_backward": {"grad": bl.ones((2, 16, 3, 2))},
    "average_pool_backward": {"grad": bl.ones((2, 16, 3, 2))},
    "global_average_pool_backward": {"grad": bl.ones((2, 16, 1, 1))},
}
"""Others, by function."""

WRONG: tuple[Any, ...] = (
    None,
    "nothing",
    b"",
    object(),
    {"a": 1},
    {1, 2},
    (),
    [None],
    ("a",),
    [[1], [2, 3]],
    -9,
    10**30,
    10**400,
    1.5,
    float("nan"),
    1j,
    (0, 0, 0),
    (1.5, 2.5),
    slice(3),
    int,
    len,
    iter((1, 2)),
    np.array(["a"]),
    np.array([object()]),
    np.ones((3, 3), np.complex64),
    np.ones((0, 3), np.float32),
    np.ones((2,) * 7, np.float32),
    bl.ones((3,)),
    bl.zeros((2, 16, 6, 5), "s8"),
    bl.MemoryDesc((2, 16, 6, 5)),
)
"""Of other types, ranks and extents; some of them fit here and there."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: function
    for module in (eager, backward)
    for name in module.__all__
    if inspect.isfunction(function := getattr(module, name))
}
VARIADIC = ("max", "min", "sum", "op")

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.BlockLayoutWarning")


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return [
        each
        for each in inspect.signature(function).parameters.values()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]


def fitting(name: str) -> dict[str, Any]:
    """Arguments that a function takes."""
    needed = [each.name for each in parameters_of(FUNCTIONS[name]) if each.default is each.empty]
    own = OWN.get(name, {})
    return {each: own[each] if each in own else USUAL[each] for each in needed} | own


def test_every_parameter_is_annotated_by_what_says_how_it_is_read() -> None:
    kinds = {*READERS, "Addend", "Exponent", "Comparand", "Any"}
    for name, definition in vars(Operators).items():
        if name[0] == "_" or not inspect.isfunction(definition):
            continue
        for each in list(inspect.signature(definition).parameters.values())[1:]:
            kind = str(each.annotation).removesuffix(" | None")
            assert kind in kinds, (name, each.name)
            assert each.name not in ("axes", "axis") or kind in ("Axes", "Axis"), name


def assert_named(call: Callable[[], Any], function: str, *arguments: str) -> bool:
    """That a call either succeeds, or fails by an error that names the function and the argument; whether it fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, of numbers that no type holds
        try:
            call()
        except BlockLayoutError as error:
            message = str(error)
            assert message.startswith(f"{function}: "), message
            assert any(argument in message for argument in arguments), message
            return True
    return False


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - set(VARIADIC)))
def test_each_argument_is_named_by_the_error_for_it(name: str) -> None:
    function, right = FUNCTIONS[name], fitting(name)
    function(**right)
    for parameter in parameters_of(function):
        refused = [
            assert_named(lambda: function(**(right | {parameter.name: wrong})), name, parameter.name, "grad has shape")  # noqa: B023 - called at once
            for wrong in WRONG
        ]
        assert sum(refused) > len(WRONG) // 2, parameter.name


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - set(VARIADIC)))
def test_swapped_arguments_are_named(name: str) -> None:
    function, right = FUNCTIONS[name], list(fitting(name).items())
    for place in range(len(right)):
        names = [each for each, _ in right]
        values = [each for _, each in right]
        turned = values[place:] + values[:place]
        assert_named(lambda: function(**dict(zip(names, turned, strict=True))), name, *names)  # noqa: B023 - called at once


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - set(VARIADIC)))
def test_missing_and_unknown_arguments_are_type_errors_that_name_the_function(name: str) -> None:
    function, right = FUNCTIONS[name], fitting(name)
    for parameter in parameters_of(function):
        if parameter.default is parameter.empty:
            fewer = {each: value for each, value in right.items() if each != parameter.name}
            with pytest.raises(TypeError, match=rf"{name}\(\) .*'{parameter.name}'"):
                function(**fewer)
    if name != "resize":  # which takes attributes of ONNX's
        with pytest.raises(TypeError, match=rf"{name}\(\) .*'unheard_of'"):
            function(**right, unheard_of=1)


@pytest.mark.parametrize("name", ["max", "min", "sum"])
def test_functions_of_any_number_of_tensors_name_them_by_their_place(name: str) -> None:
    function = FUNCTIONS[name]
    for wrong in WRONG:
        assert_named(lambda: function(IMAGE, wrong), name, "tensors[1]", "x_1")  # noqa: B023 - called at once
        assert_named(lambda: function(wrong, IMAGE), name, "tensors[0]", "x")  # noqa: B023 - called at once
    assert assert_named(function, name, "tensors")
    assert assert_named(lambda: function(1.0, 2.0), name, "tensors[0]")


def test_operators_by_name_name_their_inputs_and_attributes() -> None:
    for wrong in WRONG:
        assert assert_named(lambda: bl.op(wrong, IMAGE), str(wrong) if isinstance(wrong, str) else "op", "op")  # noqa: B023
        assert_named(lambda: bl.op("Softmax", wrong), "Softmax", "input 0", "x ", "first")  # noqa: B023 - called at once
        assert_named(lambda: bl.op("Add", IMAGE, wrong), "Add", "input 1", "x_1", "input size 1")  # noqa: B023 - called at once
        assert_named(lambda: bl.op("Softmax", IMAGE, axis=wrong), "Softmax", "axis")  # noqa: B023 - called at once
        assert_named(lambda: bl.op("Relu", IMAGE, n_outputs=wrong), "Relu", "n_outputs")  # noqa: B023
    assert assert_named(lambda: bl.op("Softmax", IMAGE, axes=1), "Softmax", "axes")


METHODS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "size": (IMAGE.size, {"dim": 1}),
    "stride": (IMAGE.stride, {"dim": 1}),
    "is_contiguous": (IMAGE.is_contiguous, {"memory_format": "nhwc"}),
    "to": (IMAGE.to, {"memory_format": "nhwc", "dtype": "f32"}),
    "contiguous": (IMAGE.contiguous, {"memory_format": "nhwc"}),
    "reorder": (IMAGE.reorder, {"layout": "nhwc", "threads": 1}),
    "clone": (IMAGE.clone, {"memory_format": "nhwc"}),
    "astype": (IMAGE.astype, {"dtype": "f32"}),
    "map": (IMAGE.map, {"f": np.abs}),
    "__getitem__": (IMAGE.__getitem__, {"index": 0}),
    "__setitem__": (IMAGE.clone().__setitem__, {"index": 0, "value": 1}),
    "empty": (bl.empty, {"shape": (2, 3), "dtype": "f32", "memory_format": "ab"}),
    "full": (bl.full, {"shape": (2, 3), "value": 1, "dtype": "f32", "memory_format": "ab"}),
    "full_like": (bl.full_like, {"source": IMAGE, "value": 1, "dtype": "f32", "memory_format": "nhwc"}),
    "from_array": (bl.from_array, {"source": IMAGE, "memory_format": "nhwc", "dtype": "f32"}),
    "as_tensor": (bl.as_tensor, {"source": IMAGE}),
    "bl.reorder": (bl.reorder, {"source": IMAGE, "layout": "nhwc", "threads": 1}),
}


@pytest.mark.parametrize("name", METHODS)
def test_tensors_refuse_by_errors_of_their_own(name: str) -> None:
    function, right = METHODS[name]
    function(**right)
    for argument, wrong in ((each, wrong) for each in right for wrong in WRONG):
        if argument == "f" and callable(wrong):
            continue  # what it raises is its own
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with suppress(BlockLayoutError):
                function(**(right | {argument: wrong}))
