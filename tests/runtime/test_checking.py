"""Checked runs: padding proven zero and values finite, the first culprit named."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout.plan import POLICIES
from tests import nets

SHAPE = (1, 17, 12, 12)
IMAGE = nets.random_input(SHAPE)
NETS: dict[str, Callable[[], bl.Builder]] = {"chain": nets.chain, "residual": nets.residual, "mobile": nets.mobile}
LANE = (0, 19, 3, 4)

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.LayoutLossWarning")  # kernels of SSE41 lose blocks


@pytest.fixture(params=["C", "Python"])
def _executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "Python":
        monkeypatch.setattr("blocklayout.dnnl.executable.native", lambda: None)


def dirty(value: float = float("nan"), tag: str = "nChw8c") -> bl.Tensor:
    """An image in blocks whose padding is not zero at one lane."""
    tensor = bl.from_array(IMAGE, tag)
    place = tensor.desc.resized(tensor.desc.padded_dims).offset(*LANE)
    tensor.physical().reshape(-1).view(np.float32)[place] = value
    return tensor


def with_log() -> bl.Builder:
    """A convolution, and logarithms of what may be zero."""
    b = bl.Builder("logarithms")
    y = b.input("x", SHAPE).conv(nets.he(np.random.default_rng(0), 17, 17, 3, 3), pads=1, name="first").relu()
    b.output("y", b.op("Log", y.max_pool(2, strides=2)))
    return b


def masked() -> bl.Builder:
    """A softmax over what a mask of -inf leaves."""
    b = bl.Builder()
    mask = np.where(np.arange(8) < 5, 0, -np.inf).astype(np.float32)
    b.output("y", (b.input("x", (4, 8)) + mask).softmax())
    return b


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("policy", [*POLICIES, "nChw8c"])
def test_what_is_clean_passes_and_computes_the_same(net: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = NETS[net]()
    unchecked = bl.load(model, layout=policy)
    feed = nets.feed_of(unchecked)
    expected = unchecked.run(None, feed)
    for executor in ("C", "Python"):
        if executor == "Python":
            monkeypatch.setattr("blocklayout.dnnl.executable.native", lambda: None)
        session = bl.load(model, layout=policy, check="padding")  # by the plan that is remembered
        assert session.plan == unchecked.plan
        for result, other in zip(session.run(None, feed), expected, strict=True):
            np.testing.assert_array_equal(result, other)


@pytest.mark.usefixtures("_executor")
@pytest.mark.parametrize("value", [float("nan"), 7.0])
def test_dirty_padding_of_an_input_is_named(value: float) -> None:
    session = bl.load(nets.chain(), layout="nChw8c", check="padding")
    with pytest.raises(bl.CheckError, match=r"input x \(f32 1x17x12x12 nChw8c\) has dirty padding") as caught:
        session.run(None, {"x": dirty(value)})
    error = caught.value
    assert (error.kind, error.index, error.tensor, error.step) == ("dirty padding", LANE, "x", None)
    assert np.isfinite(session.run(None, {"x": bl.from_array(IMAGE, "nChw8c")})[0]).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_of_an_input_is_named(value: float) -> None:
    image = IMAGE.copy()
    image[0, 3, 5, 7] = value
    wide = np.zeros((1, 17, 12, 24), np.float32)
    wide[..., ::2] = image
    session = bl.load(nets.chain(), check="padding")
    for given in (image, wide[..., ::2], bl.from_array(image, "nhwc"), bl.from_array(image, "nChw8c")):
        with pytest.raises(bl.CheckError, match=r"input x .* at \(0, 3, 5, 7\)") as caught:
            session(given)
        assert (caught.value.kind, caught.value.step) == ("NaN" if np.isnan(value) else "infinity", None)


@pytest.mark.usefixtures("_executor")
@pytest.mark.parametrize("layout", ["plain", "nhwc", "nChw8c"])
def test_the_first_step_that_writes_an_infinity_is_named(layout: str) -> None:
    session = bl.load(with_log(), layout=layout, check="padding")
    with pytest.raises(bl.CheckError, match=r"step \d of logarithms, .* has -inf at \(0, \d+, \d+, \d+\)") as caught:
        session(np.zeros(SHAPE, np.float32))
    error = caught.value
    assert error.kind == "infinity"
    assert error.index == (0, 0, 0, 0)
    assert error.step is not None
    assert any(choice.writes == error.tensor for choice in session.plan.choices)
    assert not any(step.is_reorder for step in session.plan.steps[error.step : error.step + 1])


def test_a_constant_is_named() -> None:
    b = bl.Builder()
    weights = nets.he(np.random.default_rng(0), 17, 17, 3, 3)
    weights[2, 1, 0, 0] = np.nan
    b.output("y", b.input("x", SHAPE).conv(weights, pads=1, name="first").relu())
    session = bl.load(b, check="padding")
    with pytest.raises(bl.CheckError, match=r"first reads the constant .* has nan at") as caught:
        session(IMAGE)
    assert caught.value.step is None


def test_padding_alone_lets_infinities_pass() -> None:
    x = np.zeros((4, 8), np.float32)
    with pytest.raises(bl.CheckError, match="'padding-only' checks padding alone"):
        bl.load(masked(), check="padding")(x)
    result = bl.load(masked(), check="padding-only")(x)
    np.testing.assert_allclose(result.sum(axis=1), 1, rtol=1e-6)
    with bl.checking("padding-only"):
        np.testing.assert_array_equal(bl.load(masked())(x), result)


def test_dirt_that_a_step_leaves_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A primitive that leaves padding as it was, which none of the library's does."""
    session = bl.load(nets.chain(), layout="nChw8c", check="padding")
    run = bl.dnnl.Execution.run

    def spoiling(self: Any) -> None:
        run(self)
        if self.spec.kind == "convolution" and self.spec.desc("dst").n_padding:
            memory = self.memories["dst"]
            place = memory.desc.resized(memory.desc.padded_dims).offset(*LANE)
            memory.buffer.reshape(-1).view(np.float32)[place] = 7.0

    monkeypatch.setattr(bl.dnnl.Execution, "run", spoiling)
    plan = session.plan
    spoiled = [step.kernel for step in plan.steps if step.spec.kind == "convolution" and step.dst.desc.n_padding]
    if not spoiled:
        pytest.skip("no convolution of this CPU writes blocks")
    # A kernel's results are whole after its last step; the activation is one of its own where it is not fused.
    last = max(number for number, step in enumerate(plan.steps) if step.kernel == spoiled[0] and not step.is_reorder)
    with pytest.raises(bl.CheckError, match=rf"step {last} of .* dirty padding, 7.0 at") as caught:
        session(IMAGE)
    assert (caught.value.step, caught.value.index) == (last, LANE)


