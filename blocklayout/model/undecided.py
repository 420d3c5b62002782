"""What cannot be known before the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.errors import UnsupportedError

if TYPE_CHECKING:
    from blocklayout.model.graph import Node


class DependsOnDataError(UnsupportedError):
    """An extent, or the way through an ``If``, depends on data that are not known yet.

    Attributes:
        node: The node whose output it is an extent of, or the ``If``.
    """

    def __init__(self, message: str, node: Node) -> None:
        super().__init__(message)
        self.node = node
