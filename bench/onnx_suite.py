"""ONNX's own test suite, case by case: what became of it here, and why."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TypeProto, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from blocklayout import dnnl, model, onnx_backend, plan
from blocklayout.errors import UnsupportedError
from blocklayout.layout import MemoryDesc
from blocklayout.plan.costs import CostModel
from blocklayout.plan.fuse import fuse
from blocklayout.plan.network import propose_all
from blocklayout.plan.propose import Proposer

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")

NATIVE, PLAIN, FOLDED, UNSUPPORTED, WRONG = "native", "plain", "folded", "unsupported", "wrong"
PASSED = (NATIVE, PLAIN, FOLDED)

_TYPES = {
    "float",
    "float16",
    "bfloat16",
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_CONTROL_FLOW = {"If", "Loop", "Scan", "SequenceMap"}
_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
_TRAINING = {"Adam", "Adagrad", "Momentum", "Gradient"}


@dataclass(frozen=True)
class Verdict:
    """How one case ended.

    Attributes:
        outcome: ``native``: no step is left to the reference; ``plain``: some is; ``folded``: all was computed
            when the plan was made; ``unsupported``; or ``wrong``: another answer, or another error.
        reason: Why it is not native.
    """

    outcome: str
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Case:
    """One case of the suite: a model, and inputs with what they should give.

    Attributes:
        kind: Which part of the suite it is of.
        in_goal: Whether it holds tensors of floats, integers and booleans only, without control flow,
            training or random numbers.
    """

    name: str
    kind: str
    model: onnx.ModelProto
    data: tuple[tuple[Sequence[Any], Sequence[Any]], ...]
    rtol: float
    atol: float

    @property
    def op_type(self) -> str:
        """The operator a node case is about; of its expansion into a function body, the operator's own name."""
        nodes = self.model.graph.node
        return str(nodes[0].op_type) if len(nodes) == 1 else self.name

    @property
    def in_goal(self) -> bool:
        nodes = list(self.model.graph.node)
        if any(node.domain not in ("", "ai.onnx") for node in nodes):
            return False
        if {node.op_type for node in nodes} & (_CONTROL_FLOW | _RANDOM | _TRAINING):
            return False
        if any(attr.name == "training_mode" and attr.i for node in nodes for attr in node.attribute):
            return False
        values = [*self.model.graph.input, *self.model.graph.output]
        return (
            "training" not in self.name and "train" not in self.name and all(_is_plain_tensor(v.type) for v in values)
        )


def _is_plain_tensor(type_: TypeProto) -> bool:
    if type_.WhichOneof("value") != "tensor_type":
        return False
    name = onnx.TensorProto.DataType.Name(type_.tensor_type.elem_type).lower()
    return name in _TYPES


@cache
def cases() -> tuple[Case, ...]:
    """Every case of the suite but the large models."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own arithmetic overflows
        return tuple(_case(kind, given) for kind in KINDS for given in load_model_tests(kind=kind))


def _case(kind: str, given: Any) -> Case:
    if given.model is not None:
        data = tuple((tuple(map(_array, sources)), tuple(map(_array, results))) for sources, results in given.data_sets)
        return Case(given.name, kind, given.model, data, given.rtol, given.atol)
    folder = Path(given.model_dir)
    proto = onnx.load(str(folder / "model.onnx"))
    sets = sorted(folder.glob("test_data_set_*"))
    data = tuple(
        (_stored(each, "input", proto.graph.input), _stored(each, "output", proto.graph.output)) for each in sets
    )
    return Case(given.name, kind, proto, data, given.rtol, given.atol)


def _array(item: Any) -> Any:
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item


def _stored(folder: Path, what: str, infos: Sequence[onnx.ValueInfoProto]) -> tuple[Any, ...]:
    found: list[Any] = []
    for index in range(len(list(folder.glob(f"{what}_*.pb")))):
        content = (folder / f"{what}_{index}.pb").read_bytes()
        if infos[index].type.WhichOneof("value") == "tensor_type":
            found.append(numpy_helper.to_array(onnx.TensorProto.FromString(content)))
        else:
            found.append(content)
    return tuple(found)


_VERDICTS: dict[str, Verdict] = {}


def judged() -> dict[str, Verdict]:
    """The verdict on every case, by name."""
    return {case.name: verdict_on(case) for case in cases()}


def verdict_on(case: Case) -> Verdict:
    """The verdict on a case, which is run once in a process."""
    if case.name not in _VERDICTS:
        _VERDICTS[case.name] = judge(case)
    return _VERDICTS[case.name]


def judge(case: Case) -> Verdict:
    """Run a case and compare."""
    try:
        prepared = onnx_backend.prepare(case.model)
        for sources, results in case.data:
            outputs = prepared.run(list(sources))
            with np.errstate(all="ignore"):
                Runner.assert_similar_outputs(results, outputs, case.rtol, case.atol)
    except UnsupportedError as error:
        return Verdict(UNSUPPORTED, str(error))
    except AssertionError as error:
        return Verdict(WRONG, " ".join(str(error).split())[:300])
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the verdict
        return Verdict(WRONG, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return _way(prepared.session)


def _way(session: Any) -> Verdict:
    made = session.plan
    if made.plain_steps:
        return Verdict(PLAIN, made.plain_steps[0].reason)
    if made.steps or made.entries:
        return Verdict(NATIVE)
    return Verdict(FOLDED, "every output follows from constants and extents")


def layouts_of(case: Case) -> set[str]:
    """The layouts in which primitives other than reference implementations compute a case's kernels."""
    sources, _ = case.data[0]
    names = [info.name for info in case.model.graph.input]
    arrays = dict(zip(names, sources, strict=False))
    inits = {tensor.name for tensor in case.model.graph.initializer}
    shapes = {name: array.shape for name, array in arrays.items() if name not in inits}
    constants = {name: array for name, array in arrays.items() if array.dtype == np.int64 and name not in inits}
    try:
        graph = model.read(case.model, {k: v for k, v in shapes.items() if k not in constants}, constants)
        program = model.lower(model.simplify(graph))
    except Exception:  # noqa: BLE001  # some other input decides extents: the other cases of the operator will do
        return set()
    machine = plan.Machine(dnnl.isa(), 1)
    network = propose_all(program, fuse(program, "f32", 1), Proposer(CostModel(machine), "f32"))
    taken = [each for candidates in network.candidates for each in candidates if each.steps and not each.is_reference]
    return {_layout_class(desc) for each in taken for desc in (each.dst, *each.source_descs.values())}


def _layout_class(desc: MemoryDesc) -> str:
    if desc.inner_blks:
        return "blocked"
    if 3 <= desc.ndims <= 5 and desc.is_contiguous("channels_last") and not desc.is_contiguous("channels_first"):
        return "channels last"
    return "plain"