def test_winograd_is_checked() -> None:
    b = bl.Builder()
    weights = nets.he(np.random.default_rng(0), 124, 128, 3, 3)
    b.output("y", b.input("x", (1, 128, 56, 56)).conv(weights, pads=1, name="conv"))
    session = bl.load(b, check="padding", tune="model")
    if not any(step.spec.impl.startswith("winograd") for step in session.plan.steps):
        pytest.skip("Winograd's method is not taken here")
    image = nets.random_input((1, 128, 56, 56))
    np.testing.assert_array_equal(session(image), bl.load(b, plan=session.plan)(image))
    with pytest.raises(bl.CheckError, match=r"step 0 of .*, conv \(.*\): y .* at \("):
        session(np.full_like(image, 1e38))


def test_an_array_for_the_output_and_streams_are_checked() -> None:
    image = IMAGE.copy()
    image[0, 0, 0, 0] = np.nan
    with bl.load(with_log(), check="padding", threads=2, streams=2) as session:
        out = np.empty((1, 17, 6, 6), np.float32)
        with pytest.raises(bl.CheckError, match="input x"):
            session.run(None, {"x": image}, out={"y": out})
        with pytest.raises(bl.CheckError, match="step"):
            session.run(None, {"x": np.zeros(SHAPE, np.float32)}, out={"y": out})
        with pytest.raises(bl.CheckError, match="input x"):
            session.submit({"x": image}).result()


