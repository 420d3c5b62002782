"""Our layers inside PyTorch's models: as eager PyTorch answers, with gradients, compiled, exported and trained."""

from __future__ import annotations

import copy
import gc
import importlib
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import blocklayout as bl
from blocklayout import InputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
operators = importlib.import_module("blocklayout.torch.operators")
nn: Any = torch.nn
functional: Any = torch.nn.functional

FORMATS = {"channels_last": torch.channels_last, "plain": torch.contiguous_format}
WINDOWS: dict[str, dict[str, Any]] = {
    "dense": {"padding": 1},
    "strided in groups": {"stride": 2, "padding": (1, 0), "groups": 2},
    "same": {"padding": "same", "dilation": (2, 1)},
    "depthwise": {"padding": "valid", "groups": 16},
}
PLAIN: tuple[Any, ...] = ([1, 1], [1, 1, 1, 1], [1, 1], 1)


needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="inductor takes a C++ compiler")
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own


@pytest.fixture(autouse=True)
def compile_anew() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def drawn(*shape: int, seed: int = 1, memory_format: Any = torch.contiguous_format) -> Any:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.to(memory_format=memory_format).requires_grad_()


def assert_same(got: Any, want: Any, rel: float = 1e-5) -> None:
    """The same type, extents and strides, and close values, of the largest one."""
    assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
    assert (got - want).abs().max() <= rel * want.abs().max()


def assert_same_gradients(got: Any, want: Any, inputs: tuple[Any, ...], rel: float = 1e-5) -> None:
    grad = drawn(*want.shape, seed=7).to(want.dtype).contiguous(memory_format=operators._order(want))
    pairs = zip(torch.autograd.grad(got, inputs, grad), torch.autograd.grad(want, inputs, grad), inputs, strict=True)
    for ours, theirs, given in pairs:
        assert (ours.dtype, ours.shape, ours.stride()) == (given.dtype, given.shape, given.stride())
        assert (ours - theirs).abs().max() <= rel * theirs.abs().max()


