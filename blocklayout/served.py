"""Served: a model that callers hold while it is replaced by another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from blocklayout.api import LoadOptions, Source, load
from blocklayout.errors import ClosedError, ModelError

if TYPE_CHECKING:
    import numpy as np

    from blocklayout.serve.stats import Stats
    from blocklayout.serve.submissions import Submission
    from blocklayout.session import Session

_Result = TypeVar("_Result")


class Served:
    """A model that can be replaced by another while it is used: no request is lost, and none waits for it.

    Safe to share among threads.

    Example:
        >>> import numpy as np
        >>> from blocklayout import Builder, Served
        >>> def scaling(factor):
        ...     b = Builder()
        ...     b.output("y", b.input("x", (1, 2)) * np.float32(factor))
        ...     return b
        >>> with Served(scaling(2)) as served:
        ...     first = served.submit({"x": np.ones((1, 2), np.float32)})
        ...     served.replace(scaling(3))
        ...     second = served.submit({"x": np.ones((1, 2), np.float32)})
        >>> first.result()[0].tolist(), second.result()[0].tolist()
        ([[2.0, 2.0]], [[3.0, 3.0]])
    """

    def __init__(
        self, source: Source, *, warm: Sequence[Mapping[str, Sequence[int]]] | None = (), **options: Unpack[LoadOptions]
    ) -> None:
        """Load and warm up a model.

        Args:
            source: As for :func:`blocklayout.load`.
            warm: Sets of shapes that it is warmed up for, each as for ``Session.warm_up``; by default those that the
                model declares, unless it leaves others free than first extents. ``None``: it is not warmed up.
            options: Those of :func:`blocklayout.load`, for this model and those that replace it.

        Raises:
            BlockLayoutError: As :func:`blocklayout.load` and ``Session.warm_up``.
        """
        self._warm = warm
        self._options = options
        self._replacing = threading.Lock()
        self._session = self._loaded(source)

    @property
    def session(self) -> Session:
        """The session that new requests go to now."""
        return self._session

    def replace(self, source: Source) -> None:
        """Have another model take over.

        It is loaded and warmed up beside the one that serves meanwhile; then new requests go to it, those that the old
        one has taken are finished, and that is closed. If anything of it fails, the old one goes on serving.

        Args:
            source: A model with inputs and outputs of the same names and types.

        Raises:
            ModelError: It has others.
            BlockLayoutError: As :func:`blocklayout.load` and ``Session.warm_up``.
            ClosedError: It was closed.
        """
        with self._replacing:
            self._session.check_open()
            session, before = self._loaded(source), self._session
            new, old = _border_of(session), _border_of(before)
            if new != old:
                session.close()
                raise ModelError(f"the model is {new}; callers feed and expect {old}: serve it as another one")
            session.submissions.tally = before.submissions.tally
            self._session = session
        before.close()

    def run(self, output_names: Sequence[str] | None, feed: Mapping[str, Any], **options: Any) -> list[Any]:
        """As ``Session.run``."""
        return self._of_session(lambda session: session.run(output_names, feed, **options))

    def submit(
        self,
        feed: Mapping[str, Any],
        output_names: Sequence[str] | None = None,
        *,
        out: Mapping[str, np.ndarray] | None = None,
        deadline: float | None = None,
    ) -> Submission:
        """As ``Session.submit``."""
        return self._of_session(lambda session: session.submit(feed, output_names, out=out, deadline=deadline))

    def stats(self) -> Stats:
        """As ``Session.stats``, with the counts from before the model was replaced."""
        return self._session.stats()

    def close(self) -> None:
        """As ``Session.close``."""
        with self._replacing:
            self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _loaded(self, source: Source) -> Session:
        session = load(source, **self._options)
        try:
            declared = [extent for info in session.get_inputs() for extent in (info.shape or (None, None))[1:]]
            is_declared = all(isinstance(extent, int) for extent in declared)
            for shapes in ((None,) if is_declared else ()) if self._warm == () else self._warm or ():
                session.warm_up(shapes)
        except BaseException:
            session.close()
            raise
        return session

    def _of_session(self, call: Callable[[Session], _Result]) -> _Result:
        """Call it with the session that serves; again, if that was replaced before it took the request."""
        while True:
            session = self._session
            try:
                return call(session)
            except ClosedError:
                if session is self._session:
                    raise


def _border_of(session: Session) -> str:
    """Names and types of inputs and outputs."""
    sides = (session.get_inputs(), session.get_outputs())
    return " -> ".join(", ".join(f"{info.name} {info.dtype}" for info in side) for side in sides)
