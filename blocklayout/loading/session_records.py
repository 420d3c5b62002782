"""Contents of a session file beside the tensors, as values that JSON holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct, field

from blocklayout.dtypes import to_numpy
from blocklayout.errors import ModelError
from blocklayout.plan.plan import Plan
from blocklayout.runtime.inputs import InputInfo, OutputInfo

VERSION = 2
"""Bump on incompatible format changes."""

IN_PIECES = 3
"""Version of files with a model in pieces, which readers of :data:`VERSION` alone would take for one without plans."""

SEVERAL = 4
"""Version of files with sessions for several instruction sets."""


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
        if min(self.shape, default=0) < 0 or tensor_of(tensors, self.tensor).nbytes < nbytes:
            raise ModelError(f"tensor {self.tensor} does not hold {self.shape} of {self.dtype}")
        try:
            return tensors[self.tensor][:nbytes].view(dtype).reshape(self.shape)
        except ValueError as error:  # no elements, and extents beyond all bounds
            raise ModelError(f"tensor {self.tensor} cannot be {self.shape} of {self.dtype}: {error}") from None


class PlanRecord(Struct, frozen=True):
    """A plan with what it needs; see :class:`~blocklayout.runtime.workspace.ReadyPlan`."""

    plan: Plan
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    packed: dict[int, str]
    constants: dict[str, ArrayRecord]
    contents: dict[str, ArrayRecord]


class AttributeRecord(Struct, frozen=True):
    """An attribute of a node: a number, a text or a list of them, or an array."""

    value: Any = None
    array: ArrayRecord | None = None


class NodeRecord(Struct, frozen=True):
    """A node, without subgraphs; see :class:`~blocklayout.model.graph.Node`."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, AttributeRecord]
    domain: str


class PartRecord(Struct, frozen=True, kw_only=True):
    """A session, or that of a piece or subgraph.

    Attributes:
        inputs: The model's.
        outputs: The model's.
        defaults: Inputs that may be left out.
        plans: With what they need.
        pieces: Those of a model that is cut.
        rows: As :class:`~blocklayout.runtime.Signature` has them.
    """

    inputs: tuple[InputInfo, ...]
    outputs: tuple[OutputInfo, ...]
    defaults: tuple[InputInfo, ...]
    plans: tuple[PlanRecord, ...]
    pieces: PiecesRecord | None = None
    rows: tuple[tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[int, ...]], ...] = ()


class SubgraphRecord(Struct, frozen=True):
    """A subgraph seen from without, with its sessions; see :class:`~blocklayout.loading.cutting.SubgraphInfo`."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    read: tuple[str, ...]
    computed: tuple[str, ...]
    constants: dict[str, ArrayRecord]
    results: tuple[ArrayRecord, ...]
    carried: dict[str, str]
    lasting: tuple[str, ...]
    sessions: tuple[PartRecord, ...]


class PieceRecord(Struct, frozen=True):
    """A piece of a model.

    Attributes:
        kind: ``straight`` where plans compute it; ``call`` where functions do.
        name: As the piece's.
        inputs: As the piece's.
        outputs: As the piece's.
        reason: Why the model is cut here.
        by: How a node is computed without a plan.
        opset: Version of ONNX's operator set.
        nodes: The node that is called; of a straight piece, those that are computed one by one where that is quick.
        constants: Those that these read.
        captured: Names of what subgraphs read of the graph around them.
        subgraphs: The node's, by attribute.
        session: A straight piece's.
    """

    kind: Literal["straight", "call"]
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reason: str
    by: str
    opset: int
    nodes: tuple[NodeRecord, ...] = ()
    constants: dict[str, ArrayRecord] = field(default_factory=dict)
    captured: tuple[str, ...] = ()
    subgraphs: dict[str, SubgraphRecord] = field(default_factory=dict)
    session: PartRecord | None = None


class PiecesRecord(Struct, frozen=True):
    """The pieces of a model in order.

    Attributes:
        name: The model's.
        constants: Those that calls read, and outputs that are constants, by name.
        pieces: The pieces.
    """

    name: str
    constants: dict[str, ArrayRecord]
    pieces: tuple[PieceRecord, ...]


class SessionRecord(PartRecord, frozen=True, kw_only=True):
    """Contents of a session file beside the tensors.

    Attributes:
        version: Of the format.
        halved: Tensors that plans have in f32 and the file in f16.
    """

    version: int
    halved: tuple[str, ...] = ()


class TargetRecord(Struct, frozen=True):
    """A session in a file of several.

    Attributes:
        record: The tensor that holds its :class:`SessionRecord` as JSON, filled up with zeros.
        tensors: Names of its tensors in the file, by those that its record has for them.
    """

    record: str
    tensors: dict[str, str]


class TargetsRecord(Struct, frozen=True):
    """Contents of a file of several sessions beside the tensors.

    Attributes:
        version: Of the format.
        targets: By the instruction set that each is for.
    """

    version: int
    targets: dict[Annotated[str, Meta(pattern="^[a-z][a-z0-9_]*$")], TargetRecord]


class VersionRecord(Struct, frozen=True):
    """The version, which all session files have."""

    version: int


def tensor_of(tensors: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """A tensor of the file.

    Raises:
        ModelError: There is none of that name.
    """
    if name not in tensors:
        raise ModelError(f"there is no tensor {name}")
    return tensors[name]
