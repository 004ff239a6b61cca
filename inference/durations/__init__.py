"""Durations."""
