"""Torch."""
