"""PyTorch's modules, compiled: by ``torch.compile``, by ``bl.compile``, and as programs of ``torch.export``."""

from __future__ import annotations

import functools
import gc
import importlib
import subprocess
import sys
import tomllib
import tracemalloc
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import blocklayout as bl
from tests.structure.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
networks = importlib.import_module("tests.torch.networks")
nn: Any = torch.nn
pytree = importlib.import_module("torch.utils._pytree")

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # PyTorch's own


def drawn(*shape: int, seed: int = 1) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def assert_same(got: Any, want: Any, rel: float = 1e-5) -> None:
    """The same type, extents and strides, and close values, of the largest one."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert got.stride() == want.stride()
    assert (got - want).abs().max() <= rel * want.abs().max()


@pytest.fixture(autouse=True)
def compile_anew() -> Iterator[None]:
    yield
    torch._dynamo.reset()
    gc.collect()


def by_backend(module: Any, *_: Any) -> Any:
    return torch.compile(module, backend=bl.torch.backend)


def by_export(module: Any, *inputs: Any) -> Any:
    return bl.compile(module, inputs)


DOORS: dict[str, Callable[..., Any]] = {"torch.compile": by_backend, "bl.compile": by_export}
NETWORKS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "resnet": (networks.ResNet, lambda: drawn(2, 3, 48, 48)),
    "mobilenet": (networks.MobileNet, lambda: drawn(1, 3, 32, 32)),
    "encoder": (networks.Encoder, lambda: torch.arange(2 * 7).reshape(2, 7)),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_answers_as_it_does_eagerly(name: str, door: str) -> None:
    make, make_input = NETWORKS[name]
    module, x = networks.with_statistics(make()), make_input()
    with torch.inference_mode():
        compiled = DOORS[door](module, x)
        for _ in range(2):
            assert_same(compiled(x), module(x))


@pytest.mark.parametrize("name", ["resnet", "mobilenet"])
def test_a_network_of_layers_is_not_traced_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def trace(*_: Any, **__: Any) -> None:
        raise AssertionError("traced")

    monkeypatch.setattr("torch._functorch.aot_autograd.aot_module_simplified", trace)
    monkeypatch.setattr("torch.export.ExportedProgram.run_decompositions", trace)
    make, make_input = NETWORKS[name]
    module, x = networks.with_statistics(make()), make_input()
    with torch.inference_mode():
        for door in DOORS.values():
            assert_same(door(module, x)(x), module(x))


@pytest.mark.parametrize("module", [nn.CELU(0.5), nn.AdaptiveMaxPool2d(3), nn.PixelShuffle(2), nn.Softshrink()])
def test_what_pytorch_decomposes_is_not_traced_again(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, x = importlib.import_module("blocklayout.torch.parts"), drawn(2, 4, 6, 6)
    monkeypatch.setattr(parts, "aot_module_simplified", None)
    told = bl.explain_compile(module, x)
    assert not told.fallbacks, told
    with torch.no_grad():
        assert_same(by_backend(module)(x), module(x))


@pytest.mark.parametrize("name", NETWORKS)
def test_one_plan_runs_a_whole_network(name: str) -> None:
    make, make_input = NETWORKS[name]
    told = bl.explain_compile(networks.with_statistics(make()), make_input())
    assert not told.fallbacks, told
    assert not told.breaks
    assert len(told.sessions) == 1


def test_the_entry_point_leads_to_the_backend() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["torch_dynamo_backends"]["blocklayout"].partition(":")
    assert getattr(importlib.import_module(module), name) is bl.torch.backend


# Memory formats


@pytest.mark.parametrize("door", DOORS)
def test_channels_last_stays_so_at_both_ends(door: str) -> None:
    module = networks.with_statistics(networks.ResNet())
    module.forward = module.features
    x = drawn(2, 3, 48, 48).to(memory_format=torch.channels_last)
    with torch.inference_mode():
        compiled = DOORS[door](module, x)
        got = compiled(x)
        assert got.is_contiguous(memory_format=torch.channels_last)
        assert not got.is_contiguous()
        assert_same(got, module(x))


def test_an_input_is_read_where_it_lies_and_an_output_is_fresh() -> None:
    module = networks.with_statistics(nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()))
    x = drawn(1, 16, 8, 8).to(memory_format=torch.channels_last)
    with torch.inference_mode():
        compiled = bl.compile(module, (x,), layout="nhwc")
        first, second = compiled(x), compiled(x)
    assert not compiled.plan.reorders
    assert first.data_ptr() != second.data_ptr()
    assert first.stride() == (1024, 1, 128, 16)
    base = first if first._base is None else first._base
    assert base.untyped_storage().nbytes() == first.numel() * 4  # nothing besides is held


def test_arrays_at_the_border_are_the_tensors_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    module = networks.with_statistics(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()))
    x = drawn(1, 3, 8, 8).to(memory_format=torch.channels_last)
    seen: list[Any] = []
    run = bl.Session.run

    def watched(self: bl.Session, names: Any, feed: dict[str, Any]) -> list[Any]:
        outputs = run(self, names, feed)
        seen.append((*feed.values(), *outputs))
        return outputs

    monkeypatch.setattr(bl.Session, "run", watched)
    with torch.inference_mode():
        y = bl.compile(module, (x,))(x)
    fed, returned = seen[-1]
    assert fed.__array_interface__["data"][0] == x.data_ptr()
    assert fed.shape == (1, 8, 8, 3)
    assert returned.__array_interface__["data"][0] == y.data_ptr()


@pytest.mark.parametrize(
    "change", [lambda x: x[:, :, ::2], lambda x: x.transpose(2, 3), lambda x: x.expand(4, 3, 8, 8)]
)
def test_strides_of_any_kind_are_read(change: Callable[[Any], Any]) -> None:
    module = networks.with_statistics(nn.Conv2d(3, 8, 3))
    x = change(drawn(1, 3, 8, 8))
    with torch.no_grad():
        assert_same(by_backend(module)(x), module(x))


def test_integers_in_another_order_come_in_it() -> None:
    class Turned(nn.Module):
        def forward(self, x: Any) -> Any:
            return (x * 2).permute(1, 0), x.transpose(0, 1) + 1

    x = torch.arange(6).reshape(2, 3)
    with torch.no_grad():
        for got, want in zip(by_export(Turned(), x)(x), Turned()(x), strict=True):
            assert torch.equal(got, want)
            assert got.stride() == want.stride()


# Shapes


def test_other_extents_are_compiled_when_they_come() -> None:
    module = networks.with_statistics(networks.ResNet())
    compiled = by_backend(module)
    with torch.no_grad():
        for batch, extent in ((1, 32), (2, 40), (3, 48), (1, 32), (2, 40)):
            x = drawn(batch, 3, extent, extent)
            assert_same(compiled(x), module(x))


def test_dynamic_graphs_are_compiled_for_their_numbers() -> None:
    module = networks.with_statistics(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()))
    compiled = torch.compile(module, backend=bl.torch.backend, dynamic=True)
    with torch.no_grad():
        for extent in (*range(8, 8 + 2 * 10, 2), 8):
            x = drawn(1, 3, extent, extent)
            assert_same(compiled(x), module(x))


def test_dynamic_graphs_may_have_numbers_that_are_no_integers() -> None:
    """As a layer's epsilon, which is a tensor of one element there."""
    module = networks.with_statistics(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)))
    compiled = torch.compile(module, backend=bl.torch.backend, dynamic=True)
    with torch.inference_mode():
        for n in (2, 3, 4):
            x = drawn(n, 5, 8)
            assert_same(compiled(x), module(x))


