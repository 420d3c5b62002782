"""Plans: layouts chosen for a whole network by cost, and the steps that follow from them."""

from blocklayout.plan.machine import Machine
from blocklayout.plan.make import make_plan
from blocklayout.plan.plan import Buffer, Entry, Operand, PackedConstant, Plan, Result, Step
from blocklayout.plan.policies import POLICIES, SIMPLE_POLICIES

__all__ = [
    "POLICIES",
    "SIMPLE_POLICIES",
    "Buffer",
    "Entry",
    "Machine",
    "Operand",
    "PackedConstant",
    "Plan",
    "Result",
    "Step",
    "make_plan",
]
