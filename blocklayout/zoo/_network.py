"""Catalogue entry of a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue

IMAGE = (3, 224, 224)
"""Input extents of networks for ImageNet."""


class Network(Struct, frozen=True):
    """A network by name: a member of a family.

    Attributes:
        write: Adds the family's layers to a network: takes a ``Layers``, the input and, by keyword, what its
            members differ in; returns the output.
        shape: Extents of one sample, channels first, as the network is usually used.
        variant: What this member is, as keywords for ``write``.
    """

    write: Callable[..., BuildValue]
    shape: tuple[int, ...] = IMAGE
    variant: Mapping[str, Any] = field(default_factory=dict)
