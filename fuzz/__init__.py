"""Fuzzing of everything that takes what strangers wrote: ``python -m fuzz [DOOR ...] --seconds N --seed S``.

A *door* is one way in: model files, saved sessions, texts of layouts. Each is a module of :mod:`fuzz.doors`. An *input*
is a string of bytes from which a door reads its decisions, so that any mutation of it is an input, too. Whatever ends
in something else than success or one ``BlockLayoutError`` is a *find*.
"""
