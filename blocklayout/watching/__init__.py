"""Watching: reorders, implicit copies and layout losses, reported while a block runs."""

from blocklayout.watching.events import Event, EventKind
from blocklayout.watching.watches import Watch, WatchMode, carry, is_watched, report, warn_caller, watch

__all__ = ["Event", "EventKind", "Watch", "WatchMode", "carry", "is_watched", "report", "warn_caller", "watch"]
