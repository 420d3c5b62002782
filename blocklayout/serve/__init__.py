"""Serve requests: those that wait for a session's streams, rows that run together, counts and times."""

from __future__ import annotations

from blocklayout.serve.stats import Histogram, Stats
from blocklayout.serve.submissions import Submission

__all__ = ["Histogram", "Stats", "Submission"]