@pytest.mark.parametrize("activation", [None, *bl.torch.ACTIVATIONS])
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("memory_format", FORMATS.values(), ids=FORMATS)
def test_a_convolution_answers_and_is_derived_as_in_pytorch(
    memory_format: Any, window: dict[str, Any], activation: str | None
) -> None:
    x = drawn(2, 16, 9, 8, memory_format=memory_format)
    inputs = x, drawn(32, 16 // window.get("groups", 1), 3, 3, seed=2), drawn(32, seed=3)
    want = functional.conv2d(*inputs, **window)
    want = want if activation is None else getattr(functional, activation)(want)
    got = bl.torch.conv2d(*inputs, **window, activation=activation)
    assert_same(got, want)
    assert_same_gradients(got, want, inputs)
    with torch.no_grad():  # the activation is a part of the kernel
        assert_same(bl.torch.conv2d(*inputs, **window, activation=activation), want)


def test_an_even_kernel_is_padded_more_behind() -> None:
    inputs = drawn(2, 8, 7, 6), drawn(6, 8, 4, 2, seed=2)
    got = bl.torch.conv2d(*inputs, padding="same")
    want = functional.conv2d(functional.pad(inputs[0], (0, 1, 1, 2)), inputs[1])
    assert_same(got, want)
    assert_same_gradients(got, want, inputs)
    compiled = torch.compile(bl.torch.conv2d, backend="aot_eager", fullgraph=True)
    assert_same(compiled(*(each.detach() for each in inputs), padding="same"), want)


@pytest.mark.parametrize("memory_format", FORMATS.values(), ids=FORMATS)
def test_gradients_by_turned_weights_are_right(memory_format: Any) -> None:
    x = drawn(1, 8, 14, 13, memory_format=memory_format)
    for padding, groups in ((0, 1), (1, 1), ((2, 1), 1), (1, 4), (1, 8)):
        weight = drawn(24, 8 // groups, 3, 3, seed=2)
        got, want = (module.conv2d(x, weight, None, 1, padding, 1, groups) for module in (bl.torch, functional))
        assert got[:, 0].numel() >= operators.TURNED_PIXELS
        assert_same(got, want)
        assert_same_gradients(got, want, (x, weight))


@pytest.mark.parametrize(("groups", "stride", "more"), [(1, 2, 1), (2, 1, 0), (4, (2, 3), (0, 2))])
@pytest.mark.parametrize("memory_format", FORMATS.values(), ids=FORMATS)
def test_a_transposed_convolution_likewise(memory_format: Any, groups: int, stride: Any, more: Any) -> None:
    x = drawn(2, 16, 9, 8, memory_format=memory_format)
    inputs = x, drawn(16, 32 // groups, 3, 3, seed=2), drawn(32, seed=3)
    got, want = (module.conv_transpose2d(*inputs, stride, 1, more, groups) for module in (bl.torch, functional))
    assert_same(got, want)
    assert_same_gradients(got, want, inputs)


@pytest.mark.parametrize("rank", [1, 3])
def test_signals_and_volumes_likewise(rank: int) -> None:
    inputs = drawn(2, 8, *(6,) * rank), drawn(12, 8, *(3,) * rank, seed=2), drawn(12, seed=3)
    got, want = (getattr(module, f"conv{rank}d")(*inputs, 2, 1) for module in (bl.torch, functional))
    assert_same(got, want)
    assert_same_gradients(got, want, inputs)


@pytest.mark.parametrize("shape", [(48,), (5, 48), (2, 3, 7, 48), (0, 48)])
@pytest.mark.parametrize("activation", [None, "gelu"])
def test_a_linear_layer_likewise(shape: tuple[int, ...], activation: str | None) -> None:
    inputs = drawn(*shape), drawn(30, 48, seed=2), drawn(30, seed=3)
    want = functional.linear(*inputs)
    want = want if activation is None else getattr(functional, activation)(want)
    with torch.no_grad():
        got = bl.torch.linear(*inputs, activation)
        packed = bl.torch.linear(inputs[0], bl.torch.pack(inputs[1], inputs[0]), inputs[2], activation)
    assert got.shape == packed.shape == want.shape
    for each in (got, packed) if want.numel() else ():
        assert_same(each, want)
    recorded = bl.torch.linear(*inputs, activation)
    assert torch.equal(recorded, want)
    assert recorded.requires_grad


def test_no_images_are_none() -> None:
    assert bl.torch.conv2d(torch.empty(0, 16, 8, 8), torch.rand(4, 16, 3, 3)).shape == (0, 4, 6, 6)


@pytest.mark.parametrize("groups", [1, 2])
def test_packed_weights_serve_in_inference_and_pass_gradients_on(groups: int) -> None:
    x, weight, bias = drawn(2, 16, 9, 8), drawn(34, 16 // groups, 3, 3, seed=2), drawn(34, seed=3)
    packed = bl.torch.pack(weight, x, padding=1, groups=groups)
    assert not packed.data.requires_grad
    got = bl.torch.conv2d(x, packed, bias, padding=1, groups=groups, activation="relu")
    want = functional.conv2d(x, weight, bias, padding=1, groups=groups).relu()
    assert_same(got, want.contiguous(memory_format=torch.channels_last))
    assert_same_gradients(got, want, (x, bias))
    with pytest.raises(UnsupportedError, match="packed weights have no gradient: give the parameter"):
        bl.torch.conv2d(x, packed._replace(data=packed.data.clone().requires_grad_()), padding=1, groups=groups)


def test_packed_weights_of_a_transposed_convolution() -> None:
    x, weight = drawn(2, 16, 9, 8), drawn(16, 9, 3, 3, seed=2)
    packed = bl.torch.pack(weight, x, stride=2, groups=2, output_padding=1, bias=False)
    got = bl.torch.conv_transpose2d(x, packed, None, 2, 0, 1, 2)
    want = functional.conv_transpose2d(x, weight, None, 2, 0, 1, 2)
    assert_same(got, want.contiguous(memory_format=torch.channels_last))
    assert_same_gradients(got, want, (x,))


def test_packed_weights_are_read_where_they_are() -> None:
    x = drawn(1, 16, 9, 8, memory_format=torch.channels_last).detach()
    packed = bl.torch.pack(drawn(32, 16, 3, 3), x, padding=1, bias=False)
    with bl.watch("record") as seen:
        bl.torch.conv2d(x, packed, padding=1)
    assert not [event for event in seen if event.kind in ("reorder", "copy", "loss")]


def test_weights_are_packed_once_until_they_change() -> None:
    layer, x = nn.Conv2d(16, 32, 3), torch.rand(1, 16, 8, 8)

    def n_moved() -> int:
        with torch.no_grad(), bl.watch("record") as seen:
            assert_same(bl.torch.conv2d(x, layer.weight, layer.bias), layer(x))
        return len([event for event in seen if event.operator == "reorder"])

    moves = [n_moved() for _ in range(3)]
    assert moves[0] > moves[1] == moves[2]
    with torch.no_grad():
        layer.weight.mul_(2)
    assert [n_moved(), n_moved()] == moves[:2]
    layer.load_state_dict({name: each + 1 for name, each in layer.state_dict().items()})
    assert [n_moved(), n_moved()] == moves[:2]
    layer.weight.data = layer.weight.data * 3
    assert [n_moved(), n_moved()] == moves[:2]


def test_packed_copies_go_with_their_weights() -> None:
    weight = torch.rand(32, 16, 3, 3)
    bl.torch.conv2d(torch.rand(1, 16, 8, 8), weight)
    assert weight in operators._copies
    n_copies = len(operators._copies)
    del weight
    gc.collect()
    assert len(operators._copies) < n_copies


# In PyTorch's machinery


def cases() -> Iterator[tuple[str, tuple[Any, ...]]]:
    for name, memory_format in FORMATS.items():
        x, weight = drawn(2, 8, 6, 5, memory_format=memory_format), drawn(4, 8, 3, 3, seed=2)
        packed = bl.torch.pack(weight, x, padding=1, bias=False)
        more: tuple[Any, ...] = [], [4, 8, 3, 3], ""
        yield f"{name} relu", (x, weight, drawn(4, seed=3), *PLAIN, "relu", *more)
        yield f"{name} packed", (x, packed.data, None, *PLAIN, "", *more[:2], packed.layout)
        transposed: tuple[Any, ...] = [2, 2], [1, 1, 1, 1], [1, 1], 1, "", [1, 1], [8, 4, 3, 3], ""
        yield f"{name} transposed", (x, drawn(8, 4, 3, 3, seed=2), None, *transposed)
        given = drawn(2, 4, 6, 5, memory_format=memory_format).detach(), x.detach(), weight.detach()
        yield f"{name} backward", (*given, *PLAIN, "", *more, [True, True])
        yield f"{name} backward of the source", (*given, *PLAIN, "", *more, [True, False])


@pytest.mark.parametrize("args", [pytest.param(args, id=name) for name, args in cases()])
def test_operators_pass_pytorchs_own_check(args: tuple[Any, ...]) -> None:
    is_backward = isinstance(args[-1], list)
    name = "convolution_backward" if is_backward else "convolution"
    torch.library.opcheck(getattr(torch.ops.blocklayout, name).default, args)


def networks() -> tuple[Any, Any]:
    """The same parameters in a model of PyTorch's, and in one with layers of ours."""
    torch.manual_seed(3)
    theirs = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1, padding_mode="reflect"), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, groups=2)),
        *(nn.BatchNorm2d(32), nn.ReLU(), nn.ConvTranspose2d(32, 8, 2, 2), nn.Flatten(1), nn.Linear(8 * 14 * 14, 10)),
    )
    ours = copy.deepcopy(theirs)
    ours[0], ours[1] = bl.torch.Conv2d.of(ours[0], "relu"), nn.Identity()
    ours[2], ours[5] = bl.torch.Conv2d.of(ours[2]), bl.torch.ConvTranspose2d.of(ours[5])
    ours[7] = bl.torch.Linear.of(ours[7])
    return ours, theirs


