"""One module per kind of primitive: its constructor, and the rules its Specs obey.

Modules are found by the kind's name; each has ``ARGUMENTS``, the arguments it may execute with
besides those of its attributes, in any direction, and ``validate``; ``MANY_SOURCES`` where its sources
are counted. Names that start with an underscore are no kinds.
"""
