"""Horizon."""
