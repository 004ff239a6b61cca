"""Recorded."""
