"""Watching: reorders, implicit copies and layout losses, reported while a block runs."""

from blocklayout.layout_events.events import Event, EventKind
from blocklayout.layout_events.watches import Watch, WatchMode, carry, is_watched, report, warn_caller, watch

__all__ = ["Event", "EventKind", "Watch", "WatchMode", "carry", "is_watched", "report", "warn_caller", "watch"]