def test_arguments_may_be_numbers_that_change() -> None:
    linear = networks.with_statistics(nn.Linear(8, 8))
    compiled = torch.compile(lambda x, scale: linear(x) * scale, backend=bl.torch.backend)
    with torch.inference_mode():
        for n, scale in ((2, 0.3), (3, 0.5), (4, 0.7), (4, 0.5), (3, 0.5)):
            x = drawn(n, 5, 8)
            assert_same(compiled(x, scale), linear(x) * scale)


def test_of_dynamic_graphs_those_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = importlib.import_module("blocklayout.torch.parts")
    monkeypatch.setattr(parts, "MAX_PLANS", 2)
    n_made = 0
    aot_compiled = parts._aot_compiled

    def counted(*args: Any) -> Any:
        nonlocal n_made
        n_made += 1
        return aot_compiled(*args)

    monkeypatch.setattr(parts, "_aot_compiled", counted)
    module = networks.with_statistics(nn.Linear(8, 8))
    compiled = torch.compile(module, backend=bl.torch.backend, dynamic=True)
    with torch.inference_mode():
        for n, expected in ((3, 1), (4, 2), (3, 2), (5, 3), (3, 3), (4, 4)):
            compiled(drawn(n, 8))
            assert n_made == expected


def test_of_many_sizes_those_that_come_again_are_compiled() -> None:
    graphs: list[Any] = []
    module = networks.with_statistics(nn.Linear(8, 8))
    compile_dynamo = importlib.import_module("blocklayout.torch.parts").compile_dynamo
    backend = functools.partial(compile_dynamo, options={}, graphs=graphs)
    compiled = torch.compile(module, backend=backend, dynamic=True)
    with torch.inference_mode():
        for n, expected in [*((n, min(n - 2, 4)) for n in range(3, 20)), (19, 5), (19, 5), (3, 5), (10, 6)]:
            x = drawn(n, 8)
            assert_same(compiled(x), module(x))
            assert len(graphs) == expected


