"""Candidates: the ways to run each group of kernels."""
