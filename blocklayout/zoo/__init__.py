"""Models to try and to measure with.

:func:`build` makes networks of the literature, with random weights, :func:`detector` those that keep the
best of their boxes. ``zoo.digits`` is small, trained and embedded.

Nothing is read or computed before a function of this package or that module is called.
"""

from __future__ import annotations

from blocklayout.zoo._catalogue import NetworkInfo, build, detector, info, names

__all__ = ["NetworkInfo", "build", "detector", "info", "names"]
