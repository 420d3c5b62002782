"""ONNX's own test suite, case by case: what became of it here, and why."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TypeProto, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from bench import light
from blocklayout import load, ops
from blocklayout.errors import UnsupportedError

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
NETWORKS = "light models"

NATIVE, NUMPY, PLAIN, FOLDED, UNSUPPORTED, WRONG = "native", "numpy", "plain", "folded", "unsupported", "wrong"
PASSED = (NATIVE, NUMPY, PLAIN, FOLDED)

_TYPES = {
    "float",
    "float16",
    "bfloat16",
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}


@dataclass(frozen=True)
class Verdict:
    """How one case ended.

    Attributes:
        outcome: ``native``: primitives and views alone; ``numpy``: some node is a function in numpy; ``plain``: some is
            left to the reference; ``folded``: all was computed when the plan was made; ``unsupported``; or ``wrong``:
            another answer, or another error.
        reason: Why it is not native.
    """

    outcome: str
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Case:
    """One case of the suite: a model, and inputs with what they should give.

    Attributes:
        kind: Which part of the suite it is of.
        data: Inputs and results, as many times as the case is tried.
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

    @cached_property
    def in_goal(self) -> bool:
        """Whether it is of ONNX's own operators on floats, integers and booleans.

        Without training and random numbers.
        """
        return not self.is_special and all(
            _is_plain_tensor(value.type) for value in (*self.model.graph.input, *self.model.graph.output)
        )

    @property
    def is_random(self) -> bool:
        """Whether a node gives random numbers, of which extents and data types are compared."""
        return any(ops.facts_of(node.op_type).is_random for node in self.model.graph.node)

    @property
    def is_special(self) -> bool:
        """Whether it is of something that no plan of tensors can hold, whatever the types of its inputs."""
        nodes = self.model.graph.node
        return any(node.domain not in ("", "ai.onnx") for node in nodes) or self.is_random or "train" in self.name


def _is_plain_tensor(type_: TypeProto) -> bool:
    while (kind := type_.WhichOneof("value")) in ("optional_type", "sequence_type"):
        type_ = getattr(type_, kind).elem_type
    if kind != "tensor_type":
        return False
    name = onnx.TensorProto.DataType.Name(type_.tensor_type.elem_type).lower()
    return name in _TYPES


@cache
def cases() -> tuple[Case, ...]:
    """Every case of the suite but the networks of ImageNet size."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own arithmetic overflows
        return tuple(_case(kind, given) for kind in KINDS for given in load_model_tests(kind=kind))


@cache
def networks() -> tuple[Case, ...]:
    """The suite's networks of ImageNet size, their weights generated; gigabytes, and a minute to run."""
    return tuple(_network(given) for given in load_model_tests(kind="real"))


def _network(given: Any) -> Case:
    proto, inputs, outputs = light.smoke_case(given.model_name)
    data = ((tuple(inputs.values()), tuple(outputs.values())),)
    return Case(given.name, NETWORKS, proto, data, given.rtol, given.atol)


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


def with_constant(case: Case, index: int) -> Case:
    """The case with one of its inputs known beforehand.

    Args:
        case: Of one set of data.
        index: Which input.
    """
    [(sources, results)] = case.data
    proto = onnx.ModelProto()
    proto.CopyFrom(case.model)
    name = proto.graph.input.pop(index).name
    proto.graph.initializer.append(numpy_helper.from_array(sources[index], name))
    rest = tuple(source for each, source in enumerate(sources) if each != index)
    return replace(case, model=proto, data=((rest, results),))


_VERDICTS: dict[str, Verdict] = {}


def verdict_on(case: Case) -> Verdict:
    """The verdict on a case, which is run once in a process, and whose plan takes the place of none that is kept."""
    if case.name not in _VERDICTS:
        _VERDICTS[case.name] = judge(case, tune="model")
    return _VERDICTS[case.name]


def judge(case: Case, **options: Any) -> Verdict:
    """Run a case and compare, with the comparison and the tolerances of ONNX's own runner.

    Args:
        case: The case.
        options: Those of :func:`blocklayout.load`.
    """
    try:
        session = _quietly(load, case.model, **options)
        names = [info.name for info in session.get_inputs()]
        for sources, results in case.data:
            outputs = _quietly(session.run, None, dict(zip(names, sources, strict=False)))
            if case.is_random:  # ONNX says nothing of the generator
                outputs = tuple(
                    theirs if (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype) else ours
                    for ours, theirs in zip(outputs, results, strict=True)
                )
            with np.errstate(all="ignore"):
                Runner.assert_similar_outputs(_with_rows(results), _with_rows(outputs), case.rtol, case.atol)
    except UnsupportedError as error:
        return Verdict(UNSUPPORTED, str(error))
    except AssertionError as error:
        return Verdict(WRONG, " ".join(str(error).split())[:300])
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the verdict
        return Verdict(WRONG, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return _way(session)


def _quietly(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return function(*args, **kwargs)


def _with_rows(results: Sequence[Any]) -> list[Any]:
    """Scalars in sequences as rows of one element: ONNX's runner takes their lengths."""
    return [[np.atleast_1d(part) for part in each] if isinstance(each, list) else each for each in results]


def _pieces(of: Any) -> list[Any]:
    """The pieces of a session or a plan book that is cut, and of the books that they run."""
    own = [] if of.pieces is None else [*of.pieces]
    return own + [piece for each in own for inner in each.books for piece in _pieces(inner)]


def _way(session: Any) -> Verdict:
    plans = session.plans
    calls = [piece for piece in _pieces(session) if piece.by]
    plain = [step.reason for plan in plans for step in plan.plain_steps]
    plain += [piece.reason for piece in calls if piece.by != "numpy"]
    if plain:
        return Verdict(PLAIN, plain[0])
    in_numpy = [piece.reason for piece in calls]
    in_numpy += [step.reason for plan in plans for step in plan.steps if step.spec.kind == "numpy"]
    if in_numpy:
        return Verdict(NUMPY, in_numpy[0])
    if any(plan.steps or plan.entries for plan in plans):
        return Verdict(NATIVE)
    return Verdict(FOLDED, "every output follows from constants and extents")
