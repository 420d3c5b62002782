"""Candidates: the ways to run each tile of kernels."""