def test_other_inputs_than_a_module_was_compiled_for_are_refused() -> None:
    compiled = bl.compile(networks.with_statistics(nn.Conv2d(3, 8, 3)), (drawn(1, 3, 8, 8),))
    with pytest.raises(bl.InputError, match="1x3x8x8"):
        compiled(drawn(2, 3, 8, 8))
    with pytest.raises(bl.InputError, match="compiled for inputs such as"):
        compiled(drawn(1, 3, 8, 8), 1)


def test_inputs_and_outputs_may_be_nested() -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, pair: Any, *, by: Any) -> Any:
            return {"a": self.fc(pair[0]), "b": (pair[1] * by, None)}

    module = Nested().eval()
    pair, by = (drawn(2, 4), drawn(2, 4, seed=2)), drawn(2, 4, seed=3)
    program = torch.export.export(module, (pair,), {"by": by})
    compiled = bl.torch.CompiledModule(program.run_decompositions(), {})
    with torch.no_grad():
        got, want = compiled(pair, by=by), module(pair, by=by)
    assert_same(got["a"], want["a"])
    assert_same(got["b"][0], want["b"][0])
    assert got["b"][1] is None


class Aliasing(nn.Module):
    def forward(self, x: Any) -> Any:
        y = x + 1
        return x, x.view(-1), y, y.t(), y[1:]


class Writing(nn.Module):
    def forward(self, x: Any) -> Any:
        x.mul_(2)
        return x.relu()


def write_through_a_view(x: Any) -> Any:
    y = x + 1
    y.view(-1).relu_()
    return y * 2


def write_behind_a_reader(x: Any) -> Any:
    y = x + 1
    before = y * 3
    y.clamp_(0, 1)
    return before - y, y


class Mixed(nn.Module):
    def forward(self, x: Any, factor: float = 2.0, times: int = 3, mask: Any = None) -> Any:
        y = x * factor + times
        return y.sum(), (y > 0), y.argmax(1), None if mask is None else torch.where(mask, y, x)


ODD: dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]] = {
    "outputs that are inputs": (Aliasing, lambda: (drawn(3, 4),)),
    "inputs that are written to": (Writing, lambda: (drawn(3, 4),)),
    "a view that is written to": (lambda: write_through_a_view, lambda: (drawn(3, 4),)),
    "a tensor that is written to when it was read": (lambda: write_behind_a_reader, lambda: (drawn(3, 4),)),
    "outputs that share memory": (lambda: lambda x: (y := x + 1, y.relu_()), lambda: (drawn(3, 4),)),
    "an output that is a part of an input": (lambda: lambda x: (x.chunk(2, 1)[0], x @ x.t()), lambda: (drawn(3, 4),)),
    "numbers, truth and scalars": (Mixed, lambda: (drawn(3, 4), 0.5, 7, drawn(3, 4) > 0)),
    "no rows": (Mixed, lambda: (drawn(0, 4).to(torch.float32)[:, :4],)),
    "f64": (Mixed, lambda: (drawn(3, 4).double(),)),
    "an input that requires gradients": (Mixed, lambda: (drawn(3, 4).requires_grad_(),)),
    "the same tensor twice": (lambda: lambda x, y: x * 2 + y, lambda: (drawn(3, 4),) * 2),
    "complex numbers": (lambda: lambda x: (torch.fft.rfft(x).real * 2).relu() @ x, lambda: (drawn(4, 6),)),
}


