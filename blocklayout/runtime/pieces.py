"""A model in pieces: plan books of straight parts, and calls of the nodes between them that only data settle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from blocklayout.errors import InputError
from blocklayout.forking import Lock
from blocklayout.layout import MemoryDesc
from blocklayout.plan.plan import FREE
from blocklayout.resource_limits import check_time
from blocklayout.runtime.inputs import check_feed, check_feeds, check_held, check_mapping
from blocklayout.runtime.outputs import check_given, deliver
from blocklayout.tensor import Tensor, reorder

if TYPE_CHECKING:
    from blocklayout.dnnl import Stop
    from blocklayout.plan import Plan
    from blocklayout.runtime.inputs import InputInfo, OutputInfo
    from blocklayout.runtime.plan_book import PlanBook

MAX_QUICK_NBYTES = 1 << 20
"""Bytes of constants, and of arrays fed, up to which a piece of quick nodes takes less than a plan for new extents."""

Values = Mapping[str, Any]
"""Values between pieces, by name: arrays, Tensors, lists of arrays (sequences) and ``None`` (empty optionals)."""


class SubgraphInfo(Struct, frozen=True, eq=False):
    """A subgraph seen from without.

    Attributes:
        inputs: Names of its arguments.
        outputs: Names of its results.
        read: Names of the arguments, and of the values of the graph around it, that its nodes read.
        computed: Names of the results that its nodes compute.
        constants: Those that it returns, by name.
        results: Each result with no rows, for a node that runs it once a row, and never did.
        carried: Results by the arguments as which they come the next time.
        lasting: Those that it reads of the graph around it, where it runs again and again.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    read: tuple[str, ...]
    computed: tuple[str, ...]
    constants: Mapping[str, np.ndarray]
    results: tuple[np.ndarray, ...]
    carried: Mapping[str, str]
    lasting: tuple[str, ...]


