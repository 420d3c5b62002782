"""Models in pieces in session files: calls between plans, and the sessions of pieces and subgraphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from blocklayout import model
from blocklayout.errors import BlockLayoutError, ModelError, PlanError
from blocklayout.loading.cutting import NodeCall, Subgraph
from blocklayout.loading.saved_session import PartRecord, PieceRecord, PiecesRecord, SubgraphRecord
from blocklayout.runtime.pieces import Pieces, Straight

if TYPE_CHECKING:
    from blocklayout.runtime import InputInfo, OutputInfo, PlanBook
    from blocklayout.runtime.pieces import Piece, Values

    Open = Callable[[PartRecord], PlanBook]

UNSEEN = "load the model itself, or run it so before the session is saved"
"""The end of a message about a missing plan."""


def pieces_record(pieces: Pieces, part: Callable[[PlanBook], PartRecord]) -> PiecesRecord:
    """The pieces of a model for a file, by ``part`` of each plan book; a PlanError where one has no plan yet."""
    return PiecesRecord(pieces.name, pieces.constants, tuple(_piece_record(each, part) for each in pieces))


def _piece_record(piece: Piece, part: Callable[[PlanBook], PartRecord]) -> PieceRecord:
    head = (piece.name, piece.inputs, piece.outputs, piece.reason, piece.by)
    if isinstance(piece, NodeCall):
        subgraphs = {
            key: SubgraphRecord(each.info, tuple(part(book) for book in each.books if _can_run(book)))
            for key, each in piece.subgraphs.items()
        }
        attrs = {name: value for name, value in piece.node.attrs.items() if name not in model.branches_of(piece.node)}
        node = piece.node.replace(attrs=attrs)
        return PieceRecord("call", *head, piece.opset, (node,), {}, piece.captured, subgraphs)
    if not isinstance(piece, Straight):
        raise TypeError(piece)
    session = next((part(each) for each in piece.books if _can_run(each)), None)
    quick = piece.by_arrays
    if not isinstance(quick, model.NodeByNode):
        if session is None:
            raise PlanError(f"{piece.name} has no plan yet: run the session once")
        return PieceRecord("straight", *head, 0, session=session)
    return PieceRecord("straight", *head, quick.opset, quick.nodes, quick.constants, session=session)


def _can_run(book: PlanBook) -> bool:
    return bool(book.plans) or book.pieces is not None


def pieces_of(record: PiecesRecord, inputs: Sequence[InputInfo], outputs: Sequence[OutputInfo], open_: Open) -> Pieces:
    """The pieces of a model, from a file; ``open_`` makes the plan book of a piece or subgraph.

    A ModelError where a piece reads a value that nothing before it computes, or cannot run.
    """
    known = {info.name for info in inputs} | {*record.constants}
    for each in record.pieces:
        _check_present(each.name, filter(None, each.inputs), known)
        known |= {*filter(None, each.outputs)}
    _check_present(record.name, (info.name for info in outputs), known)
    pieces = [_piece_of(each, open_) for each in record.pieces]
    returned = {info.name for info in outputs}
    for piece in pieces:
        if isinstance(piece, Straight):
            piece.inner = tuple(name for name in piece.outputs if name not in returned)
    return Pieces(record.name, inputs, outputs, record.constants, pieces)


def _check_present(reader: str, names: Iterable[str], known: set[str]) -> None:
    missing = [name for name in names if name not in known]
    if missing:
        raise ModelError(f"{reader} reads {', '.join(missing)}, which nothing before it computes")


def _piece_of(record: PieceRecord, open_: Open) -> Piece:
    if record.kind == "call":
        return _call_of(record, open_)
    book = None if record.session is None else open_(record.session)
    by_arrays = None
    if record.nodes:
        known = {*record.inputs, *record.constants}
        for node in record.nodes:
            _check_present(node.name, filter(None, node.inputs), known)
            known |= {*filter(None, node.outputs)}
        _check_present(record.name, record.outputs, known)
        by_arrays = model.NodeByNode(record.nodes, record.inputs, record.constants, record.opset)
    if book is not None:
        inputs, outputs = book.signature.inputs, book.signature.outputs
        if not {info.name for info in inputs} == {*record.inputs} or {*record.outputs} - {
            each.name for each in outputs
        }:
            raise ModelError(f"{record.name}: its session has other inputs or outputs")
    elif by_arrays is None:
        raise ModelError(f"{record.name} has neither a session nor nodes")
    return Straight(
        name=record.name,
        inputs=record.inputs,
        outputs=record.outputs,
        reason=record.reason,
        open=partial(_unplanned, record.name),
        book=book,
        by_arrays=by_arrays,
    )


def _unplanned(name: str, values: Values) -> PlanBook:
    shapes = ", ".join(f"{each} {'x'.join(map(str, np.shape(value)))}" for each, value in values.items())
    raise PlanError(f"the saved session has no plan of {name} for {shapes}: {UNSEEN}")


def _call_of(record: PieceRecord, open_: Open) -> NodeCall:
    nodes = record.nodes
    if len(nodes) != 1 or (nodes[0].inputs, nodes[0].outputs) != (record.inputs, record.outputs):
        raise ModelError(f"{record.name} is no call of one node with its inputs and outputs")
    if record.inputs[len(record.inputs) - len(record.captured) :] != record.captured:
        raise ModelError(f"{record.name}: what its subgraphs read is not what it is given last")
    known = {*record.captured}
    subgraphs = {key: _subgraph_of(key, each, known, open_) for key, each in record.subgraphs.items()}
    [node] = nodes
    try:
        is_known = record.by != "numpy" or model.function_of(node, record.opset, subgraphs) is not None
    except BlockLayoutError:
        raise
    except Exception as error:  # attributes that are none of the operator's
        raise ModelError(f"{record.name}: no {node.op_type} has these attributes: {error}") from error
    if not is_known:
        raise ModelError(f"{record.name}: nothing here computes {node.op_type}")
    return NodeCall(
        name=record.name,
        inputs=record.inputs,
        outputs=record.outputs,
        reason=record.reason,
        by=record.by,
        node=node,
        opset=record.opset,
        subgraphs=subgraphs,
        captured=record.captured,
    )


def _subgraph_of(key: str, record: SubgraphRecord, captured: set[str], open_: Open) -> Subgraph:
    info = record.info
    given = {*info.inputs, *captured, *info.constants}
    _check_present(key, info.read, given)
    _check_present(key, info.outputs, given | {*info.computed})
    _check_present(key, (*info.carried, *info.lasting), {*info.read})
    books = [open_(each) for each in record.sessions]
    for book in books:
        names = [each.name for each in book.signature.inputs], [each.name for each in book.signature.outputs]
        if names != ([*info.read], [*info.computed]):
            raise ModelError(f"{key}: the session of this subgraph has other inputs or outputs")
    return Subgraph(info, partial(_never_run, key), books)


def _never_run(key: str, inputs: Sequence[model.DeclaredValue]) -> PlanBook:
    kinds = ", ".join(f"{info.name} {info.dtype or info.container}" for info in inputs) or "nothing"
    raise PlanError(f"the saved session has no plan of the subgraph {key!r} of {kinds}: {UNSEEN}")