@pytest.mark.parametrize("name", ODD)
def test_functions_of_other_kinds_mean_what_they_do_eagerly(name: str) -> None:
    make, make_inputs = ODD[name]
    function, compiled = make(), by_backend(make())
    with torch.no_grad():
        for _ in range(2):
            given, expected = make_inputs(), make_inputs()
            got, want = compiled(*given), function(*expected)
            for mine, eager in zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True):
                torch.testing.assert_close(mine, eager)
            torch.testing.assert_close(given, expected)  # written to alike
            leaves = pytree.tree_leaves(got)
            assert [each is given[0] for each in leaves] == [each is expected[0] for each in pytree.tree_leaves(want)]


# Parameters


def test_packed_weights_are_the_only_copy(tmp_path: Path, tree_environ: dict[str, str]) -> None:
    script = tmp_path / "memory.py"
    script.write_text(
        """
import gc, resource, torch, blocklayout as bl
from blocklayout.torch.parts import compile_dynamo

def held_nbytes():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def network(n, width):
    return torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(n))).eval()

big, x, graphs = network(5, 1600), torch.rand(1, 1600), []
with torch.inference_mode():
    torch.compile(network(1, 8), backend=bl.torch.backend)(torch.rand(1, 8))  # imports
    before = held_nbytes()
    compiled = torch.compile(big, backend=lambda graph, given: compile_dynamo(graph, given, {}, graphs))
    compiled(x)
    grown = held_nbytes() - before
    [session] = graphs[0].latest.sessions
    print(grown, session.memory().packed_nbytes, sum(each.nbytes for each in big.parameters()))
"""
    )
    run = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(run, check=True, capture_output=True, text=True, env=tree_environ, timeout=120)
    grown, packed, weights = map(int, done.stdout.split())
    assert packed < 1.1 * weights  # padding differs by ISA; what is read as it is has no copy at all
    assert grown < packed + 0.4 * weights  # for code and plans: no second copy, nor two tensors' that packing left


@pytest.mark.parametrize("door", DOORS)
def test_a_second_call_allocates_its_outputs_alone(door: str) -> None:
    module, x = networks.with_statistics(networks.ResNet()), drawn(2, 3, 48, 48)
    module.forward = module.features
    with torch.inference_mode():
        compiled = DOORS[door](module, x)
        compiled(x)
        compiled(x)
        tracemalloc.start()
        answer = compiled(x)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < answer.numel() * 4 + 50_000


def test_parameters_that_go_take_what_was_packed_of_them() -> None:
    module = networks.with_statistics(nn.Conv2d(3, 8, 3))
    graphs: list[Any] = []
    backend = importlib.import_module("blocklayout.torch.parts")
    compiled = torch.compile(module, backend=lambda graph, given: backend.compile_dynamo(graph, given, {}, graphs))
    with torch.no_grad():
        compiled(drawn(1, 3, 8, 8))
        [graph] = graphs
        assert len(graph._running) == 1
        weight = weakref.ref(module.weight)
        module.weight = nn.Parameter(module.weight * 2)
        gc.collect()
    assert weight() is None
    assert not graph._running


@pytest.mark.parametrize("is_in_place", [True, False])
def test_changed_parameters_are_packed_anew(*, is_in_place: bool) -> None:
    module = networks.with_statistics(networks.MobileNet())
    x, compiled = drawn(1, 3, 32, 32), by_backend(module)
    with torch.no_grad():
        before = compiled(x)
        if is_in_place:
            module.load_state_dict(networks.with_statistics(networks.MobileNet(), seed=5).state_dict())
        else:
            module.blocks[1] = networks.with_statistics(networks.InvertedResidual(8, 16, 2, 6), seed=5)
        assert not torch.allclose(compiled(x), before)
        assert_same(compiled(x), module(x))


def test_modules_of_one_class_keep_their_own_weights() -> None:
    first, second = (networks.with_statistics(networks.BasicBlock(8, 8), seed) for seed in (1, 2))
    compiled, x = torch.compile(lambda block, x: block(x), backend=bl.torch.backend), drawn(1, 8, 6, 6)
    with torch.no_grad():
        for module in (first, second, first):
            assert_same(compiled(module, x), module(x))


