"""The queue of a session: how many requests may wait, and whether the rows that they are fed may be joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from blocklayout.errors import UnsupportedError
from blocklayout.loading import options

if TYPE_CHECKING:
    from blocklayout.loading.signature import Opened
    from blocklayout.runtime import InputInfo, Session


class Queue(Struct, frozen=True):
    """A session's queue, as its user asks for it.

    Attributes:
        max_waiting: How many requests may wait; any number if ``None``.
        batching: The largest batch, and for how many milliseconds its first row waits; ``None``: rows are not joined.
    """

    max_waiting: int | None
    batching: tuple[int, float] | None

    @classmethod
    def of(cls, max_waiting: Any, batching: Any) -> Queue:
        """The options of :func:`~blocklayout.load`, checked.

        Raises:
            InputError: The message names the option.
        """
        if max_waiting is not None:
            options.positive("max_waiting", max_waiting)
        return cls(max_waiting, None if batching is None else options.batching(batching))

    @property
    def n_sizes(self) -> int:
        """For how many sizes of batches there will be plans."""
        return 0 if self.batching is None else 1 + self.batching[0].bit_length()

    def given_to(self, session: Session, opened: Opened | None, shapes: Mapping[str, Sequence[Any]] | None) -> Session:
        """The session with such a queue; that rows may be joined is proven now for the extents that are known now.

        Args:
            session: Already loaded.
            opened: Its model; ``None`` for a saved session, which holds what was proven when it was saved.
            shapes: Extents of inputs that are known beside declared ones.

        Raises:
            UnsupportedError: Rows cannot be joined; the message says why.
        """
        if self.batching is None:
            session.queue(self.max_waiting, None)
            return session
        from blocklayout.runtime.joining import Batching

        for info in (*session.get_inputs(), *session.get_outputs()):
            check_border(info)
        session.queue(
            self.max_waiting, Batching(*self.batching, _refuse if opened is None else partial(prove_rows, opened))
        )
        given = {
            info.name: info.logical((shapes or {}).get(info.name) or info.shape or ()) for info in session.get_inputs()
        }
        if all(isinstance(extent, int) for extents in given.values() for extent in extents[1:]):
            session.prove_rows({name: (1, *extents[1:]) for name, extents in given.items()})
        return session


def prove_rows(opened: Opened, row: Mapping[str, tuple[int, ...]], sizes: Sequence[int]) -> None:
    """Prove that a model computes each row apart from the others in batches of these sizes.

    Raises:
        UnsupportedError: It does not; the message names the node.
    """
    from blocklayout import model

    model.check_rows(opened, row, sizes)
    if isinstance(opened, model.ModelFile):
        opened.let_go()


def _refuse(row: Mapping[str, tuple[int, ...]], sizes: Sequence[int]) -> None:
    extents = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in row.items())
    raise UnsupportedError(
        f"batching: the session was saved without a proof that up to {max(sizes)} rows of {extents} may be joined: "
        "load the model with batching=, warm it up, and save that"
    )


def check_border(info: InputInfo) -> None:
    """Refuse an input or output without a free first extent that rows lie along.

    Raises:
        UnsupportedError: The message says what would be right.
    """
    shown = "of unknown rank" if info.shape is None else "x".join(map(str, info.shape)) or "a scalar"
    if info.container or not info.shape or isinstance(info.shape[0], int):
        remedy = "export the model with a free first extent"
        raise UnsupportedError(f"batching: {info.name!r} is {info.container or shown}, without rows to join: {remedy}")
    if info.is_free or info.is_blocked or (info.order and info.order[0] != 0):
        raise UnsupportedError(
            f"batching: {info.name!r} crosses the border as {info.border}, where rows do not lie apart"
        )
