"""Plans: layouts chosen for a whole network by cost, and the steps that follow from them."""

from blocklayout.plan.choices import KernelChoice, Way
from blocklayout.plan.costs.machine import Machine
from blocklayout.plan.costs.model import CostModel
from blocklayout.plan.make import Request, make_plan
from blocklayout.plan.plan import Buffer, Entry, Operand, PackedConstant, Plan, Result, Step
from blocklayout.plan.policies import POLICIES, SIMPLE_POLICIES
from blocklayout.plan.pricing import TUNE_MODES, TUNE_SECONDS, Pricing, TuneMode
from blocklayout.plan.telling.runs import LossMode, Run, RunEnd, find_runs

__all__ = [
    "POLICIES",
    "SIMPLE_POLICIES",
    "TUNE_MODES",
    "TUNE_SECONDS",
    "Buffer",
    "CostModel",
    "Entry",
    "KernelChoice",
    "LossMode",
    "Machine",
    "Operand",
    "PackedConstant",
    "Plan",
    "Pricing",
    "Request",
    "Result",
    "Run",
    "RunEnd",
    "Step",
    "TuneMode",
    "Way",
    "find_runs",
    "make_plan",
]