def test_a_buffer_that_is_written_to_is_no_constant() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("n", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.n += 1
            return x * self.n

    module, eager, x = Counting(), Counting(), drawn(2, 3)
    compiled = by_backend(module)
    with torch.no_grad():
        for _ in range(3):
            assert_same(compiled(x), eager(x))
    assert module.n.item() == 3
    with pytest.raises(bl.UnsupportedError, match="writes to n"):
        bl.compile(Counting(), (x,))


def test_statistics_are_learnt_in_training() -> None:
    module, eager = (networks.with_statistics(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))) for _ in range(2))
    x, compiled = drawn(2, 3, 8, 8), by_backend(module.train())
    with torch.no_grad():
        for _ in range(2):
            assert_same(compiled(x), eager.train()(x))
    assert_same(module[1].running_mean, eager[1].running_mean)
    with pytest.raises(bl.UnsupportedError, match=r"module.eval\(\)"):
        bl.compile(module, (x,))


# What PyTorch runs


@pytest.fixture
def twist() -> Any:
    """An operator that is in no table."""
    name = "blocklayout_tests::twist"

    def compute(x: Any) -> Any:
        return torch.flip(x, (1,)) * 2

    operator = torch.library.custom_op(name, compute, mutates_args=(), schema="(Tensor x) -> Tensor")
    operator.register_fake(torch.empty_like)
    return operator


@pytest.mark.parametrize("door", DOORS)
def test_an_unknown_operator_is_left_to_pytorch(door: str, twist: Any) -> None:
    class Twisted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 8, 3)
            self.second = nn.Conv2d(8, 8, 3)

        def forward(self, x: Any) -> Any:
            return self.second(twist(self.first(x).relu())).relu()

    module = networks.with_statistics(Twisted())
    for x in (drawn(1, 3, 9, 9), drawn(1, 3, 9, 9).to(memory_format=torch.channels_last)):
        with torch.no_grad():
            assert_same(DOORS[door](module, x)(x), module(x))
    told = bl.explain_compile(module, x)
    assert [each.node for each in told.fallbacks] == ["twist"]
    assert "twist" in told.fallbacks[0].reason
    assert "not among" in str(told)
    assert len(told.sessions) == 2


@pytest.mark.parametrize(
    ("name", "mask"),
    [
        ("src_mask", nn.Transformer.generate_square_subsequent_mask(7)),
        ("src_key_padding_mask", torch.arange(7) >= torch.tensor([[7], [5]])),
    ],
)
def test_an_encoder_with_a_mask_is_one_session(name: str, mask: Any) -> None:
    encoder, given = networks.with_statistics(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)), {name: mask}
    x = drawn(2, 7, 16)
    told = bl.explain_compile(encoder, x, **given)
    assert (len(told.sessions), told.fallbacks) == (1, ())
    with torch.no_grad():
        assert_same(by_backend(encoder)(x, **given), encoder(x, **given))


def test_a_few_cheap_nodes_are_not_worth_a_session(twist: Any) -> None:
    told = bl.explain_compile(lambda x: twist(twist(x) + 1), drawn(2, 3))
    assert not told.sessions
    assert any("cheap" in each.reason for each in told.fallbacks)


def test_a_graph_break_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    class Telling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = self.first(x)
            print("between")  # noqa: T201 - what breaks the graph
            return self.second(y)

    module, x = Telling().eval(), drawn(2, 4)
    told = bl.explain_compile(module, x)
    assert len(told.graphs) == 2
    assert "print" in told.breaks[0]
    with torch.no_grad():
        assert_same(by_backend(module)(x), module(x))
    assert capsys.readouterr().out.count("between") == 3


def test_reorders_are_told_by_the_modules_own_names() -> None:
    told = bl.explain_compile(networks.with_statistics(networks.ResNet()), drawn(1, 3, 64, 64))
    [plan] = told.sessions[0].plans
    assert "layer1.0.conv1" in {step.kernel for step in plan.steps}
    assert [entry.input for entry in plan.entries] == ["x"]
    assert all(each.reason in str(told) for each in plan.reorders)


# Types


@pytest.mark.needs_bf16
def test_autocast_computes_in_bf16() -> None:
    module, x = networks.with_statistics(networks.ResNet()), drawn(2, 3, 48, 48)
    compiled = by_backend(module)
    with torch.inference_mode():
        exact = module(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got, want = compiled(x), module(x)
        assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
        assert (got - exact).abs().max() <= 0.05 * exact.abs().max()
        assert_same(compiled(x), exact)  # outside it is f32 again


@pytest.mark.needs_bf16
def test_tensors_in_bf16_cross_the_border() -> None:
    module = networks.with_statistics(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())).to(torch.bfloat16)
    for format_ in (torch.contiguous_format, torch.channels_last):
        x = drawn(2, 3, 9, 9).to(torch.bfloat16).to(memory_format=format_)
        with torch.no_grad():
            compiled = bl.compile(module, (x,))
            assert_same(compiled(x), module(x), rel=2e-2)
        assert compiled.plan.config.dtype == "bf16"


