"""Run plans: sessions, and the execution contexts they hold."""

from blocklayout.runtime.context import Context, Feed
from blocklayout.runtime.feeding import InputInfo, OutputInfo
from blocklayout.runtime.session import ReadyPlan, Session

__all__ = ["Context", "Feed", "InputInfo", "OutputInfo", "ReadyPlan", "Session"]
