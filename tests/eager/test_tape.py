"""The tape: what it records and keeps, its answers, and its errors."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.recording import Entry, recording
from tests.dnnl.running import assert_padding_is_zero
from tests.eager.gradients import LAYOUTS, Array, in_layout, random

DIMS = (2, 18, 6, 5)


class Pair(NamedTuple):
    first: Any
    second: Any


def ones(*dims: int) -> bl.Tensor:
    return bl.ones(dims)


# --- answers


def test_gradients_come_in_the_structure_of_the_parameters() -> None:
    x, y = bl.full((3,), 2), bl.full((3,), 5)
    with bl.record() as tape:
        loss = (x * y).sum()
    found = tape.gradients(loss, {"a": [x, (y,)], "b": Pair(y, x)})
    assert found["a"][0].numpy().tolist() == [5, 5, 5]
    assert found["a"][1][0].numpy().tolist() == [2, 2, 2]
    assert isinstance(found["b"], Pair)
    assert found["b"].second.numpy().tolist() == [5, 5, 5]
    assert tape.gradients(loss, x).numpy().tolist() == [5, 5, 5]


def test_a_loss_of_any_shape_has_a_gradient_of_its_own() -> None:
    x = bl.full((2, 3), 2)
    with bl.record() as tape:
        y = x * x
    assert tape.gradients(y, x).numpy().tolist() == [[4] * 3] * 2
    assert tape.gradients(y, x, grad=np.array([[1, 2, 3], [0, 0, 0]], np.float32)).numpy().tolist() == [
        [4, 8, 12],
        [0, 0, 0],
    ]


def test_a_value_that_is_used_several_times_gets_the_sum() -> None:
    x = bl.full((3,), 2)
    with bl.record() as tape:
        y = x * x
        loss = (y * y + y + x).sum()
    assert tape.gradients(loss, [x, y])[0].numpy().tolist() == [4 * 8 + 4 + 1] * 3
    assert tape.gradients(loss, [x, y])[1].numpy().tolist() == [9] * 3


def test_in_the_block_behind_it_and_again() -> None:
    x = bl.full((3,), 2)
    with bl.record() as tape:
        loss = (x * x).sum()
        first = tape.gradients(loss, x)
        other = loss * 3
    for again in (tape.gradients(loss, x), tape.gradients(loss, x)):
        assert again.numpy().tolist() == first.numpy().tolist() == [4] * 3
    assert tape.gradients(other, x).numpy().tolist() == [12] * 3


def test_where_the_slope_is_0_everywhere_so_is_the_gradient() -> None:
    x = in_layout(random(*DIMS), "blocked8")
    with bl.record() as tape:
        loss = (bl.round(x) + (x > 0).astype("f32")).sum() + x.astype("s32").astype("f32").sum()
    found = tape.gradients(loss, x)
    assert found.desc == x.desc
    assert not found.numpy().any()


def test_functions_of_functions() -> None:
    def fn(weights: Any, x: Any, factor: float, *, shift: float) -> Any:
        return (weights["w"] * x * factor + shift).sum()

    w, x = {"w": bl.full((3,), 2)}, bl.full((3,), 5)
    assert bl.grad(fn)(w, x, 2.0, shift=1.0)["w"].numpy().tolist() == [10] * 3
    value, (of_x, of_w) = bl.value_and_grad(fn, (1, 0))(w, x, 2.0, shift=1.0)
    assert value.item() == 63
    assert of_x.numpy().tolist() == [4] * 3
    assert of_w["w"].numpy().tolist() == [10] * 3
    first, second = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    assert bl.grad(fn)({"w": first}, second, 1.0, shift=0.0)["w"].numpy().tolist() == [3, 4]
    with pytest.raises(bl.InputError, match=r"^grad: argnums is 4; 3 arguments"):
        bl.grad(fn, 4)(w, x, 2.0, shift=1.0)
    with pytest.raises(bl.InputError, match=r"^grad: argnums is 'x'"):
        bl.grad(fn, "x")  # type: ignore[arg-type]
    with pytest.raises(bl.InputError, match="must return a Tensor of one element"):
        bl.grad(lambda x: x * 2)(x)


@given(st.data())
def test_broadcasting(data: st.DataObject) -> None:
    shapes = data.draw(mutually_broadcastable_shapes(num_shapes=2, min_dims=1, max_dims=4, min_side=1, max_side=4))
    name = data.draw(st.sampled_from(("add", "sub", "mul", "div")))
    (first, second), dims = shapes.input_shapes, shapes.result_shape
    a, b, upstream = random(*first), random(*second, seed=1), random(*dims, seed=2)
    x, y = bl.from_array(a), bl.from_array(b)
    with bl.record() as tape:
        result = getattr(bl, name)(x, y)
    expected = {
        "add": (upstream, upstream),
        "sub": (upstream, -upstream),
        "mul": (upstream * b, upstream * a),
        "div": (upstream / b, -upstream * a / b**2),
    }
    for got, full, shape in zip(
        tape.gradients(result, (x, y), grad=upstream), expected[name], (first, second), strict=True
    ):
        wide = (1,) * (len(dims) - len(shape)) + shape
        axes = tuple(dim for dim, extent in enumerate(wide) if extent != dims[dim])
        np.testing.assert_allclose(got.numpy(), full.sum(axes, keepdims=True).reshape(shape), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(dnnl.missing_isa("bf16") is not None, reason="this CPU does not compute in bf16")
def test_gradients_have_the_data_types_of_their_values() -> None:
    x = bl.reorder(random(2, 32, 6, 5), "nChw16c").astype("bf16")
    w, bias, scale = bl.as_tensor(random(32, 32, 3, 3, seed=1)).astype("bf16"), bl.zeros((32,), "bf16"), bl.ones((32,))
    with bl.record() as tape:
        y = bl.batch_norm_training(bl.conv(x, w, bias, pads=1), scale, bl.zeros((32,))).y
        loss = bl.relu(y).astype("f32").mean()
    assert [each.dtype for each in tape.gradients(loss, (x, w, bias, scale))] == ["bf16", "bf16", "bf16", "f32"]


# --- layouts


@pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_but_weights_is_reordered_in_a_second_step(layout: str) -> None:
    if not bl.dnnl.has_isa("avx512_core" if "16" in layout else "avx2") and layout.startswith("blocked"):
        pytest.skip("this CPU computes such blocks in other layouts")
    x, scale, shift = in_layout(random(4, 16, 8, 8), layout), bl.ones((16,)), bl.zeros((16,))
    packed = [
        bl.conv_weights(x, random(16, 16, k, k, seed=k) / 10, pads=k // 2, memory_format=x.memory_format)
        for k in (3, 3, 1)
    ]
    learned: Any = {"convs": packed, "scale": scale, "shift": shift, "head": bl.as_tensor(random(10, 32, 1, 1))}
    optimizer = bl.optim.SGD(learned, 0.01, momentum=0.9)

    def step() -> float:
        with bl.record() as tape:
            first, second, third = learned["convs"]
            y = bl.batch_norm_training(bl.conv(x, first, pads=1), learned["scale"], learned["shift"]).y
            y = bl.relu(bl.conv(bl.relu(y), second, pads=1)) + x
            y = bl.concat([bl.max_pool(y, 2), bl.average_pool(bl.clip(bl.conv(y, third), 0, 6), 2)])
            scores = bl.inner_product(bl.global_average_pool(y), learned["head"])
            loss = bl.op("SoftmaxCrossEntropyLoss", scores, np.array([0, 3, 5, 7]))
        optimizer.step(tape.gradients(loss, learned))
        return float(loss.item())

    before = step()
    with bl.watch("record") as seen:
        assert step() < before
    assert [event.reason for event in seen if "weights" not in event.reason] == []
    assert [each.memory_format for each in learned["convs"]] == [each.memory_format for each in packed]


def test_a_gradient_is_brought_to_its_value_once() -> None:
    x = in_layout(random(*DIMS), "blocked8")
    with bl.record() as tape:
        loss = bl.relu(x * 2) * 3
    with bl.watch("record") as seen:
        tape.gradients(loss, x, grad=random(*DIMS))
    assert [(event.kind, event.operator) for event in seen] == [("reorder", "gradients")]


# --- what is kept


@pytest.mark.parametrize("layout", LAYOUTS)
def test_relu_keeps_bits_where_nobody_else_keeps_its_result(layout: str) -> None:
    array = random(*DIMS)
    x = in_layout(array, layout)
    with bl.record() as tape:
        y = bl.relu(x)
        result, buffer = y + 1, weakref.ref(y.buffer)
    y.buffer[:] = 0  # so that its signs are told from its present bytes, if at all
    y.buffer[:] = bl.relu(x).buffer
    del y
    assert buffer() is None
    found = tape.gradients(result, x, grad=array)
    np.testing.assert_array_equal(found.numpy(), np.where(array > 0, array, 0))
    assert found.desc == x.desc
    assert_padding_is_zero(found.desc, found.buffer)


def test_relu_shares_its_result_with_whoever_keeps_it() -> None:
    x, w = in_layout(random(*DIMS), "channels_last"), random(4, 18, 1, 1)
    with bl.record() as tape:
        y = bl.relu(x)
        loss, buffer = bl.conv(y, w), weakref.ref(y.buffer)
    del y
    entries: list[Entry] = []
    with recording(entries.append):
        tape.gradients(loss, x)
    [slope] = [entry for entry in entries if entry.function == "relu_backward"]
    assert slope.operands[1].buffer is buffer()


def test_what_no_gradient_needs_is_let_go() -> None:
    with bl.record() as tape:
        x = ones(4, 4)
        y = x + 1
        z = y * 2
        u = z * np.ones((4, 4), np.float32)  # made a Tensor of, whose gradient nobody can ask for
        last, buffers = bl.concat([u, u]), [weakref.ref(each.buffer) for each in (x, y, z, u)]
        del x, y, z, u
    assert [each() is None for each in buffers] == [True] * 4
    assert tape.gradients(last, last).numpy().tolist() == [[1.0] * 8] * 4


# --- recorders around


def test_recorders_around_see_the_backward_pass_and_the_tape_does_not() -> None:
    x, w = ones(1, 8, 4, 4), ones(8, 8, 1, 1)
    entries: list[Entry] = []
    with recording(entries.append), bl.record() as tape:
        y = bl.conv(x, w)
        loss = bl.relu(y).sum()
        n_forward = len(entries)
        tape.gradients(loss, w)
    names = [entry.function for entry in entries]
    assert names[:n_forward] == ["conv", "relu", "reduce_sum"]
    assert names[n_forward:] == ["reshape", "expand", "relu_backward", "conv_backward"] or names[n_forward:][-2:] == [
        "relu_backward",
        "conv_backward",
    ]
    backward = entries[-1]
    assert backward.operands[1] is x
    assert backward.attrs["needs"] == ("weights",)
    assert [each.shape for each in backward.results] == [w.shape]
    assert tape.gradients(loss, w).shape == w.shape


def test_an_entry_is_one_call_and_none_where_an_operand_comes_back() -> None:
    x = ones(1, 8, 4, 4)
    entries: list[Entry] = []
    with recording(entries.append):
        same = x.to("contiguous_format").contiguous().astype("f32")
        bl.dropout2d(x)
        bl.cosh_backward(x, x)  # several operators
        x.view(1, 8, 16).permute(0, 2, 1)[0]
    assert same is x
    assert [entry.function for entry in entries] == ["cosh_backward", "view", "permute", "getitem"]


# --- errors


def test_losses_and_parameters_that_are_none() -> None:
    x, other = ones(3), ones(3)
    with bl.record() as tape:
        loss = (x * 2).sum()
        (other * 2).sum()
    cases: list[tuple[Any, Any, str]] = [
        (x, x, r"loss was not computed in this block"),
        (ones(1), x, r"loss is Tensor\(f32 1 a\); give a Tensor of floats that was read in the block"),
        (loss, [ones(3)], r"parameters\[0\] is Tensor"),
        (loss, {"a": np.ones(3)}, r"parameters\['a'\] is ndarray"),
        (loss, {"a": x, "b": other}, r"loss does not depend on parameters\['b'\], f32 3 a; leave it out"),
    ]
    for wrong, parameters, rule in cases:
        with pytest.raises(bl.InputError, match=rf"^gradients: {rule}"):
            tape.gradients(wrong, parameters)
    with pytest.raises(bl.InputError, match=r"^gradients: grad has shape \(2,\); loss has \(1,\)"):
        tape.gradients(loss, x, grad=np.ones(2, np.float32))


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
def test_an_operator_without_a_gradient_is_named_where_it_is_on_the_way() -> None:
    x = bl.full((1, 2, 2), 2)
    with bl.record() as tape:
        det = bl.op("Det", x).sum()
        loss = (x * 2).sum()
        mapped = x.map(np.sqrt).sum()
    assert tape.gradients(loss, x).shape == x.shape
    with pytest.raises(bl.UnsupportedError, match=r"^gradients: Det: Det has no gradient here$"):
        tape.gradients(det, x)
    with pytest.raises(bl.UnsupportedError, match=r"^gradients: map: it has no gradient here$"):
        tape.gradients(mapped, x)


def test_gradients_of_gradients_are_refused() -> None:
    x = bl.as_tensor(random(3))
    with bl.record() as outer:
        with bl.record() as inner:
            loss = bl.tanh(x).sum()
        slope = inner.gradients(loss, x)
    with pytest.raises(bl.UnsupportedError, match=r"^gradients: tanh_backward: it has no gradient here"):
        outer.gradients(slope, x)


@pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_kept_tensor_that_was_written_to_is_an_error(layout: str) -> None:
    x, w = in_layout(random(*DIMS), layout), bl.as_tensor(random(4, 18, 1, 1))
    with bl.record() as tape:
        loss = bl.conv(x, w)
    tape.gradients(loss, w)
    w.physical()[:] -= 0.1 * w.physical()
    with pytest.raises(bl.InputError, match=r"4x18x1x1 oihw|4x18x1x1.*which conv read or gave, was written to"):
        tape.gradients(loss, x)


def test_elements_are_written_before_the_block_or_to_what_it_does_not_compute() -> None:
    x = ones(3)
    with bl.record() as tape:
        fresh = bl.zeros((3,))
        fresh[1] = 2
        y = x * fresh
        with pytest.raises(bl.InputError, match=r"^record: x\[\.\.\.\] = value, of f32 3 a that was computed"):
            y[0] = 1
        with pytest.raises(bl.InputError, match=r"^record: x\[\.\.\.\] = value"):
            fresh[:] = y
    assert tape.gradients(y, x).numpy().tolist() == [0, 2, 0]


def test_statistics_have_no_gradient() -> None:
    x: Array = random(4, 3)
    given = bl.as_tensor(x)
    with bl.record() as tape:
        y, mean, _ = bl.batch_norm_training(given, np.ones(3, np.float32), np.zeros(3, np.float32))
        loss, other = (y * y).sum(), mean.sum()
    assert tape.gradients(loss, given).shape == (4, 3)
    with pytest.raises(bl.UnsupportedError, match="mean and variance have no gradient"):
        tape.gradients(other, given)