IMAGES = drawn(4, 3, 16, 16, memory_format=torch.channels_last).detach()


@pytest.mark.parametrize("backend", [pytest.param("inductor", marks=needs_compiler), "aot_eager"])
def test_a_model_with_our_layers_is_one_graph(backend: str) -> None:
    ours, theirs = (each.eval() for each in networks())
    compiled = torch.compile(ours, backend=backend, fullgraph=True, dynamic=backend == "aot_eager")
    with torch.inference_mode():
        for n in (4, 3) if backend == "aot_eager" else (4, 4):
            assert_same(compiled(IMAGES[:n]), theirs(IMAGES[:n]))


def test_a_model_with_our_layers_is_exported() -> None:
    ours, theirs = (each.eval() for each in networks())
    with torch.no_grad():
        program = torch.export.export(ours, (IMAGES,))
        assert_same(program.module()(IMAGES), theirs(IMAGES))
    called = [str(node.target) for node in program.graph.nodes]
    assert called.count("blocklayout.convolution.default") == 4


def test_packed_weights_are_a_part_of_a_graph() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.packed = bl.torch.pack(drawn(16, 3, 3, 3), IMAGES, padding=1, bias=False)

        def forward(self, x: Any) -> Any:
            return bl.torch.conv2d(x, self.packed, padding=1, activation="silu")

    layer = Layer()
    with torch.inference_mode():
        assert_same(torch.compile(layer, backend="aot_eager", fullgraph=True)(IMAGES), layer(IMAGES))


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, 0.05, momentum=0.9),
    "one by one": lambda parameters: torch.optim.SGD(parameters, 0.05, foreach=False),
    "fused": lambda parameters: torch.optim.AdamW(parameters, 1e-3, fused=True),
}


