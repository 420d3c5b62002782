"""On many machines, by Ray: models over datasets.

Takes the extra ``ray``. See docs/many-machines.md.
"""

from __future__ import annotations

from blocklayout.ray.datasets import connected, map_batches, n_nodes, ray_data

__all__ = ["connected", "map_batches", "n_nodes", "ray_data"]
