"""Transformer."""
