"""Calls on Tensors inside of watched blocks: the losses that they raise for, and the steps that they took."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import blocklayout as bl

IMAGE = bl.ones((1, 16, 12, 12), memory_format=bl.channels_last)
WEIGHTS = np.ones((24, 16, 3, 3), np.float32)

# CPUs without AVX2 compute some of it in other layouts, and warn.
pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.contiguous(),
        lambda t: t.to(bl.contiguous_format),
        lambda t: t.clone(memory_format=bl.contiguous_format),
        lambda t: t.flatten(),
    ],
    ids=["contiguous", "to", "clone", "flatten"],
)
@pytest.mark.parametrize("memory_format", [bl.channels_last, "nChw8c"])
def test_going_to_row_major_is_a_loss(call: Callable[[Any], Any], memory_format: str) -> None:
    tensor = bl.ones((2, 16, 4, 5), memory_format=memory_format)
    with bl.watch("raise", only="loss") as seen, pytest.raises(bl.WatchError, match=r"loss in .*2x16x4x5"):
        call(tensor)
    [event] = seen
    assert event.inputs[0] == tensor.desc
    call(tensor)  # nothing remains switched on


def test_nothing_is_lost_where_nothing_moves_or_the_format_is_another() -> None:
    with bl.watch("raise", only="loss"):
        IMAGE.contiguous(bl.channels_last)
        IMAGE.to("nChw8c")
        bl.ones((2, 1, 4, 5), memory_format=bl.channels_last).contiguous()
        bl.ones((2, 3, 4, 5)).to(bl.channels_last).clone()


def test_plain_weights_are_no_loss() -> None:
    with bl.watch("record", only="loss") as lost:
        result = bl.conv(IMAGE, WEIGHTS, pads=1)
    assert result.memory_format == bl.channels_last
    if bl.dnnl.has_isa("avx2"):
        assert not len(lost)


def steps_of(call: Callable[[], object]) -> list[Any]:
    with bl.watch("record", steps=True) as seen:
        call()
    return [event for event in seen if event.kind == "step"]


def test_a_call_says_which_implementation_ran() -> None:
    steps = steps_of(lambda: bl.relu(IMAGE))
    [step] = [each for each in steps if each.primitive == "eltwise"]
    assert step.operator == "relu"
    assert ":" in step.implementation
    assert step.result.dims == step.inputs[0].dims == IMAGE.shape
    assert step.result.memory_format == IMAGE.memory_format
    assert step.ns > 0
    assert step.file == __file__


def test_a_call_that_was_made_before_says_it_too() -> None:
    bl.conv(IMAGE, WEIGHTS, pads=1)
    steps = steps_of(lambda: bl.conv(IMAGE, WEIGHTS, pads=1))
    assert [each.primitive for each in steps if each.primitive != "reorder"] == ["convolution"]
    assert not steps_of(lambda: bl.identity(IMAGE))


def test_gradients_say_it() -> None:
    grad = bl.ones((1, 24, 12, 12), memory_format=bl.channels_last)
    steps = steps_of(lambda: bl.conv_backward(grad, IMAGE, WEIGHTS, pads=1))
    primitives = {each.primitive for each in steps} - {"reorder"}
    assert primitives == {"convolution backward_data", "convolution backward_weights"}
    assert {each.operator for each in steps} == {"conv_backward"}
    [step] = steps_of(lambda: bl.relu_backward(IMAGE, IMAGE))
    assert (step.operator, step.primitive) == ("relu_backward", "eltwise backward_data")


def test_sessions_say_it() -> None:
    builder = bl.Builder()
    builder.output("y", builder.input("x", IMAGE.shape).conv(WEIGHTS, pads=1, name="first"))
    session = bl.load(builder)
    steps = steps_of(lambda: session(np.ones(IMAGE.shape, np.float32)))
    assert [each.operator for each in steps if each.primitive == "convolution"] == ["first (Conv)"]


def test_what_no_primitive_computes_says_that() -> None:
    with pytest.warns(bl.PlainKernelWarning):
        [step] = [each for each in steps_of(lambda: bl.op("Det", bl.ones((2, 3, 3)))) if each.primitive == "plain"]
    assert step.operator == "Det"


def test_nobody_asks_for_steps_by_default() -> None:
    with bl.watch("record") as seen:
        bl.relu(IMAGE)
    assert all(event.kind != "step" for event in seen)
