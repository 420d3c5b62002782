"""Serve requests: those that wait for a session's streams, rows that run together, counts and times."""
