"""Run plans: sessions, and the execution contexts they hold."""

from blocklayout.runtime.context import Context, Feed
from blocklayout.runtime.feeding import InputInfo, OutputInfo
from blocklayout.runtime.memory import MemoryUse
from blocklayout.runtime.ready import ReadyPlan
from blocklayout.runtime.session import MAX_PLANS, ContentsNeededError, Session, Signature

__all__ = [
    "MAX_PLANS",
    "ContentsNeededError",
    "Context",
    "Feed",
    "InputInfo",
    "MemoryUse",
    "OutputInfo",
    "ReadyPlan",
    "Session",
    "Signature",
]
