"""Gradient-based search over plans."""
