"""Variability."""
