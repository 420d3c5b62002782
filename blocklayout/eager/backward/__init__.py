"""Gradients, operator by operator: in any layout they are given, they come back in the forward's.

Nothing is recorded and nothing is chained: each function takes the forward's own tensors and the gradient of its
result, and gives the gradients of its arguments. ``grad`` is brought to the format of the forward's result by one
reorder, where it is not in it.
"""
