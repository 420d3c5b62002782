"""Records of calls as networks of a Builder: the forward pass, the backward pass, and updates of parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from blocklayout.dtypes import to_numpy
from blocklayout.eager.operands import Known
from blocklayout.errors import InputError, UnsupportedError
from blocklayout.model import Builder, BuildValue
from blocklayout.model.builder import DEFAULT_OPSET
from blocklayout.model.schemas import opset_with
from blocklayout.model.types import to_elem_type
from blocklayout.operators import Operators
from blocklayout.ops.gradients import DOMAIN
from blocklayout.recording import Entry
from blocklayout.tensor import Tensor
from blocklayout.tensor.indexing import boxed


def written(entry: Entry) -> tuple[Tensor, ...]:
    """The Tensors that a call changes: of an optimizer's, all operands but the second."""
    if "optimizer" not in entry.attrs:
        return ()
    param, _, *states = entry.operands
    return tuple(each for each in (param, *states) if isinstance(each, Tensor))


class RecordGraph:
    """A record as a network: Tensors are told apart by identity.

    Attributes:
        builder: The network.
        optimizers: Those that update Tensors, by the prefixes of the inputs that have their numbers.
    """

    def __init__(self, entries: Sequence[Entry], inputs: Mapping[str, Tensor]) -> None:
        """Write the calls ``entries`` on the Tensors that are fed.

        Raises:
            UnsupportedError: A call that no network has.
            ModelError: As the Builder.
        """
        op_types = [entry.op.op_type for entry in entries if entry.op is not None]
        self.builder = Builder("step", max([DEFAULT_OPSET, *(opset_with(each, DEFAULT_OPSET) for each in op_types)]))
        self.optimizers: dict[str, Any] = {}
        self._numbers: dict[int, list[BuildValue]] = {}
        self._updated: set[tuple[int, int]] = set()
        self._held: list[Any] = [entries, inputs]
        self._values: dict[int, BuildValue] = {
            id(each): self.builder.input(name, each.shape, each.dtype) for name, each in inputs.items()
        }
        for entry in entries:
            if "optimizer" in entry.attrs:
                self._update(entry)
            else:
                self._call(entry)

    def value(self, operand: Any) -> Any:
        """A Tensor's or an array's value; anything else as it is."""
        if isinstance(operand, Known):
            return operand.array()
        if not isinstance(operand, Tensor | np.ndarray):
            return operand
        if id(operand) not in self._values:
            self._held.append(operand)
            self._values[id(operand)] = self.builder.constant(np.asarray(operand))
        return self._values[id(operand)]

    def output(self, name: str, tensor: Tensor) -> None:
        """Return a Tensor that is fed, or that a call gave; an InputError of any other."""
        if id(tensor) not in self._values:
            raise InputError(
                f"compile_step: {name.replace('_', ' ')}, {tensor.desc}, was not computed by recorded functions on "
                "Tensors: compute it by these, or leave it out"
            )
        self.builder.output(name, self._values[id(tensor)])

    def _call(self, entry: Entry) -> None:
        write = _WRITERS.get(entry.function) if entry.op is None else RecordGraph._operator
        if write is None:
            raise UnsupportedError(
                f"compile_step: {entry.function} cannot be part of a plan: compute it outside of the step, and give "
                "its result as an argument"
            )
        made = write(self, entry)
        results = made if isinstance(made, list | tuple) else (made,)
        for tensor, value in zip(entry.results, results, strict=True):
            if isinstance(tensor, Tensor):
                same = value if value.shape == tensor.shape else value.reshape(tensor.shape)
                self._values[id(tensor)] = same

    def _operator(self, entry: Entry) -> Any:
        op, given = entry.op, [self.value(each) for each in entry.operands]
        descs = [each.desc if isinstance(each, Tensor) else each for each in entry.operands]
        dims = op.onnx_dims(descs) if op.onnx_dims else {}
        for place, value in enumerate(given):
            wanted = dims.get(op.argument(place))
            if wanted is not None and value.shape != wanted:
                by_input = (0, 2, 1, *range(3, len(value.shape)))  # of groups, which are in front
                ordered = value.transpose(by_input) if op.name == "conv_transpose" else value
                given[place] = ordered.reshape(wanted)
        while given and given[-1] is None:
            given.pop()
        return op.build(*given, **entry.attrs)

    def _update(self, entry: Entry) -> None:
        param, grad, *states = entry.operands
        optimizer: Any = entry.attrs["optimizer"]
        if entry.attrs["master"] is not None or entry.attrs["scale"] != 1:
            raise UnsupportedError(
                "compile_step: parameters of few bits, with master copies and a loss scale, are updated by no plan: "
                "keep them in f32, and give dtype='bf16'"
            )
        held = [each for each in states if isinstance(each, Tensor)]
        if (id(optimizer), id(param)) in self._updated:
            raise UnsupportedError(
                "compile_step: the optimizer steps twice; let a step of a plan be one of each optimizer"
            )
        self._updated.add((id(optimizer), id(param)))
        if id(optimizer) not in self._numbers:
            prefix = f"optimizer_{len(self.optimizers)}."
            self.optimizers[prefix] = optimizer
            self._numbers[id(optimizer)] = [self.builder.input(prefix + name, (1,)) for name in optimizer.numbers(1)]
        given = (*map(self.value, (grad, param, *held)), *self._numbers[id(optimizer)])
        op_type = f"{DOMAIN}.{optimizer.op_type}"
        made = self.builder.op(op_type, *given, n_outputs=1 + len(held), **optimizer.attrs())
        for tensor, value in zip((param, *held), made if held else (made,), strict=True):
            self._values[id(tensor)] = value


