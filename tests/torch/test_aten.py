"""PyTorch programs as networks: PyTorch's samples of each operator, whole modules, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout.errors import ModelError, UnsupportedError

pytest.importorskip("torch", reason="torch is not installed")

import torch
from torch import nn
from torch.utils import _pytree as pytree

from blocklayout.torch import graph as reading
from blocklayout.torch.aten_writer import TABLE
from blocklayout.torch.graph import Read, graph_of, read_fx
from tests.torch.nets import NETS, BasicBlock, ResNet, image, randomized
from tests.torch.single import CASES, single

if TYPE_CHECKING:
    from tests.torch.opinfo import Outcome

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attribute.*:UserWarning"),
]


def program_of(module: nn.Module, *inputs: torch.Tensor) -> Any:
    with torch.no_grad():
        return torch.export.export(module.eval(), inputs)


def read_exported(program: Any) -> Read:
    return read_fx(graph_of(program))


def run(read: Read, *inputs: torch.Tensor) -> list[np.ndarray]:
    feed = {name: tensor.numpy() for name, tensor in zip(read.inputs, inputs, strict=True)}
    return list(bl.load(read.builder, tune="model").run(None, feed))


def check_equal(found: list[np.ndarray], right: Any) -> None:
    for array, tensor in zip(found, pytree.tree_leaves(right), strict=True):
        scale = tensor.double().abs().max().item()
        np.testing.assert_allclose(array, tensor.detach().numpy(), rtol=1e-5, atol=1e-5 * scale)


# Modules.


@pytest.mark.parametrize("name", NETS)
def test_modules_compute_what_pytorch_computes(name: str) -> None:
    torch.manual_seed(0)
    make, make_input = NETS[name]
    module, x = randomized(make()), make_input()
    check_equal(run(read_exported(program_of(module, x)), x), module(x))


@pytest.mark.parametrize("name", ["resnet", "encoder_layer", "vit", "norms"])
def test_graphs_of_torch_compile_are_read(name: str) -> None:
    from torch._functorch.aot_autograd import aot_module_simplified

    torch.manual_seed(0)
    make, make_input = NETS[name]
    module, x = randomized(make()), make_input()
    names: list[tuple[str, ...]] = []

    def compiled(graph: Any, given: Any) -> Any:
        del given
        read = read_fx(graph)
        session = bl.load(read.builder, tune="model")
        names.append(tuple(node.name for node in read.builder.to_graph().nodes))

        def call(*tensors: torch.Tensor) -> Any:
            feed = {name: tensor.detach().numpy() for name, tensor in zip(read.inputs, tensors, strict=True)}
            return [torch.from_numpy(array) for array in session.run(None, feed)]

        return call

    def backend(graph: Any, given: Any) -> Any:
        return aot_module_simplified(graph, given, fw_compiler=compiled, decompositions=reading.decompositions())

    with torch.no_grad():
        check_equal([np.asarray(torch.compile(module, backend=backend, fullgraph=True)(x))], module(x))
    if name == "resnet":
        assert {"layer1.0.conv1", "layer1.0.relu", "stem.0.0", "fc"} <= set(names[0])


def test_nodes_are_named_after_modules() -> None:
    graph = read_exported(program_of(ResNet(), image(3, 33))).builder.to_graph()
    names = {node.name: node.op_type for node in graph.nodes}
    wanted = {"layer1.0.conv2": "Conv", "layer1.1.bn1": "BatchNormalization", "layer1.0.add": "Add", "fc": "Gemm"}
    assert wanted.items() <= names.items()
    assert "layer1.0.downsample.0.weight" in graph.values


def test_parameters_are_shared() -> None:
    module = ResNet().eval()
    graph = read_exported(program_of(module, image(3, 33))).builder.to_graph()
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if "num_batches" not in name:
            assert np.shares_memory(graph.values[name].data, tensor.detach().numpy()), name


def test_a_program_that_needs_no_decomposition_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2)).eval()
    program = program_of(module, image(3, 3))
    monkeypatch.setattr(type(program), "run_decompositions", None)
    assert len(read_exported(program).builder.to_graph().nodes) == 5


@pytest.mark.filterwarnings("ignore:the model is declared in f16", "ignore::blocklayout.errors.PlainKernelWarning")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_types_of_floats(dtype: str) -> None:
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    module, x = randomized(BasicBlock()).to(kind), image(8).to(kind)
    read = read_exported(program_of(module, x))
    (found,) = bl.load(read.builder, tune="model").run(None, {read.inputs[0]: reading.as_array(x, "x")})
    right = reading.as_array(module(x), "y")
    assert found.dtype == right.dtype
    found, right = found.astype(np.float64), right.astype(np.float64)
    np.testing.assert_allclose(found, right, atol=(1e-5 if dtype == "float64" else 2e-2) * np.abs(right).max())


class Calling(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def test_outputs_may_be_inputs_constants_numbers_and_none() -> None:
    x = torch.randn(2, 3)
    program = program_of(Calling(lambda x: (x, None, torch.ones(2), 3, x + 1, x)), x)
    read = read_exported(program)
    names = [name for name in read.outputs if isinstance(name, str)]
    assert [name if not isinstance(name, str) else "" for name in read.outputs] == ["", None, "", 3, "", ""]
    results = dict(zip(names, run(read, x), strict=True))
    check_equal([results[name] for name in names], [x, torch.ones(2), x + 1, x])


# What is refused.


class WithDeterminant(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.det(x)


def test_an_overload_that_is_not_lowered_is_named_with_its_module() -> None:
    module = nn.Sequential(nn.Linear(3, 3), WithDeterminant())
    with pytest.raises(UnsupportedError, match=r"aten\._linalg_det\.default in 1 \(node '_linalg_det'\)"):
        read_exported(program_of(module, torch.randn(2, 3, 3)))


def test_symbols_in_extents_are_refused() -> None:
    x = torch.randn(2, 3)
    program = torch.export.export(nn.ReLU(), (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    with pytest.raises(UnsupportedError, match="fixed ones"):
        read_exported(program)


def test_programs_that_write_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="inference mode only"):
        read_exported(torch.export.export(nn.BatchNorm2d(3).train(), (image(3),)))


def test_a_wrong_lowering_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_of(nn.ReLU(), torch.randn(2, 3))
    monkeypatch.setitem(TABLE, "aten.relu.default", lambda w, x: w.op("Transpose", x))
    with pytest.raises(ModelError, match=r"aten\.relu\.default in .* was lowered to f32 \(3, 2\); .* f32 \(2, 3\)"):
        read_exported(program)


# PyTorch's samples.


@pytest.mark.parametrize(("name", "given"), CASES, ids=[f"{name}-{index}" for index, (name, _) in enumerate(CASES)])
def test_single_overloads_compute_what_pytorch_computes(name: str, given: Any) -> None:
    torch.manual_seed(0)
    graph, tensors, expected = single(name, given)
    for found, right in zip(run(read_fx(graph), *tensors), expected, strict=True):
        check_equal([found], right)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[tuple[str, Outcome]]]:
    """For each overload that is lowered, what became of the first samples with it."""
    pytest.importorskip("expecttest", reason="PyTorch's samples of operators need expecttest")
    from tests.torch.opinfo import outcomes_by_overload

    return outcomes_by_overload(n_each=1, dtypes=(torch.float32, torch.int64), n_samples=1)


def test_no_sample_is_wrong(outcomes: dict[str, list[tuple[str, Outcome]]]) -> None:
    wrong = {f"{op}: {each.error}" for found in outcomes.values() for op, each in found if each.error}
    assert not wrong


def test_most_overloads_are_lowered(outcomes: dict[str, list[tuple[str, Outcome]]]) -> None:
    right = {name for name, found in outcomes.items() if any(not (each.refused or each.error) for _, each in found)}
    assert len(right) > 180
