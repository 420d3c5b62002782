"""What gradients' functions report, refuse, and share among threads."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.errors import BlockLayoutError
from tests.eager.gradients import Array, in_layout, random

X, W, GRAD = random(2, 17, 5, 4), random(19, 17, 3, 3, seed=1), random(2, 19, 5, 4, seed=2)
POOLED = random(2, 17, 2, 2, seed=3)
V = np.ones(17, np.float32)


def moved(call: Callable[[Any], Any], grad: Any) -> list[str]:
    """The reorders of a call, each from what to what."""
    with bl.watch("record") as seen:
        call(grad)
    assert all(event.kind == "reorder" for event in seen)
    assert all(event.file == __file__ for event in seen)
    return [event.reason for event in seen]


def test_a_gradient_in_another_format_is_brought_by_one_reorder() -> None:
    x = in_layout(X, "channels_last")
    cases: list[Callable[[Any], Any]] = [
        lambda grad: bl.max_pool_backward(grad, x, 2),
        lambda grad: bl.average_pool_backward(grad, x, 2),
    ]
    for call in cases:
        assert moved(call, POOLED) == ["grad is nchw, and computed with as nhwc"]
        assert moved(call, in_layout(POOLED, "channels_last")) == []
    same: list[Callable[[Any], Any]] = [
        lambda grad: bl.relu_backward(grad, x),
        lambda grad: bl.batch_norm_backward(grad, x, V, V, V),
    ]
    for call in same:
        assert moved(call, in_layout(X, "blocked8")) == ["grad is nChw8c, and computed with as nhwc"]
        assert moved(call, in_layout(X, "channels_last")) == []


def test_a_convolution_moves_its_weights_only_where_the_primitive_wants_them_so() -> None:
    x, grad = in_layout(X, "plain"), in_layout(GRAD, "plain")
    assert moved(lambda grad: bl.conv_backward(grad, x, W, pads=1), grad) == []
    x = in_layout(X, "channels_last")
    reasons = moved(lambda grad: bl.conv_backward(grad, x, W, pads=1), GRAD)
    assert [reason for reason in reasons if "grad is" in reason] == ["grad is nchw, and computed with as nhwc"]
    others = [reason for reason in reasons if "grad is" not in reason]
    assert all(reason.startswith(("weights is oihw", "convweightsgradient_1 wrote")) for reason in others)


def test_a_raising_watch_stops_the_first_reorder() -> None:
    x = in_layout(X, "channels_last")
    with bl.watch("raise"), pytest.raises(bl.WatchError, match="relu_backward: grad is nchw"):
        bl.relu_backward(X, x)


def test_a_format_without_implementation_warns_and_comes_back() -> None:
    x = bl.reorder(X, "chwn")
    with pytest.warns(bl.LayoutLossWarning, match="nothing optimised for chwn.* computed as nchw") as told:
        found = bl.max_pool_backward(POOLED, x, 2)
    assert [warning.filename for warning in told] == [__file__]
    assert found.desc.tag == "chwn"
    assert (found.numpy() == bl.max_pool_backward(POOLED, X, 2).numpy()).all()
    with bl.watch("record") as seen, pytest.warns(bl.LayoutLossWarning):
        bl.max_pool_backward(POOLED, x, 2)
    assert [event.kind for event in seen] == ["reorder", "reorder", "loss"]


@pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")  # of CPUs without AVX2
@pytest.mark.parametrize("layout", ["plain", "channels_last", "blocked8"])
def test_arrays_of_all_kinds(layout: str) -> None:
    x, ones = in_layout(X, layout), np.ones_like(GRAD)
    right = bl.conv_backward_data(ones, x, W, pads=1).numpy()
    kinds = (
        np.broadcast_to(np.float32(1), GRAD.shape),
        ones[::-1, :, ::-1],
        ones.astype(">f4"),
        np.asfortranarray(ones),
    )
    for grad in kinds:
        assert (bl.conv_backward_data(grad, x, W, pads=1).numpy() == right).all()
    frozen = GRAD.copy()
    frozen.flags.writeable = False
    bl.conv_backward(frozen, x, W, pads=1)
    assert (frozen == GRAD).all()


@pytest.mark.parametrize("tag", ["nChw8c", "nChw16c", "nhwc"])
def test_a_slice_of_channels_may_be_a_gradient_and_a_source(tag: str) -> None:
    whole = random(2, 33, 4, 4)
    tensor = bl.reorder(whole, tag)
    for start, n in ((0, 16), (16, 17)):
        view = tensor.desc.submemory((2, n, 4, 4), (0, start, 0, 0))
        part, values = bl.Tensor(view, tensor.buffer[: view.nbytes]), whole[:, start : start + n]
        found = bl.square_backward(part, part)
        np.testing.assert_allclose(found.numpy(), 2 * values * values, rtol=1e-6)
        assert found.desc.is_dense
        assert found.desc.canonical_tag == tensor.desc.canonical_tag


@pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")
@pytest.mark.parametrize("tag", ["aBcd5b", "chwn", "cdba", "nChw4c", "NChw16n16c"])
def test_layouts_that_nobody_optimised(tag: str) -> None:
    layout = bl.MemoryDesc(X.shape, "f32", tag)
    given = bl.Tensor(layout, layout.pack(X).view(np.uint8))
    calls: tuple[Callable[[Any], bl.Tensor], ...] = (
        lambda each: bl.conv_backward_data(GRAD, each, W, pads=1),
        lambda each: bl.conv_backward_weights(GRAD, each, W, pads=1)[0],
        lambda each: bl.max_pool_backward(POOLED, each, 2),
        lambda each: bl.batch_norm_backward(X, each, V, V, V).data,
        lambda each: bl.tanh_backward(X, each),
        lambda each: bl.inner_product_backward(POOLED[:, :3, 0, 0].copy(), each, random(3, 17, 5, 4)).data,
    )
    for call in calls:
        got, right = call(given), call(X)
        np.testing.assert_allclose(got.numpy(), right.numpy(), rtol=1e-4, atol=1e-4)
        assert got.desc in (layout, right.desc)


@pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")  # of CPUs without AVX2
@pytest.mark.parametrize("dims", [(2, 1, 4, 4), (2, 8, 1, 1), (1, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("tag", ["nchw", "nhwc", "nChw8c"])
def test_a_format_survives_where_strides_cannot_tell(dims: tuple[int, ...], tag: str) -> None:
    x, n = bl.reorder(random(*dims), tag), dims[1]
    ones = np.ones(n, np.float32)
    w, grad = np.ones((n, n, 1, 1), np.float32), np.ones(dims, np.float32)
    found = [
        bl.conv_backward_data(grad, x, w),
        bl.relu_backward(grad, x),
        bl.max_pool_backward(grad, x, 1),
        bl.average_pool_backward(grad, x, 1),
        bl.batch_norm_training(x, ones, ones).y,
        bl.batch_norm_backward(grad, x, ones, ones, ones).data,
    ]
    assert [each.desc.tag for each in found] == [tag] * len(found)


def test_an_event_has_the_layouts_of_its_own_call() -> None:
    dims = (3, 1, 1, 1)
    grad = bl.zeros(dims, memory_format="nChw8c")
    for tag in ("nchw", "nhwc"):  # equal descriptors
        x = bl.zeros(dims, memory_format=tag)
        with bl.watch("record") as seen:
            bl.average_pool_backward(grad, x, 1)
        assert [event.result.tag for event in seen if event.result] == [tag]


def test_nothing_is_reported_where_nobody_watches() -> None:
    bl.relu_backward(X, in_layout(X, "channels_last"))


REFUSED: dict[str, tuple[type[BlockLayoutError | TypeError], Callable[[], Any]]] = {
    "grad has extents .* the forward's result has": (bl.InputError, lambda: bl.conv_backward(GRAD, X, W)),
    "x has shape .* give one of rank 3, 4 or 5": (bl.InputError, lambda: bl.max_pool_backward(POOLED, V, 2)),
    "x is f64; gradients are computed in f32": (bl.InputError, lambda: bl.relu_backward(X, X.astype(np.float64))),
    "grad is s32": (bl.InputError, lambda: bl.relu_backward(X.astype(np.int32), X)),
    "group is 1; it must divide 17 and 19 channels, as the weights do": (
        bl.InputError,
        lambda: bl.conv_backward(GRAD, X, W[:, :5]),
    ),
    "group is 3; give a divisor": (bl.InputError, lambda: bl.conv_backward(GRAD, X, W, group=3)),
    "group is 0": (bl.InputError, lambda: bl.conv_backward(GRAD, X, W, group=0)),
    r"pads is \(1, 1, 1\); give one number, or 2 or 4 of them": (
        bl.InputError,
        lambda: bl.conv_backward(GRAD, X, W, pads=(1, 1, 1)),
    ),
    "pads is -1": (bl.InputError, lambda: bl.conv_backward(GRAD, X, W, pads=-1)),
    "pads are .* each must be below": (bl.InputError, lambda: bl.max_pool_backward(POOLED, X, 2, pads=2)),
    "strides is 'two'": (bl.InputError, lambda: bl.conv_backward(GRAD, X, W, strides="two")),  # type: ignore[arg-type]
    "dilations is 0": (bl.InputError, lambda: bl.conv_backward(GRAD, X, W, dilations=0)),
    "kernel gives .* spans more": (bl.InputError, lambda: bl.average_pool_backward(POOLED, X, 9)),
    "needs has 'wieghts'": (bl.InputError, lambda: bl.conv_backward(GRAD, X, W, pads=1, needs=("wieghts",))),
    "x is a descriptor": (bl.InputError, lambda: bl.conv_backward_weights(GRAD, desc_of(X), W, pads=1)),  # type: ignore[arg-type]
    r"scale is \(5,\); give one number for each channel": (bl.InputError, lambda: bl.batch_norm_training(X, V[:5], V)),
    "mean is bf16|mean is f64": (bl.InputError, lambda: bl.batch_norm_backward(X, X, V, V.astype(np.float64), V)),
    "epsilon is -1": (bl.InputError, lambda: bl.batch_norm_training(X, V, V, -1)),
    "alpha is nan": (bl.InputError, lambda: bl.elu_backward(X, X, float("nan"))),
    "lo is 2.0, above hi": (bl.InputError, lambda: bl.clip_backward(X, X, 2, 1)),
    "exponent is 'x'": (bl.InputError, lambda: bl.pow_backward(X, X, "x")),  # type: ignore[arg-type]
    "weights has shape .* x makes it": (bl.InputError, lambda: bl.inner_product(X, W)),
    "multiple values for argument 'alpha'": (TypeError, lambda: bl.elu_backward(X, X, 1.0, alpha=2.0)),  # type: ignore[misc]
    "grad is no tensor": (bl.InputError, lambda: bl.relu_backward(object(), X)),  # type: ignore[arg-type]
}


def desc_of(array: Array) -> bl.MemoryDesc:
    return bl.MemoryDesc(array.shape)


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_wrong_is_named(message: str) -> None:
    kind, call = REFUSED[message]
    with pytest.raises(kind, match=message):
        call()


def test_bf16_where_the_cpu_cannot() -> None:
    if dnnl.has_bf16():
        pytest.skip("this CPU computes in bf16")
    narrow = bl.reorder(X, bl.MemoryDesc(X.shape, "bf16"))
    with pytest.raises(bl.UnsupportedError, match="bf16, which needs a CPU with AVX-512"):
        bl.relu_backward(narrow, narrow)


@pytest.mark.needs_bf16
def test_bf16_where_the_cpu_can() -> None:
    x, w, grad = (bl.reorder(each, bl.MemoryDesc(each.shape, "bf16", "channels_last")) for each in (X, W, GRAD))
    found = bl.conv_backward(grad, x, w, pads=1)
    wanted = bl.conv_backward(GRAD, X, W, pads=1)
    for got, right in zip(found, wanted, strict=True):
        assert got is not None
        assert right is not None
        largest = np.abs(right.numpy()).max()
        assert np.abs(got.numpy().astype(np.float32) - right.numpy()).max() < 2e-2 * largest


def test_threads_share_primitives_and_no_buffers() -> None:
    inputs = [(random(2, 17, 5, 4, seed=n), random(2, 19, 5, 4, seed=n)) for n in range(8)]
    wanted = [bl.conv_backward_data(grad, x, W, pads=1).numpy() for x, grad in inputs]
    found: list[Array | None] = [None] * len(inputs)

    def run(n: int) -> None:
        x, grad = inputs[n]
        for _ in range(20):
            found[n] = bl.conv_backward_data(grad, x, W, pads=1).numpy()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for got, right in zip(found, wanted, strict=True):
        assert got is not None
        assert (got == right).all()


@pytest.mark.usefixtures("no_garbage")
def test_a_run_keeps_neither_its_inputs_nor_its_results() -> None:
    buffer, none = np.ones(64, np.float32), np.zeros(64, np.float32)
    first = bl.relu_backward(buffer, buffer)
    before = dnnl.live_handles()
    second = bl.relu_backward(none, buffer)
    assert dnnl.live_handles() == before
    assert first.numpy().all()
    assert not second.numpy().any()
    assert not [held for held in gc.get_referrers(buffer) if isinstance(held, dnnl.Memory)]
