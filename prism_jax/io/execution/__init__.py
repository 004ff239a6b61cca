"""Execution traces of PyTorch and Chakra, and the profiles of the same runs, as captured programs."""
