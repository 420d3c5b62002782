"""Run plans: plan books, and the workspaces and executables they hold."""

from blocklayout.runtime.inputs import InputInfo, OutputInfo
from blocklayout.runtime.memory import MemoryUse
from blocklayout.runtime.pieces import Piece, Pieces
from blocklayout.runtime.plan_book import MAX_PLANS, ContentsNeededError, PlanBook, Signature
from blocklayout.runtime.workspace import ReadyPlan, Workspace

__all__ = [
    "MAX_PLANS",
    "ContentsNeededError",
    "InputInfo",
    "MemoryUse",
    "OutputInfo",
    "Piece",
    "Pieces",
    "PlanBook",
    "ReadyPlan",
    "Signature",
    "Workspace",
]