Writer = Callable[[RecordGraph, Entry], Any]


def _as_given(graph: RecordGraph, entry: Entry) -> Any:
    value, (result,) = graph.value(entry.operands[0]), entry.results
    if value.dtype == result.dtype:
        return value.builder.op("Identity", value)
    return value.builder.op("Cast", value, to=to_elem_type(result.dtype))


def _permuted(graph: RecordGraph, entry: Entry) -> Any:
    x, axes = entry.operands
    return graph.value(x).transpose(axes)


def _selected(graph: RecordGraph, entry: Entry) -> Any:
    x, index = entry.operands
    box, lowest = boxed(index, x.desc), np.iinfo(np.int64).min
    starts, steps = (np.array(each) for each in zip(*((line.start, line.step) for line in box), strict=True))
    ends = np.array([line.start + line.step * line.extent for line in box])
    return graph.builder.op("Slice", graph.value(x), starts, np.where(ends < 0, lowest, ends), np.arange(x.ndim), steps)


def _slice_backward(graph: RecordGraph, entry: Entry) -> Any:
    grad, x, index = entry.operands
    desc = x.desc if isinstance(x, Tensor) else x
    box = boxed(index, desc)
    if any(line.step != 1 for line in box):
        raise UnsupportedError("compile_step: the gradient of x[begin:end:step] cannot be part of a plan; give step 1")
    behind = [extent - line.start - line.extent for extent, line in zip(desc.dims, box, strict=True)]
    whole = graph.value(grad).reshape(tuple(line.extent for line in box))
    return graph.builder.op("Pad", whole, np.array([*(line.start for line in box), *behind]))


def _compared(graph: RecordGraph, entry: Entry) -> Any:
    """A comparison, by its definition."""
    x, y = entry.operands
    number = y if isinstance(y, Tensor | np.ndarray) else np.array(y, to_numpy(x.dtype))
    return getattr(Operators, entry.function)(graph.value(x), graph.value(number))


_WRITERS: Mapping[str, Writer] = {
    **dict.fromkeys(("astype", "clone", "reorder", "to", "view"), _as_given),
    **dict.fromkeys(("equal", "greater", "greater_or_equal", "less", "less_or_equal", "not_equal"), _compared),
    "getitem": _selected,
    "permute": _permuted,
    "slice_backward": _slice_backward,
}
"""By the names of functions that are no operators."""