@pytest.mark.needs_bf16
def test_a_module_in_f32_is_computed_in_bf16_where_asked() -> None:
    module, x = networks.with_statistics(networks.ResNet()), drawn(2, 3, 48, 48)
    with torch.no_grad():
        compiled = bl.compile(module, (x,), dtype="bf16")
        assert_same(compiled(x), module(x), rel=0.05)
    assert compiled.plan.config.dtype == "bf16"
    assert bl.compile(module, (x,)).plan.config.dtype == "f32"


# Programs of torch.export


def test_an_exported_program_loads() -> None:
    module, x = networks.with_statistics(networks.ResNet()), drawn(2, 3, 48, 48)
    session = bl.load(torch.export.export(module, (x,)))
    assert [info.name for info in session.get_inputs()] == ["x"]
    np.testing.assert_allclose(session(x.numpy()), module(x).detach().numpy(), rtol=0, atol=1e-5 * 50)


def test_casts_of_an_exported_program_are_read() -> None:
    """Before each, it asserts what the tensor is."""

    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return self.linear(x.to(torch.float32)).float()

    module, x = networks.with_statistics(Cast()), drawn(2, 8)
    session = bl.load(torch.export.export(module, (x,)))
    np.testing.assert_allclose(session(x.numpy()), module(x).detach().numpy(), rtol=0, atol=1e-5)


def test_an_exported_programs_order_of_dimensions_is_the_arrays() -> None:
    module = networks.with_statistics(nn.Conv2d(3, 8, 3))
    x = drawn(1, 3, 8, 8).to(memory_format=torch.channels_last)
    program = torch.export.export(module, (x,))
    session = bl.load(program)
    assert [str(info.layout) for info in (*session.get_inputs(), *session.get_outputs())] == ["nhwc", "nhwc"]
    with torch.no_grad():
        want = module(x).permute(0, 2, 3, 1).numpy()
    np.testing.assert_allclose(session(x.permute(0, 2, 3, 1).numpy()), want, rtol=0, atol=1e-4)
    assert bl.load(program, io_layout={}).get_inputs()[0].shape == (1, 3, 8, 8)


# Errors


def test_training_is_refused_and_shown_the_way() -> None:
    module = networks.with_statistics(nn.Conv2d(3, 8, 3))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"inference_mode\(\) or torch.no_grad\(\)"):
        by_backend(module)(drawn(1, 3, 8, 8))


def test_gradients_that_nobody_needs_are_no_obstacle() -> None:
    module = networks.with_statistics(nn.Conv2d(3, 8, 3)).requires_grad_(requires_grad=False)
    x = drawn(1, 3, 8, 8)
    assert_same(by_backend(module)(x), module(x))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"layuot": "nhwc"}, bl.InputError, "layout"),
        ({"io_layout": {}}, bl.InputError, "follows from"),
        ({"layout": "fastest"}, bl.PlanError, "fastest"),
        ({"threads": 0}, bl.InputError, "threads=0"),
    ],
)
def test_options_are_checked(options: dict[str, Any], error: type[Exception], match: str) -> None:
    x = drawn(1, 3, 8, 8)
    with pytest.raises(error, match=match):
        bl.compile(nn.Conv2d(3, 8, 3), (x,), **options)
    compiled = torch.compile(nn.Conv2d(3, 8, 3), backend=bl.torch.backend, options=options)
    with torch.no_grad(), pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=match):
        compiled(x)


def test_options_reach_the_plan() -> None:
    module, x = networks.with_statistics(networks.ResNet()), drawn(1, 3, 32, 32)
    compiled = bl.compile(module, (x,), layout="nhwc", threads=1)
    assert (compiled.plan.config.policy, compiled.plan.config.n_threads) == ("nhwc", 1)


def test_example_inputs_are_a_tuple() -> None:
    with pytest.raises(bl.InputError, match="give a tuple"):
        bl.compile(nn.ReLU(), drawn(2, 3))


def test_without_pytorch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blocklayout.torch.compiling.find_spec", lambda _: None)
    for call in (lambda: bl.compile(None, ()), lambda: bl.explain_compile(None)):
        with pytest.raises(bl.UnsupportedError, match=r"pip install 'blocklayout\[torch\]'"):
            call()
