"""One module per kind of primitive: the call that turns a Spec into a primitive descriptor.

Modules are found by the kind's name; each has ``create(call)``. Names that start with an
underscore are no kinds.
"""
