"""Costs of steps and reorders on a machine: a model, measured times, and their store."""
