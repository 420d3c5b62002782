"""From a model that no single plan can compute to its pieces: sessions, and calls of the nodes between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from blocklayout import model
from blocklayout.runtime.forking import Lock
from blocklayout.runtime.pieces import Piece, Pieces

if TYPE_CHECKING:
    from blocklayout.loading.signature import Opened
    from blocklayout.model import Node, OnnxModel
    from blocklayout.model.branches import Branch
    from blocklayout.model.cutting import Cut
    from blocklayout.runtime import InputInfo, OutputInfo, Session
    from blocklayout.runtime.pieces import Values

    Open = Callable[[OnnxModel], Session]


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
            DependsOnDataError: It cannot be cut there: ``error`` itself.
        """
        whole = model.open_model(self.opened)
        assert isinstance(whole, model.OnnxModel)
        reasons = model.always_cut(whole)
        if error is not None:
            reasons |= model.reasons_of(whole, error.origin, str(error))
        if error is not None and not reasons:
            raise error
        cuts = model.pieces_of(whole, reasons)
        pieces = [self._piece(whole, cut, number, is_alone=len(cuts) == 1) for number, cut in enumerate(cuts, 1)]
        read = {name for cut in cuts if cut.reason for name in cut.nodes[0].inputs}
        wanted = read | {info.name for info in whole.signature.outputs}
        constants = {name: array for name, array in whole.constants.items() if name in wanted}
        return Pieces(whole.name, self.inputs, self.outputs, constants, pieces)

    def _piece(self, whole: OnnxModel, cut: Cut, number: int, *, is_alone: bool) -> Piece:
        name = f"{whole.name}, piece {number}"
        if not cut.reason:
            return Piece(name, cut.inputs, cut.outputs, open=partial(self._straight, whole, cut, name))
        [node] = cut.nodes
        if model.function_of(node, whole.opset, {}) is not None:
            bodies = {
                key: _Body(_with_constants(branch, whole), whole.opset, f"{node.name or node.op_type}.{key}", self.open)
                for key, branch in model.branches_of(node).items()
            }
            call = partial(_call, node, whole.opset, bodies)
            sessions = lambda: [session for body in bodies.values() for session in body.sessions]  # noqa: E731
            return Piece(node.name or node.op_type, node.inputs, node.outputs, cut.reason, call, bodies=sessions)
        if is_alone:  # no contents of small inputs settle it
            function = model.by_reference(node, whole.opset)
            call = partial(model.checked_call, node, function)
            return Piece(node.name or node.op_type, node.inputs, node.outputs, cut.reason, call)
        alone = replace(cut, outputs=tuple(filter(None, cut.outputs)))
        return Piece(name, cut.inputs, alone.outputs, cut.reason, open=partial(self._straight, whole, alone, name))

    def _straight(self, whole: OnnxModel, cut: Cut, name: str, values: Values) -> Session:
        declared = {info.name: info for info in (*whole.signature.outputs, *whole.signature.inputs)}
        inputs = [model.info_of(each, values.get(each), declared.get(each)) for each in cut.inputs]
        return self.open(model.straight_model(whole, cut, inputs, name))


def _with_constants(branch: Branch, whole: OnnxModel) -> Branch:
    """A subgraph to which constants of the graph around it are constants, too: they are packed once."""
    around = {name: whole.constants[name] for name in branch.captured if name in whole.constants}
    return replace(branch, constants={**branch.constants, **around})


def _call(node: Node, opset: int, bodies: dict[str, _Body], given: Sequence[Any]) -> list[Any]:
    """Compute a node, its subgraphs on what they capture."""
    captured = dict(zip(reversed(model.captured_by(node)), reversed(given), strict=False))
    bound = {key: _Bound(body, captured) for key, body in bodies.items()}
    function = model.function_of(node, opset, bound)
    assert function is not None
    return model.checked_call(node, function, given[: len(given) - len(captured)])


class _Body:
    """A subgraph as a function: a session for each kind of what it is given."""

    def __init__(self, branch: Branch, opset: int, name: str, open_: Open) -> None:
        self.branch = branch
        self._opset = opset
        self._name = name
        self._open = open_
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
                self._by_kind[kind] = self._open(model.body_model(self.branch, inputs, self._opset, self._name))
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
