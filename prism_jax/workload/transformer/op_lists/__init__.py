"""Kernels of the parts of a layer: attention core, MLPs, memory-bound ones."""
