"""Operators as functions on Tensors, and their gradients."""