def losses(model: Any, make: Callable[[Any], Any], run: Any = None) -> list[float]:
    """Of six steps, and between them in inference."""
    optimizer, labels, found = make(model.parameters()), torch.tensor([3, 1, 4, 1]), []
    for _ in range(6):
        optimizer.zero_grad()
        loss = functional.cross_entropy((run or model)(IMAGES), labels)
        with torch.no_grad():
            model(IMAGES)  # packs weights, and the step changes them
        loss.backward()
        optimizer.step()
        found.append(loss.item())
        with torch.no_grad():
            found.append(functional.cross_entropy(model(IMAGES), labels).item())
    return found


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_training_loop_with_our_layers_has_the_same_losses(make: Callable[[Any], Any]) -> None:
    ours, theirs = networks()
    assert losses(ours, make) == pytest.approx(losses(theirs, make), rel=1e-4, abs=1e-6)


def test_the_backend_sees_the_steps_of_a_fused_optimizer() -> None:
    layer, x = nn.Conv2d(3, 8, 3), IMAGES
    compiled, optimizer = torch.compile(layer, backend=bl.torch.backend), OPTIMIZERS["fused"](layer.parameters())
    for _ in range(3):
        with torch.no_grad():
            assert_same(compiled(x), layer(x))
        layer(x).square().sum().backward()
        optimizer.step()


@needs_compiler
def test_a_training_loop_that_is_compiled_likewise() -> None:
    ours, theirs = networks()
    compiled = torch.compile(ours, backend="inductor", fullgraph=True)
    make = OPTIMIZERS["momentum"]
    assert losses(ours, make, compiled) == pytest.approx(losses(theirs, make), rel=1e-4, abs=1e-6)


@pytest.mark.needs_bf16
@pytest.mark.parametrize("is_compiled", [False, True])
def test_autocast_computes_in_bf16(*, is_compiled: bool) -> None:
    x, theirs = drawn(2, 16, 9, 8, memory_format=torch.channels_last), nn.Conv2d(16, 32, 3)
    layer = bl.torch.Conv2d.of(theirs)
    ours = torch.compile(layer, backend="aot_eager", fullgraph=True) if is_compiled else layer
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, want = ours(x), theirs(x)
        packed = bl.torch.conv2d(x, bl.torch.pack(theirs.weight, x), theirs.bias)
    assert got.dtype == packed.dtype == torch.bfloat16
    assert_same(got, want, rel=1e-2)
    assert_same(packed, want, rel=1e-2)
    inputs = x, *layer.parameters()
    grad = torch.ones_like(want)
    for ours_, theirs_ in zip(
        torch.autograd.grad(got, inputs, grad), torch.autograd.grad(want, inputs, grad), strict=True
    ):
        assert ours_.dtype == torch.float32
        assert (ours_ - theirs_).abs().max() <= 1e-2 * theirs_.abs().max()


