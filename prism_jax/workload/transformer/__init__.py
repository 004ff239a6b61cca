"""Decoder-only transformers: sizes, kernels, communication, saved tensors."""
