"""Steps of training that are compiled do what they do eagerly, hold parameters in the plan's formats, and say what they
cannot do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import blocklayout as bl

Array = np.ndarray
Train = Callable[[Any, Any], dict[str, bl.Tensor]]

OPTIMIZERS: Mapping[str, Callable[[Any], Any]] = {
    "sgd": lambda of: bl.optim.SGD(of, 0.1),
    "weight decay": lambda of: bl.optim.SGD(of, 0.1, weight_decay=0.1),
    "momentum": lambda of: bl.optim.SGD(of, 0.1, momentum=0.9),
    "nesterov": lambda of: bl.optim.SGD(of, 0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adamw": lambda of: bl.optim.AdamW(of, 0.01, weight_decay=0.1),
}


def drawn(rng: np.random.Generator, *dims: int) -> bl.Tensor:
    return bl.from_array(rng.standard_normal(dims, np.float32) * np.float32((2 / np.prod(dims[1:])) ** 0.5))


def network(optimizer_of: Callable[[Any], Any]) -> tuple[dict[str, Any], Any, Train]:
    """Parameters, an optimiser and a step of a small network with channels that fill no block.

    Its functions are smooth: on a kink, or between two equal maxima, rounding decides where a gradient goes.
    """
    rng = np.random.default_rng(0)
    of: dict[str, Any] = {
        "stem": {"weight": drawn(rng, 17, 3, 3, 3), "scale": bl.ones(17), "shift": bl.zeros(17)},
        "depthwise": [drawn(rng, 17, 1, 3, 3)],
        "conv": [drawn(rng, 32, 17, 3, 3), bl.zeros(32)],
        "head": [drawn(rng, 10, 32), bl.zeros(10)],
    }
    optimizer = optimizer_of(of)

    def train(x: bl.Tensor, wanted: bl.Tensor) -> dict[str, bl.Tensor]:
        with bl.record() as tape:
            y = bl.conv(x, of["stem"]["weight"], pads=1)
            y, mean, _ = bl.batch_norm_training(y, of["stem"]["scale"], of["stem"]["shift"])
            y = y.softplus().average_pool(3, 2, 1)
            y = bl.conv(y, of["depthwise"][0], pads=1, group=17) + y
            y = bl.conv(y, *of["conv"], strides=2, pads=1).tanh()
            y = bl.inner_product(y.global_average_pool().reshape((x.shape[0], 32)), *of["head"])
            loss = (bl.log_softmax(y, 1) * wanted).sum() * (-1 / x.shape[0])
        optimizer.step(tape.gradients(loss, of))
        return {"loss": loss, "mean": mean}

    return of, optimizer, train


def batch(rng: np.random.Generator, n: int = 6) -> tuple[Array, Array]:
    return rng.standard_normal((n, 3, 16, 16), np.float32), np.eye(10, dtype=np.float32)[rng.integers(0, 10, n)]


def tensors(tree: Any) -> list[bl.Tensor]:
    from blocklayout.eager.tape import leaves

    return [each for _, each in leaves(tree)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compiled_steps_equal_eager_ones(name: str) -> None:
    eager_of, eager_optimizer, eager = network(OPTIMIZERS[name])
    of, optimizer, train = network(OPTIMIZERS[name])
    before, given = [each.numpy() for each in tensors(of)], tensors(of)
    rng = np.random.default_rng(1)
    step = bl.compile_step(train, batch(rng), tune="model")
    assert optimizer.n_steps == 0
    for was, tensor in zip(before, tensors(of), strict=True):
        np.testing.assert_array_equal(tensor.numpy(), was)  # compiling takes no step
    for number in range(5):
        if number == 2:
            eager_optimizer.rate = optimizer.rate = 0.02
        x, wanted = batch(rng, 4 if number == 3 else 6)
        expected, found = eager(bl.as_tensor(x), bl.as_tensor(wanted)), step(x, wanted)
        for key, value in expected.items():
            np.testing.assert_allclose(found[key].numpy(), value.numpy(), rtol=1e-4, atol=1e-5)
        for tensor, twin in zip(tensors(of), tensors(eager_of), strict=True):
            np.testing.assert_allclose(tensor.numpy(), twin.numpy(), rtol=0, atol=1e-5)
    assert optimizer.n_steps == 5
    assert all(one is other for one, other in zip(tensors(of), given, strict=True))
    assert optimizer.state_dict().keys() == eager_optimizer.state_dict().keys()


@pytest.mark.skipif(not bl.dnnl.has_isa("avx2"), reason="below AVX2 weights are read row-major")
def test_state_lies_in_the_plans_formats_between_steps() -> None:
    of, _, train = network(OPTIMIZERS["momentum"])
    rng = np.random.default_rng(1)
    step = bl.compile_step(train, batch(rng), tune="model")
    assert {"stem.weight", "stem.weight.velocity", "depthwise.0", "head.1.velocity"} <= step.state.keys()
    assert step.state["stem.weight"] is of["stem"]["weight"]
    plan = step.plan
    read, written = dict(plan.inputs), {result.name: result.desc for result in plan.results}
    addresses = []
    for _ in range(4):
        step(*batch(rng))
        for name, tensor in step.state.items():
            assert read[name] == written[f"{name}'"] == tensor.desc
        addresses.append(of["conv"][0].buffer.ctypes.data)
    assert addresses[0] == addresses[2] != addresses[1] == addresses[3]  # nothing is allocated
    assert not [each for each in plan.steps if each.is_reorder and plan.buffers[each.dst.buffer].kind == "output"]
    assert of["stem"]["weight"].memory_format != "contiguous_format"
    formats = {name: each.memory_format for name, each in step.state.items()}
    step(*batch(rng, 3))  # is planned anew, around the same formats
    assert {name: each.memory_format for name, each in step.state.items()} == formats


def test_a_step_is_reported_as_other_sessions_are() -> None:
    _, _, train = network(OPTIMIZERS["momentum"])
    data = batch(np.random.default_rng(1))
    step = bl.compile_step(train, data, tune="model")
    assert "batch_normalization" in str(step.plan)
    assert any("convweightsgradient" in each.kernel for each in step.plan.steps)
    feed = dict(zip(("argument_0", "argument_1"), data, strict=True)) | step.state
    profile = step.session.profile(feed | {"optimizer_0.rate": np.zeros(1, np.float32)}, n_runs=1)
    assert any(each.primitive == "convolution" for each in profile.steps)
    with bl.checking("padding"):
        step(*data)


def both(x: bl.Tensor, function: Callable[[bl.Tensor], bl.Tensor]) -> dict[str, bl.Tensor]:
    """A result and the gradient of the sum of its squares."""
    with bl.record() as tape:
        y = function(x)
        loss = (y * y).sum()
    return {"y": y, "gradient": tape.gradients(loss, x)}


RNG = np.random.default_rng(5)
MATRIX, TAPS = (
    bl.as_tensor(RNG.standard_normal((5, 7), np.float32)),
    bl.as_tensor(RNG.standard_normal((8, 4, 2, 2), np.float32)),
)
FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "average_pool": lambda x: x.average_pool(3, 2, 1, count_include_pad=True),
    "cast": lambda x: x.astype("f64").astype("f32"),
    "comparison": lambda x: x * (x > 0.5).astype("f32"),
    "concat": lambda x: bl.concat([x, x * 2, x.relu()]),
    "conv_transpose": lambda x: x.conv_transpose(TAPS, bl.ones(4), strides=2),
    "clip": lambda x: x.clip(-0.5, 0.5),
    "gelu": lambda x: x.gelu(approximate=True),
    "grouped": lambda x: x.conv(TAPS, pads=1, group=2),
    "layer_norm": lambda x: x.layer_norm(bl.full(5, 2), bl.ones(5)),
    "lrn": lambda x: x.lrn(3),
    "matmul": lambda x: x @ MATRIX,
    "mean": lambda x: x.reduce_mean((2, 3)),
    "max_pool": lambda x: x.max_pool(2),
    "parts": lambda x: x[:, 2:6, 1:, 3] * x[:, 0:1, :5, -1],
    "permute": lambda x: x.permute(0, 2, 3, 1).reshape((2, -1)),
    "power": lambda x: (abs(x) + 1) ** 1.5,
    "relu": lambda x: x.relu(),
    "reorder": lambda x: x.to(memory_format="nChw8c").sigmoid(),
    "softmax": lambda x: x.softmax(1),
    "where": lambda x: bl.op("Where", x > 0, x, x * 0.1),
}


@pytest.mark.filterwarnings("ignore::blocklayout.errors.BlockLayoutWarning")
@pytest.mark.parametrize("form", ["contiguous_format", "channels_last"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_and_their_gradients_are_computed_by_the_plan(name: str, form: str) -> None:
    rng = np.random.default_rng(2)
    xs = [bl.reorder(rng.standard_normal((2, 8, 6, 5), np.float32), form) for _ in range(2)]
    step = bl.compile_step(lambda x: both(x, FUNCTIONS[name]), (xs[0],), tune="model")
    for key, expected in both(xs[1], FUNCTIONS[name]).items():
        found = step(xs[1])[key]
        assert found.shape == expected.shape
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


def test_arguments_and_results_have_a_structure() -> None:
    def fn(tree: dict[str, Any], y: bl.Tensor) -> Any:
        return [tree["a"][0] * y, {"sum": (tree["a"][1] + y, y)}]

    x, y = np.ones((2, 3), np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    step = bl.compile_step(fn, ({"a": [x, y]}, y))  # the same array twice is two arguments
    product, sums = step({"a": [x, 2 * y]}, 3 * y)
    np.testing.assert_array_equal(product.numpy(), 3 * y)
    np.testing.assert_array_equal(sums["sum"][0].numpy(), 5 * y)
    np.testing.assert_array_equal(sums["sum"][1].numpy(), 3 * y)


X = np.arange(1, 25, dtype=np.float32).reshape(2, 3, 4)
SCALE = bl.ones((2, 3, 4))


def by_value(x: bl.Tensor) -> bl.Tensor:
    return x * 2 if x.numpy()[0, 0, 0] < 2 else x * 3


def updated(x: bl.Tensor) -> bl.Tensor:
    bl.optim.SGD([x], 0.1).step([x])
    return x


def twice(x: bl.Tensor) -> bl.Tensor:
    optimizer = bl.optim.SGD([SCALE], 0.0)
    optimizer.step([x])
    optimizer.step([x])
    return x * 2


def of_few_bits(x: bl.Tensor) -> bl.Tensor:
    parameter = bl.ones((2, 3, 4), dtype="bf16")
    bl.optim.SGD([parameter], 0.1).step([x.astype("bf16")])
    return x * 2


def written_to(x: bl.Tensor) -> bl.Tensor:
    y = x * 2
    y[0] = 0
    return y


REFUSED: Mapping[str, tuple[Callable[[bl.Tensor], Any], str]] = {
    "a number in Python": (lambda x: x * float(x.numpy().sum()), "something else when it runs again"),
    "a branch": (by_value, "something else when it runs again"),
    "an array": (lambda x: x * np.exp(x.numpy()), "something else when it runs again"),
    "random numbers": (
        lambda x: x * bl.from_array(np.random.default_rng().random((2, 3, 4), np.float32)),
        "random numbers",
    ),
    "a function in Python": (lambda x: x.map(np.sin), "map cannot be part of a plan"),
    "a part that is written": (written_to, "setitem cannot be part of a plan"),
    "a number as result": (lambda x: (x * 2).numpy().sum(), "return Tensors"),
    "a result of numpy": (lambda x: (x * 2, bl.from_array(x.numpy())), "not computed by recorded functions"),
    "an argument that is updated": (updated, "leave it out of the arguments"),
    "two steps": (twice, "steps twice"),
    "few bits": (of_few_bits, "keep them in f32"),
}


@pytest.mark.parametrize(("function", "says"), REFUSED.values(), ids=REFUSED)
def test_a_step_that_no_plan_is_is_refused(function: Callable[[bl.Tensor], Any], says: str) -> None:
    before = X.copy()
    with pytest.raises((bl.InputError, bl.UnsupportedError), match=says):
        bl.compile_step(function, (X,))
    np.testing.assert_array_equal(X, before)


def test_arguments_of_compile_step() -> None:
    with pytest.raises(bl.InputError, match="give a tuple of arguments"):
        bl.compile_step(lambda x: x, X)  # type: ignore[arg-type]
    with pytest.raises(bl.InputError, match=r"no option 'thread'; .*threads"):
        bl.compile_step(lambda x: x, (X,), thread=1)
    step = bl.compile_step(lambda x: x * SCALE, (X,))
    with pytest.raises(bl.InputError, match="argument"):
        step("x")
    np.testing.assert_array_equal(step(X).numpy(), X)