def test_other_autocasts_leave_it_in_f32() -> None:
    with torch.autocast("cpu", dtype=torch.float16), torch.no_grad():
        assert bl.torch.conv2d(torch.rand(1, 8, 4, 4), torch.rand(8, 8, 3, 3)).dtype == torch.float32


def test_modules_share_parameters_and_settings() -> None:
    theirs = nn.Conv2d(8, 4, 3, padding="same")
    ours = bl.torch.Conv2d.of(theirs, "relu")
    assert isinstance(ours, nn.Conv2d)
    assert ours.weight is theirs.weight
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    x = torch.rand(1, 8, 6, 6)
    assert_same(ours(x), theirs(x).relu())
    ours.bias = None
    assert theirs.bias is not None
    fresh = bl.torch.Conv1d(8, 4, 3)
    assert fresh(torch.rand(1, 8, 6)).shape == (1, 4, 4)


# Errors

X, W = torch.rand(1, 16, 5, 5), torch.rand(4, 16, 3, 3)
PACKED = operators.Packed(torch.zeros(5), (4, 16, 3, 3), "Ohwi16o")
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: bl.torch.conv2d(X.numpy(), W), "conv2d: x is a ndarray; give a tensor in torch.float32"),
    (lambda: bl.torch.conv2d(X.double(), W), "conv2d: x is torch.float64; give"),
    (lambda: bl.torch.conv2d(X[0], W), r"conv2d: x has shape \(16, 5, 5\); give one of rank 4"),
    (
        lambda: bl.torch.conv2d(X, W[:, :8]),
        r"conv2d: .* x has 16 channels; weights \[4, 8, 3, 3\] with group 1 needs 8 ",
    ),
    (
        lambda: bl.torch.conv2d(X, torch.rand(4, 16, 9, 9)),
        r"conv2d: .* extents \(1, 4, -3, -3\) \(called with x .*, weights f32 4x16x9x9 .*, pads \(0, 0, 0, 0\)",
    ),
    (lambda: bl.torch.conv2d(X, W, stride=0), "conv2d: stride is 0; give one integer, or 2 of them, each at least 1"),
    (lambda: bl.torch.conv2d(X, W, padding=(1, 2, 3)), r"conv2d: padding is \(1, 2, 3\); give one integer"),
    (lambda: bl.torch.conv2d(X, W, padding="big"), "conv2d: padding is 'big'; give"),
    (lambda: bl.torch.conv2d(X, W, stride=2, padding="same"), "conv2d: stride is 2; padding 'same' takes 1"),
    (
        lambda: bl.torch.conv2d(X, W, groups=3),
        "conv2d: conv: group is 3; give a divisor of the 4 output channels of weights",
    ),
    (
        lambda: bl.torch.conv2d(X, W, torch.rand(3)),
        r"conv2d: .* the bias has extents \[3\]; there are 4 output channels",
    ),
    (lambda: bl.torch.conv2d(X, W, activation="rely"), "conv2d: activation is 'rely'; give one of relu, gelu"),
    (lambda: bl.torch.conv2d(X, PACKED), "packed weights f32 4x16x3x3 Ohwi16o take 9216 bytes; data has 20"),
    (
        lambda: bl.torch.conv_transpose2d(X, W.reshape(16, 4, 3, 3), output_padding=1),
        "output_padding is 1; give less",
    ),
    (
        lambda: bl.torch.linear(X, torch.rand(4, 16)),
        r"linear: x has shape .*; weight \(4, 16\) takes 16 channels, the last",
    ),
    (lambda: bl.torch.pack(3, X), "pack: weight is a int; give"),
    (lambda: bl.torch.Conv2d.of(nn.Linear(2, 2)), "Conv2d.of: module is a Linear; give a torch.nn.Conv2d"),
    (lambda: bl.torch.Conv2d.of(nn.Conv2d(2, 2, 1), "no"), "Conv2d.of: activation is 'no'; give one of relu"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_a_wrong_argument_is_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_gradients_of_second_order_are_refused() -> None:
    x, weight = drawn(1, 16, 5, 5), drawn(4, 16, 3, 3)
    (grad,) = torch.autograd.grad(bl.torch.conv2d(x, weight).sum(), x, create_graph=True)
    with pytest.raises(UnsupportedError, match="no gradient of second order"):
        grad.sum().backward()
