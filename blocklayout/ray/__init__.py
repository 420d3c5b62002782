"""On many machines, by Ray: models over datasets, and the mean of gradients over workers that train.

Takes the extra ``ray``. See docs/how-to/many-machines.md.
"""

from __future__ import annotations

from blocklayout.ray.datasets import connected, map_batches
from blocklayout.ray.training import all_reduce

__all__ = ["all_reduce", "connected", "map_batches"]
