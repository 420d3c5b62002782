"""What each group of kernels could be."""
