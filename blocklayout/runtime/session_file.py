"""Sessions in files: plans with their packed weights, ready to run without the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec import Struct, field

from blocklayout.dtypes import from_numpy, to_numpy
from blocklayout.errors import ModelError
from blocklayout.kernels import HostSpec
from blocklayout.layout import FormatTag
from blocklayout.plan.plan import Plan
from blocklayout.plan.saving.codec import MisfitError, from_json, to_json
from blocklayout.runtime.bounds import check_bounds
from blocklayout.runtime.inputs import InputInfo, OutputInfo
from blocklayout.runtime.workspace import ReadyPlan
from blocklayout.tensor.files import is_tensor_text
from blocklayout.tensor.tensor_file import TensorFile, open_tensors, write_tensors

if TYPE_CHECKING:
    from blocklayout.kernels import Compute

    ComputeOf = Callable[[HostSpec], Compute]

VERSION = 1
"""Goes up when a file of before can no longer be read."""

_Info = TypeVar("_Info", bound=InputInfo)


class InfoRecord(Struct, frozen=True):
    """An input or output, as a file tells of it; the format is a oneDNN tag."""

    name: str
    shape: tuple[int | str | None, ...] | None
    dtype: str
    layout: str | None
    is_free: bool

    @classmethod
    def of(cls, info: InputInfo) -> InfoRecord:
        """What is to be told of it."""
        layout = None if info.layout is None else info.layout.text
        return cls(info.name, info.shape, info.dtype, layout, info.is_free)

    def read_as(self, kind: type[_Info]) -> _Info:
        """What is told of.

        Raises:
            LayoutError: No such data type or format.
        """
        to_numpy(self.dtype)
        layout = None if self.layout is None else FormatTag.parse(self.layout)
        return kind(self.name, self.shape, self.dtype, layout, self.is_free)


class ArrayRecord(Struct, frozen=True):
    """An array, and the tensor of the file that begins with its bytes."""

    tensor: str
    dtype: str
    shape: tuple[int, ...]

    def array(self, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
        """The array itself.

        Raises:
            ModelError: The tensor is not there, or too small.
            LayoutError: No such data type.
        """
        dtype = to_numpy(self.dtype)
        nbytes = dtype.itemsize * int(np.prod(self.shape, dtype=object))
        if min(self.shape, default=0) < 0 or _tensor(tensors, self.tensor).nbytes < nbytes:
            raise ModelError(f"tensor {self.tensor} does not hold {self.shape} of {self.dtype}")
        return tensors[self.tensor][:nbytes].view(dtype).reshape(self.shape)


class PlanRecord(Struct, frozen=True):
    """A plan with what it needs; see :class:`~blocklayout.runtime.workspace.ReadyPlan`."""

    plan: Plan
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    packed: dict[int, str]
    constants: dict[str, ArrayRecord]
    contents: dict[str, ArrayRecord]

    def ready(self, tensors: Mapping[str, np.ndarray], compute_of: ComputeOf, *, keeps_denormals: bool) -> ReadyPlan:
        """The plan, ready to run.

        Raises:
            BlockLayoutError: What it needs is not there, or reaches beyond what is.
        """
        packed = {buffer: _tensor(tensors, name) for buffer, name in self.packed.items()}
        check_bounds(self.plan, {buffer: array.nbytes for buffer, array in packed.items()})
        plain = {number: step.spec for number, step in enumerate(self.plan.steps) if isinstance(step.spec, HostSpec)}
        return ReadyPlan(
            plan=self.plan,
            packed=packed,
            constants={name: record.array(tensors) for name, record in self.constants.items()},
            computes={number: compute_of(spec) for number, spec in plain.items() if spec.kind == "plain"},
            contents={name: record.array(tensors) for name, record in self.contents.items()},
            keeps_denormals=keeps_denormals,
        )


class SessionRecord(Struct, frozen=True):
    """All that a file says beside the tensors."""

    version: int
    inputs: tuple[InfoRecord, ...]
    outputs: tuple[InfoRecord, ...]
    defaults: tuple[InfoRecord, ...]
    plans: tuple[PlanRecord, ...]


class _Tensors(Struct):
    """Arrays on their way into a file, each once."""

    found: dict[str, np.ndarray] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def add(self, array: np.ndarray, what: str) -> str:
        """The name under which its bytes are kept."""
        if id(array) not in self.names:
            name = f"{len(self.found)} {what}"
            self.names[id(array)] = name
            self.found[name] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return self.names[id(array)]

    def add_all(self, arrays: Mapping[str, np.ndarray]) -> dict[str, ArrayRecord]:
        return {
            name: ArrayRecord(self.add(array, name), from_numpy(array.dtype), array.shape)
            for name, array in arrays.items()
        }


def write_session(
    path: Path,
    signature: tuple[Sequence[InputInfo], Sequence[OutputInfo], Sequence[InputInfo]],
    plans: Sequence[tuple[tuple[tuple[str, tuple[int, ...]], ...], ReadyPlan]],
) -> None:
    """Write a session's plans with their packed weights.

    Args:
        path: Where.
        signature: Inputs, outputs and defaults.
        plans: Each with the extents it was made for.

    Raises:
        OSError: It cannot be written.
    """
    tensors = _Tensors()
    records = []
    for shapes, ready in plans:
        names = {item.buffer: item.constant for item in ready.plan.constants}
        packed = {buffer: tensors.add(array, names[buffer]) for buffer, array in ready.packed.items()}
        constants, contents = tensors.add_all(ready.constants), tensors.add_all(ready.contents)
        records.append(PlanRecord(ready.plan, shapes, packed, constants, contents))
    inputs, outputs, defaults = (tuple(map(InfoRecord.of, infos)) for infos in signature)
    record = SessionRecord(VERSION, inputs, outputs, defaults, tuple(records))
    write_tensors(path, to_json(record), tensors.found)


def read_session(path: Path) -> tuple[SessionRecord, TensorFile]:
    """What a file says, every field of its type, and its tensors, not yet compared with their checksums.

    Raises:
        ModelError: It is damaged, or of another version; the message names the field.
        OSError: It cannot be read.
    """
    tensors = open_tensors(path)
    if is_tensor_text(tensors.text):
        raise ModelError("the file holds a Tensor, not a session: bl.Tensor.load reads it")
    try:
        record = from_json(SessionRecord, tensors.text)
    except MisfitError as error:
        raise ModelError(f"not a session of this version: {error}") from None
    if record.version != VERSION:
        raise ModelError(f"a session of version {record.version}; this package reads {VERSION}")
    return record, tensors


def _tensor(tensors: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in tensors:
        raise ModelError(f"there is no tensor {name}")
    return tensors[name]
