"""Captured."""