def test_a_block_checks_what_its_thread_runs_and_submits() -> None:
    image = IMAGE.copy()
    image[0, 0, 0, 0] = np.nan
    with bl.load(nets.chain(), threads=2, streams=2) as session:
        with bl.checking():
            future = session.submit({"x": image})
            with pytest.raises(bl.CheckError, match="input x"):
                session(image)
            other = threading.Thread(target=partial(session, image))
            other.start()
            other.join()
        with pytest.raises(bl.CheckError, match="input x"):
            future.result()
        session(image)
        with bl.watch("record") as seen, bl.checking(), pytest.raises(bl.CheckError):
            session(image)
        assert len(seen) == 0


def test_operators_on_tensors_are_checked() -> None:
    weights = nets.he(np.random.default_rng(0), 17, 17, 3, 3)
    with bl.checking():
        y = bl.relu(bl.conv(bl.from_array(IMAGE, "nChw8c"), weights, pads=1) + 1)
        assert y.shape == SHAPE
        for call in (bl.relu, partial(bl.conv, weights=weights, pads=1), lambda x: x + x, lambda x: bl.concat([x, x])):
            with pytest.raises(bl.CheckError, match="dirty padding, nan at"):
                call(dirty())
        with pytest.raises(bl.CheckError, match=r"step \d of mul, .* has inf at \(0, 0, 0, 0\)"):
            bl.from_array(np.full((1, 3, 2, 2), 1e30, np.float32), "nChw8c") * 1e30
    bl.relu(dirty())


def test_gradients_are_checked() -> None:
    with bl.checking():
        clean = bl.from_array(IMAGE, "nChw8c")
        assert bl.relu_backward(clean, clean).shape == SHAPE
        with pytest.raises(bl.CheckError, match=r"relu_backward: input grad .* dirty padding"):
            bl.relu_backward(dirty(), clean)
        large = bl.full_like(clean, 1e30)
        with pytest.raises(bl.CheckError, match=r"square_backward: step 0 of .* has inf at \(0, 0, 0, 0\)"):
            bl.square_backward(large, large)


def test_narrow_types_are_checked() -> None:
    b = bl.Builder()
    b.output("y", b.input("x", (2, 3), "bf16").relu())
    session = bl.load(b, check="padding")
    x = bl.from_array(np.full((2, 3), np.inf, np.float32)).astype("bf16")
    with pytest.raises(bl.CheckError, match=r"bf16 2x3"):
        session(x)


@pytest.mark.parametrize("mode", ["paddings", "values", "", 1, None])
def test_an_unknown_mode_is_refused(mode: Any) -> None:
    with pytest.raises(bl.InputError, match="give one of 'padding', 'padding-only'"):
        bl.checking(mode)
    if mode is not None:
        with pytest.raises(bl.InputError, match="give one of 'padding', 'padding-only'"):
            bl.load(nets.chain(), check=mode)


def test_a_saved_session_is_checked(tmp_path: Any) -> None:
    bl.load(nets.chain()).save(tmp_path / "chain.session")
    session = bl.load(tmp_path / "chain.session", check="padding")
    with pytest.raises(bl.CheckError, match="input x"):
        session(np.full(SHAPE, np.nan, np.float32))


def test_what_numpy_computes_is_checked() -> None:
    b = bl.Builder()
    b.output("y", b.op("Acosh", b.input("x", (2, 3)).relu()))
    session = bl.load(b, check="padding")
    with pytest.raises(bl.CheckError, match=r"Acosh.*: y .* has nan at \(0, 0\)"):
        session(np.zeros((2, 3), np.float32))
