"""From a model that no single plan can compute to its pieces: sessions, and calls of the nodes between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from blocklayout import model
from blocklayout.resource_limits import check_time
from blocklayout.runtime.forking import Lock
from blocklayout.runtime.pieces import MAX_QUICK_NBYTES, Call, Pieces, Straight

if TYPE_CHECKING:
    from blocklayout.loading.signature import Opened
    from blocklayout.model import Node, OnnxModel
    from blocklayout.model.branches import Branch
    from blocklayout.model.cutting import Cut
    from blocklayout.runtime import InputInfo, OutputInfo, Session
    from blocklayout.runtime.pieces import Piece, Values

    class Open(Protocol):
        """Makes a session of a piece; the first one reads nothing but what the caller feeds."""

        def __call__(self, opened: OnnxModel, *, is_first: bool) -> Session: ...


class Cutter(Struct, frozen=True, eq=False):
    """Makes the pieces of a model.

    Attributes:
        opened: The model.
        open: Makes a session of a piece.
        inputs: The model's, as its caller holds them.
        outputs: Likewise.
    """

    opened: Opened
    open: Open
    inputs: Sequence[InputInfo]
    outputs: Sequence[OutputInfo]

    def pieces(self, error: model.DependsOnDataError | None) -> Pieces:
        """The model in pieces.

        Args:
            error: Says what only data settle; without, the model is cut at what it always is.

        Raises:
            DependsOnDataError: A graph with all extents cannot be cut: ``error`` itself.
        """
        whole = model.open_model(self.opened)
        if not isinstance(whole, model.OnnxModel):
            raise error or TypeError(whole)
        reasons = model.always_cut(whole)
        if error is not None:
            reasons |= model.reasons_of(whole, error.origin, str(error).partition(";")[0])
        cuts = model.pieces_of(whole, reasons)
        if error is not None and not any(cut.reason for cut in cuts):
            raise error
        pieces = [self._piece(whole, cut, number, is_alone=len(cuts) == 1) for number, cut in enumerate(cuts, 1)]
        read = {name for cut in cuts if cut.reason for name in cut.nodes[0].inputs}
        wanted = read | {info.name for info in whole.signature.outputs}
        constants = {name: array for name, array in whole.constants.items() if name in wanted}
        return Pieces(whole.name, self.inputs, self.outputs, constants, pieces)

    def _piece(self, whole: OnnxModel, cut: Cut, number: int, *, is_alone: bool) -> Piece:
        if not cut.reason:
            return self._straight(whole, cut, number)
        [node] = cut.nodes
        node = node if node.name else node.replace(name=f"{node.op_type} of {' '.join(filter(None, cut.outputs))}")
        call = partial(Call, name=node.name, inputs=node.inputs, outputs=node.outputs, reason=cut.reason)
        if model.function_of(node, whole.opset, {}) is not None:
            bodies = {
                key: _Body(_with_constants(branch, whole), whole.opset, f"{node.name}.{key}", self)
                for key, branch in model.branches_of(node).items()
            }
            function = partial(_call, node, whole.opset, bodies)
            return call(by="numpy", function=function, running=partial(_sessions, bodies))
        if is_alone:  # no contents of small inputs settle it
            function = partial(model.checked_call, node, model.by_reference(node, whole.opset))
            return call(by="onnx.reference", function=function)
        return self._straight(whole, replace(cut, outputs=tuple(filter(None, cut.outputs))), number)

    def _straight(self, whole: OnnxModel, cut: Cut, number: int) -> Straight:
        name = f"{whole.name}, piece {number}"
        declared = {info.name: info for info in (*whole.signature.outputs, *whole.signature.inputs)}
        is_first = {info.name for info in self.inputs} >= {*cut.inputs}

        def start(values: Values) -> Session:
            inputs = [model.info_of(each, values.get(each), declared.get(each)) for each in cut.inputs]
            return self.open(model.straight_model(whole, cut, inputs, name), is_first=is_first)

        straight = Straight(name=name, inputs=cut.inputs, outputs=cut.outputs, reason=cut.reason, open=start)
        if not is_first and not cut.reason:
            straight.by_arrays = model.by_arrays(cut, whole, MAX_QUICK_NBYTES)
        return straight


def _sessions(bodies: Mapping[str, _Body]) -> list[Session]:
    return [session for body in bodies.values() for session in body.sessions]


def _with_constants(branch: Branch, whole: OnnxModel) -> Branch:
    """A subgraph to which constants of the graph around it are constants, too: they are packed once.

    Results that are copies are the values themselves, such as a condition that nothing changes.
    """
    branch = model.without_copies(branch)
    around = {name: whole.constants[name] for name in branch.captured if name in whole.constants}
    return replace(branch, constants={**branch.constants, **around})


def _call(node: Node, opset: int, bodies: Mapping[str, _Body], given: Sequence[Any]) -> list[Any]:
    """Compute a node, its subgraphs on what they capture."""
    captured = dict(zip(reversed(model.captured_by(node)), reversed(given), strict=False))
    bound = {key: _Bound(body, captured) for key, body in bodies.items()}
    function = model.function_of(node, opset, bound) or model.by_reference(node, opset)
    return model.checked_call(node, function, given[: len(given) - len(captured)])


class _Body:
    """A subgraph as a function: a session for each kind of what it is given."""

    def __init__(self, branch: Branch, opset: int, name: str, cutter: Cutter) -> None:
        self.branch = branch
        self._opset = opset
        self._name = name
        self._open = cutter.open
        self._written = {name for node in branch.nodes for name in node.outputs}
        self._read = dict.fromkeys(
            name
            for node in branch.nodes
            for name in node.inputs
            if name and name not in self._written and name not in branch.constants
        )
        self._by_kind: dict[tuple[Any, ...], Session] = {}
        self._lock = Lock()

    @property
    def sessions(self) -> list[Session]:
        return list(self._by_kind.values())

    def run(self, given: Values) -> list[Any]:
        """Its results, for values by name."""
        check_time(self._name)
        branch = self.branch
        values = {**branch.constants, **given}
        names = [name for name in dict.fromkeys(branch.outputs) if name in self._written]
        if names:
            fed = {name: values[name] for name in self._read}
            values.update(zip(names, self._session(fed).run(names, fed), strict=True))
        return [values[name] for name in branch.outputs]

    def _session(self, fed: Values) -> Session:
        kind = tuple(type(each) if each is None or isinstance(each, list) else each.dtype for each in fed.values())
        with self._lock:
            if kind not in self._by_kind:
                inputs = [model.info_of(name, value) for name, value in fed.items()]
                body = model.body_model(self.branch, inputs, self._opset, self._name)
                self._by_kind[kind] = self._open(body, is_first=False)
            return self._by_kind[kind]


class _Bound(Struct, frozen=True, eq=False):
    """A subgraph with what it reads of the graph around it."""

    body: _Body
    captured: Values

    @property
    def results(self) -> Sequence[Any]:
        return self.body.branch.results

    def __call__(self, *arguments: Any) -> list[Any]:
        return self.body.run({**self.captured, **dict(zip(self.body.branch.inputs, arguments, strict=True))})
