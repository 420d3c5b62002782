"""Plans: layouts chosen for a whole network by cost, and the steps that follow from them.

Importing it loads nothing but this file, since running a saved session plans nothing: each name is fetched from
its home at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blocklayout.plan.choices import KernelChoice as KernelChoice
    from blocklayout.plan.choices import Way as Way
    from blocklayout.plan.costs.machine import Machine as Machine
    from blocklayout.plan.costs.model import CostModel as CostModel
    from blocklayout.plan.make import make_plan as make_plan
    from blocklayout.plan.plan import Buffer as Buffer
    from blocklayout.plan.plan import Entry as Entry
    from blocklayout.plan.plan import Operand as Operand
    from blocklayout.plan.plan import PackedConstant as PackedConstant
    from blocklayout.plan.plan import Plan as Plan
    from blocklayout.plan.plan import Result as Result
    from blocklayout.plan.plan import Step as Step
    from blocklayout.plan.policies import POLICIES as POLICIES
    from blocklayout.plan.policies import SIMPLE_POLICIES as SIMPLE_POLICIES
    from blocklayout.plan.pricing import Pricing as Pricing
    from blocklayout.plan.report.runs import LossMode as LossMode
    from blocklayout.plan.report.runs import Run as Run
    from blocklayout.plan.report.runs import RunEnd as RunEnd
    from blocklayout.plan.report.runs import find_runs as find_runs
    from blocklayout.plan.request import TUNE_MODES as TUNE_MODES
    from blocklayout.plan.request import TUNE_SECONDS as TUNE_SECONDS
    from blocklayout.plan.request import Request as Request
    from blocklayout.plan.request import TuneMode as TuneMode

_NAMES_BY_HOME = {
    "choices": ("KernelChoice", "Way"),
    "costs.machine": ("Machine",),
    "costs.model": ("CostModel",),
    "make": ("make_plan",),
    "plan": ("Buffer", "Entry", "Operand", "PackedConstant", "Plan", "Result", "Step"),
    "policies": ("POLICIES", "SIMPLE_POLICIES"),
    "pricing": ("Pricing",),
    "request": ("Request", "TUNE_MODES", "TUNE_SECONDS", "TuneMode"),
    "report.runs": ("LossMode", "Run", "RunEnd", "find_runs"),
}
_HOMES = {name: f"blocklayout.plan.{home}" for home, names in _NAMES_BY_HOME.items() for name in names}

__all__ = [*_HOMES]  # noqa: PLE0604 - strings all, and a test compares them with the imports above


if not TYPE_CHECKING:  # a type checker that saw it would believe in any name

    def __getattr__(name: str) -> Any:
        """Fetch a public name from its home, once."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(importlib.import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    """The public names, fetched or not."""
    return sorted({*globals(), *__all__})
