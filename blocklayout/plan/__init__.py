"""Plans: layouts chosen for a whole network by cost, and the steps that follow from them.

Importing it loads nothing but this file, since running a saved session plans nothing: each name is fetched from
its home at first use.
"""

from __future__ import annotations

from blocklayout.lazy_names import fetching, homes_of

_NAMES = {
    "choices": "KernelChoice Way",
    "costs.machine": "Machine",
    "costs.model": "CostModel",
    "make": "make_plan",
    "plan": "Buffer Entry Operand PackedConstant Plan Result Step",
    "policies": "POLICIES SIMPLE_POLICIES",
    "pricing": "Pricing",
    "runs": "LossMode Run RunEnd find_runs",
    "request": "Request TUNE_MODES TUNE_SECONDS TuneMode",
}
_HOMES = homes_of(__name__, _NAMES)

__all__ = [*_HOMES]  # noqa: PLE0604 - strings all
__getattr__, __dir__ = fetching(globals(), _HOMES)
