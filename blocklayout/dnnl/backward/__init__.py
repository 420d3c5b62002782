"""Gradients of primitives: constructors of their backward Specs, one module per kind, and the rules these obey.

A backward Spec is of the forward one's kind and differs in ``prop_kind``; convolution's are beside their forward one,
with which they share all rules.
"""
