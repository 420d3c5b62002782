"""PyTorch programs as networks."""