class Piece(Struct, eq=False, kw_only=True):
    """One piece of a model.

    Attributes:
        name: The node's name; of a straight piece, its model's.
        inputs: Names of the values that it reads; empty for absent ones.
        outputs: Names of the values that it computes; empty for those that nobody reads.
        reason: Why the model is cut here; empty where it is not.
        by: How a node is computed without a plan: ``numpy`` or ``onnx.reference``; empty where plans do.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reason: str = ""
    by: str = ""

    @property
    def books(self) -> Sequence[PlanBook]:
        """The plan books that it has by now."""
        return ()

    @property
    def notes(self) -> Sequence[str]:
        """Lines about the layouts of its results for other pieces, where these are not row-major."""
        return ()

    @property
    def _unplanned(self) -> str:
        return "planned when it is fed"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        by = f" by {self.by}" if self.by else ""
        head = f"{self.name}{by} -> {', '.join(filter(None, self.outputs))}"
        yield f"{head}: {self.reason}" if self.reason else head
        yield from (f"  {note}" for note in self.notes)
        if not self.by and not self.books:
            yield f"  {self._unplanned}"
        for book in self.books:
            texts = [str(book.pieces)] if book.pieces is not None else map(str, book.plans)
            yield from (f"  {line}".rstrip() for text in texts for line in text.splitlines())


class Straight(Piece, eq=False, kw_only=True):
    """Nodes that plans compute, once they are fed.

    Attributes:
        open: Opens its plan book, for values by name.
        book: That one; ``None`` before the first run that comes so far.
        by_arrays: Computes outputs node by node, of arrays by name: extents that data settle are seldom the same
            again, and of small arrays this takes less than a plan. ``None`` where it would not.
        inner: Names of those outputs that the caller does not get.
    """

    open: Callable[[Values], PlanBook]
    inner: tuple[str, ...] = ()
    book: PlanBook | None = None
    by_arrays: Callable[[Sequence[str], Values], list[Any]] | None = None

    @property
    def books(self) -> Sequence[PlanBook]:
        return () if self.book is None else (self.book,)

    @property
    def notes(self) -> Sequence[str]:
        plans = [] if self.book is None or self.book.pieces is not None else self.book.plans
        return [
            f"{result.name} stays as it was written, for the only piece that reads it: {result.desc.named('src')}"
            for plan in plans[-1:]
            for result in plan.results
            if result.name in self.inner and result.desc is not None and (result.name, FREE) in plan.config.io_layout
        ]

    @property
    def _unplanned(self) -> str:
        if self.by_arrays is None:
            return super()._unplanned
        return f"computed node by node: it is fed less than {MAX_QUICK_NBYTES >> 10} KiB, of extents that data settle"


class Call(Piece, eq=False, kw_only=True):
    """A node that is computed between plans."""

    def compute(self, given: Sequence[Any]) -> Sequence[Any]:
        """Its results, of its inputs in order."""
        raise NotImplementedError


class Pieces:
    """The pieces of a model in the order in which they run."""

    def __init__(
        self,
        name: str,
        inputs: Sequence[InputInfo],
        outputs: Sequence[OutputInfo],
        constants: Mapping[str, np.ndarray],
        pieces: Sequence[Piece],
    ) -> None:
        """Take the pieces in order, with the model's name, and its inputs and outputs as they reach the pieces.

        Inputs that have defaults are among them; ``constants`` are those that calls read, and outputs that are
        constants.
        """
        self.name = name
        self.pieces = tuple(pieces)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.constants = constants
        crossing = [*(info for info in outputs if info.border), *(info for info in inputs if not info.container)]
        self._borders = {info.name: info for info in crossing}
        in_numpy = (piece for piece in pieces if isinstance(piece, Call) or getattr(piece, "by_arrays", None))
        self._shared = {name for piece in in_numpy for name in piece.outputs}  # perhaps views of other values
        self._shared |= {*constants, *(info.name for info in inputs)}
        self._lock = Lock()
        last = {name: index for index, piece in enumerate(self.pieces) for name in piece.inputs if name}
        kept = {info.name for info in outputs}
        self._done = [
            [name for name, place in last.items() if place == index and name not in kept]
            for index in range(len(self.pieces))
        ]

    def __str__(self) -> str:
        lines = [f"{self.name}, cut into {len(self.pieces)} pieces"]
        lines += [f"{index}. {piece}" for index, piece in enumerate(self.pieces, 1)]
        return "\n".join(lines)

    def __iter__(self) -> Iterator[Piece]:
        return iter(self.pieces)

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: int) -> Piece:
        return self.pieces[index]

    @property
    def books(self) -> list[PlanBook]:
        """The plan books that there are by now, in order."""
        return [book for piece in self.pieces for book in piece.books]

    @property
    def plans(self) -> list[Plan]:
        """The plans that there are by now, in order."""
        return [plan for book in self.books for plan in book.plans]

    def prepare(self, shapes: Mapping[str, Sequence[int]], contents: Values) -> None:
        """Plan the piece that reads nothing but inputs; others need results of the pieces before them."""
        for piece in self.pieces:
            if isinstance(piece, Straight) and shapes.keys() >= {*piece.inputs}:
                given = {name: contents[name] for name in piece.inputs if name in contents}
                self._book(piece, {}).prepare({name: shapes[name] for name in piece.inputs}, given)

    def run(
        self, wanted: Sequence[OutputInfo], feed: Values, out: Mapping[str, np.ndarray] | None, stop: Stop | None = None
    ) -> list[Any]:
        """Run all pieces; as :meth:`PlanBook.run`; ``stop`` is looked at before each piece, and in plans each step."""
        values = self._fed(feed)
        for piece, done in zip(self.pieces, self._done, strict=True):
            if stop is not None:
                stop.check()
            self._run_piece(piece, values, stop)
            for name in done:
                values.pop(name, None)
        results = {info.name: self._fresh(info.name, values[info.name]) for info in wanted}
        if out is not None:
            check_given(out, wanted, {name: np.shape(each) for name, each in results.items()})
        return [deliver(info.name, results[info.name], (out or {}).get(info.name)) for info in wanted]

    def walk(self, feed: Values) -> Iterator[tuple[Piece, Values, Callable[[], None]]]:
        """Run all pieces: yields each with its inputs and a call that runs it again, before it runs for the next."""
        values = self._fed(feed)
        for piece in self.pieces:
            fed = {name: values[name] for name in piece.inputs if name}
            yield piece, fed, partial(self._run_piece, piece, dict(values))
            self._run_piece(piece, values)

    def book_of(self, piece: Piece, fed: Values) -> PlanBook | None:
        """The plan book by which a piece runs these values; ``None`` where it computes them without a plan."""
        if not isinstance(piece, Straight) or self._quick(piece, fed) is not None:
            return None
        return self._book(piece, fed)

    def _fed(self, feed: Values) -> dict[str, Any]:
        tensors = [info for info in self.inputs if not info.container]
        held = {info.name: info for info in self.inputs if info.container}
        check_mapping("feed", feed, "{'x': array}")
        missing = [name for name in held if name not in feed]
        if missing:
            raise InputError(f"missing input {', '.join(missing)}: give a list of arrays, or None where it is optional")
        check_feeds(tensors, {name: each for name, each in feed.items() if name not in held})
        return {**self.constants, **feed, **{name: check_held(info, feed[name]) for name, info in held.items()}}

    def _run_piece(self, piece: Piece, values: dict[str, Any], stop: Stop | None = None) -> None:
        check_time(piece.name)
        if isinstance(piece, Straight):
            fed = {name: values[name] for name in piece.inputs}
            results: Sequence[Any] = self._quick(piece, fed) or self._book(piece, fed).run(
                piece.outputs, fed, None, stop
            )
        elif isinstance(piece, Call):
            given = [self._logical(name, values[name]) if name else None for name in piece.inputs]
            results = self._at_borders(piece, piece.compute(given))
        values.update(zip(piece.outputs, results, strict=True))

    def _quick(self, piece: Straight, fed: Values) -> list[Any] | None:
        """The results of a piece that is computed node by node; ``None`` where it is planned."""
        if piece.by_arrays is None:
            return None
        given = {name: self._logical(name, each) for name, each in fed.items()}
        are_arrays = all(isinstance(each, np.ndarray) for each in given.values())
        if not are_arrays or sum(each.nbytes for each in given.values()) > MAX_QUICK_NBYTES:
            return None
        try:
            results = piece.by_arrays(piece.outputs, given)
        except Exception:  # noqa: BLE001 - planning it names the node and its fault
            return None
        return self._at_borders(piece, results)

    def _book(self, piece: Straight, fed: Values) -> PlanBook:
        with self._lock:
            if piece.book is None:
                piece.book = piece.open(fed)
            return piece.book

    def _logical(self, name: str, value: Any) -> Any:
        """A value as a function takes it: an array in the model's order of dimensions."""
        info = self._borders.get(name)
        if info is not None:
            array = check_feed(info, value).contents()
            return array.copy() if array.dtype.kind in "iu" else array  # may be changed while it is followed as indices
        return value.numpy() if isinstance(value, Tensor) else value

    def _at_borders(self, piece: Piece, results: Sequence[Any]) -> list[Any]:
        """The results of a piece's function as the caller, and the pieces behind it, hold them."""
        returned = zip(piece.outputs, results, strict=False)
        return [self._at_border(name, each) if name else None for name, each in returned]

    def _at_border(self, name: str, result: Any) -> Any:
        info = self._borders.get(name)
        if info is None or result is None or isinstance(result, list):
            return result
        if info.is_free or info.is_blocked:
            return reorder(result, MemoryDesc(result.shape or (1,), info.dtype, info.layout))
        return result if info.order is None else np.ascontiguousarray(result.transpose(info.order))

    def _fresh(self, name: str, value: Any) -> Any:
        """An output that shares no memory with anything else."""
        if isinstance(value, list):
            return [np.array(each, order="C") for each in value]
        if name not in self._shared or value is None or isinstance(value, Tensor):
            return value
        return np.array(value, order="C")
