"""Models to try and to measure with: ``zoo.digits`` is embedded, ``zoo.light`` is made on demand.

Nothing is read or computed before a function of those modules is called.
"""

from __future__ import annotations
