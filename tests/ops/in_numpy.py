"""Runs an operator's function in numpy in a layout, and compares with ONNX's reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from blocklayout import dnnl
from blocklayout.dtypes import from_numpy
from blocklayout.ir import HostSpec, NodeInfo, Problem, Recipe, TensorInfo, Value, Wish
from blocklayout.ops import functions
from blocklayout.runtime.host import HostExecution, HostMemory, host_function
from tests.ops.harness import assert_padding_is_zero, packed, poisoned

OPSET = 24
RNG = np.random.default_rng(3)
IMAGE = (2, 17, 3, 5)


def floats(*dims: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(dims).astype(dtype)


def integers(*dims: int, low: int = -9, high: int = 9, dtype: str = "int64") -> np.ndarray:
    return RNG.integers(low, high, dims).astype(dtype)


def scalar(number: float, dtype: str = "int64") -> np.ndarray:
    return np.array(number, dtype)


class Case(Struct, frozen=True, eq=False):
    """A node with its inputs; ``None`` is one left out."""

    op_type: str
    sources: Sequence[np.ndarray | None]
    attrs: dict[str, Any] = {}
    n_outputs: int = 1
    opset: int = OPSET

    def __str__(self) -> str:
        given = ",".join("-" if each is None else f"{each.dtype}{list(each.shape)}" for each in self.sources)
        return f"{self.op_type}({given}){self.attrs or ''}"

    @property
    def names(self) -> list[str]:
        return ["" if each is None else f"x{place}" for place, each in enumerate(self.sources)]

    @property
    def feed(self) -> dict[str, np.ndarray]:
        return {name: each for name, each in zip(self.names, self.sources, strict=True) if each is not None}

    def expected(self) -> list[np.ndarray]:
        outputs = [f"y{place}" for place in range(self.n_outputs)]
        node = helper.make_node(self.op_type, self.names, outputs, **self.attrs)
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
            for name, each in self.feed.items()
        ]
        results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
        graph = helper.make_graph([node], "one", infos, results)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        with np.errstate(all="ignore"):
            found: Any = ReferenceEvaluator(model).run(None, self.feed)
        return [np.asarray(each) for each in found]

    def node(self, results: Sequence[np.ndarray]) -> NodeInfo:
        def value(name: str, array: np.ndarray | None) -> Value | None:
            return None if array is None else Value(name, array.shape, from_numpy(array.dtype))

        inputs = tuple(map(value, self.names, self.sources))
        outputs = tuple(value(f"y{place}", each) for place, each in enumerate(results))
        return NodeInfo("own", self.op_type, self.attrs, inputs, outputs, self.opset)


def computed(case: Case, results: Sequence[np.ndarray], layout: str = "plain") -> list[np.ndarray] | None:
    """The node's results by its function in numpy, in a layout; ``None`` where it does not compute in that."""
    operator = functions.operator_of(case.node(results))
    assert operator is not None
    problem = Problem({}, {}, TensorInfo(results[0].shape or (1,), from_numpy(results[0].dtype)), 1)
    recipe = operator.lower(problem, Wish(layout, layout), dnnl.Attr())
    return None if recipe is None else _run(recipe, list(case.feed.values()), results)


def _run(recipe: Recipe, sources: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> list[np.ndarray]:
    [spec] = [step.spec for step in recipe.steps if isinstance(step.spec, HostSpec) and step.spec.node]
    descs = dict(spec.descs)
    buffers = {f"src_{place}": packed(descs[f"src_{place}"], array) for place, array in enumerate(sources)}
    written = {arg: poisoned(desc) for arg, desc in descs.items() if arg.startswith("dst")}
    for step in recipe.steps:
        assert isinstance(step.spec, HostSpec)
        function = host_function(step.spec, functions.compute_of(step.spec) if step.spec.node else None)
        memories = {
            arg: HostMemory(step.spec.memory_desc(arg), (buffers | written)[operand]) for arg, operand in step.operands
        }
        HostExecution(function, memories).run()
    for arg, buffer in written.items():
        assert_padding_is_zero(descs[arg], buffer)
    shaped = zip(written.items(), results, strict=True)
    return [descs[arg].unpack(buffer).reshape(each.shape) for (arg, buffer), each in shaped]


def check(case: Case, layouts: Sequence[str] = ("plain",), tolerance: float = 2e-6) -> set[str]:
    """Compare with the reference; the layouts that it computes in."""
    expected, ran = case.expected(), set()
    for layout in layouts:
        found = computed(case, expected, layout)
        if found is None:
            continue
        ran.add(layout)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours.astype("f8"), theirs.astype("f8"), rtol=tolerance, atol=tolerance)
    return ran


SPECIAL = floats(*IMAGE)
SPECIAL[0, 0, 0, :3] = np.nan, np.inf, -np.inf
SIGNED = integers(*IMAGE)
ROWS = floats(3, 4, 5)
