"""Seconds of collectives by size, group and system."""
