"""What communication costs the kernels beside it."""
