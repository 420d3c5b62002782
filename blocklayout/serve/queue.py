"""The queue of a session: how many requests may wait, and whether rows that they are fed are joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from blocklayout.errors import UnsupportedError

if TYPE_CHECKING:
    from blocklayout.model import Graph, ModelFile, OnnxModel
    from blocklayout.runtime import InputInfo, PlanBook

    Row = Mapping[str, tuple[int, ...]]

_MAX_PROVEN = 256
"""Extents of rows for which a proof is kept; the oldest makes room."""


class Batching(Struct, frozen=True):
    """How requests are joined.

    Attributes:
        max_batch: The largest number that runs together.
        max_delay_ms: How long the first of them waits for others where a stream is free.
        prove: Proves for extents of one row, by input, and sizes of batches, that rows are computed apart from each
            other; else raises ``UnsupportedError``.
    """

    max_batch: int
    max_delay_ms: float
    prove: Callable[[Row, Sequence[int]], None]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The batches that there are plans for: powers of 2, and the largest.

        Example:
            >>> Batching(6, 1.0, print).sizes
            (1, 2, 4, 6)
        """
        powers = (1 << exponent for exponent in range(self.max_batch.bit_length()))
        return tuple(sorted({*powers, self.max_batch}))

    def prove_rows(self, book: PlanBook, row: Row) -> None:
        """Prove, once for these extents, that rows may be joined; the book keeps it."""
        shapes = tuple(row.items())
        with book.planning:  # it reads the model, too
            proven = book.signature.rows
            if any(shapes == of and {*self.sizes} <= {*sizes} for of, sizes in proven):
                return
            self.prove(row, self.sizes)
            book.signature = replace(book.signature, rows=(*proven[-_MAX_PROVEN:], (shapes, self.sizes)))


class Queue(Struct, frozen=True):
    """How many requests may wait (any number if ``None``), and how rows are joined (each runs alone if ``None``)."""

    max_waiting: int | None = None
    batching: Batching | None = None

    @classmethod
    def of(
        cls,
        max_waiting: int | None,
        batching: tuple[int, float] | None,
        book: PlanBook,
        opened: OnnxModel | Graph | ModelFile | None,
        shapes: Mapping[str, Sequence[Any]] | None,
    ) -> Queue:
        """The queue that is asked for; that rows may be joined is proven now for extents that are known now.

        ``batching`` is the largest batch, and for how many milliseconds its first row waits. ``opened`` is ``None`` of
        a saved session, which holds the proofs of when it was saved; ``shapes`` are extents that are known beside
        declared ones.
        """
        if batching is None:
            return cls(max_waiting)
        inputs = book.signature.inputs
        for info in (*inputs, *book.signature.outputs):
            check_border(info)
        joined = Batching(*batching, _refuse if opened is None else partial(prove_rows, opened))
        given = {info.name: info.logical((shapes or {}).get(info.name) or info.shape or ()) for info in inputs}
        if all(isinstance(extent, int) for extents in given.values() for extent in extents[1:]):
            joined.prove_rows(book, {name: (1, *extents[1:]) for name, extents in given.items()})
        return cls(max_waiting, joined)


def prove_rows(opened: OnnxModel | Graph | ModelFile, row: Row, sizes: Sequence[int]) -> None:
    """Prove that a model computes each row apart from the others in batches of these sizes, or name the node."""
    from blocklayout import model

    model.check_rows(opened, row, sizes)
    if isinstance(opened, model.ModelFile):
        opened.let_go()


def _refuse(row: Row, sizes: Sequence[int]) -> None:
    extents = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in row.items())
    raise UnsupportedError(
        f"batching: the session was saved without a proof that up to {max(sizes)} rows of {extents} may be joined: "
        "load the model with batching=, warm it up, and save that"
    )


def check_border(info: InputInfo) -> None:
    """Refuse an input or output without a free first extent that rows lie along."""
    shown = "of unknown rank" if info.shape is None else "x".join(map(str, info.shape)) or "a scalar"
    if info.container or not info.shape or isinstance(info.shape[0], int):
        remedy = "export the model with a free first extent"
        raise UnsupportedError(f"batching: {info.name!r} is {info.container or shown}, without rows to join: {remedy}")
    check_rows_apart(info)


def check_rows_apart(info: InputInfo) -> None:
    """Refuse an input or output in whose memory rows do not lie one behind the other."""
    if info.is_free or info.is_blocked or (info.order and info.order[0] != 0):
        raise UnsupportedError(
            f"batching: {info.name!r} crosses the border as {info.border}, where rows do not lie apart"
        )
