"""Run plans: sessions, and the workspaces and executables they hold."""

from blocklayout.runtime.inputs import InputInfo, OutputInfo
from blocklayout.runtime.memory import MemoryUse
from blocklayout.runtime.pieces import CutError, Piece, Pieces
from blocklayout.runtime.session import MAX_PLANS, ContentsNeededError, Session, Signature
from blocklayout.runtime.workspace import ReadyPlan, Workspace

__all__ = [
    "MAX_PLANS",
    "ContentsNeededError",
    "CutError",
    "InputInfo",
    "MemoryUse",
    "OutputInfo",
    "Piece",
    "Pieces",
    "ReadyPlan",
    "Session",
    "Signature",
    "Workspace",
]
