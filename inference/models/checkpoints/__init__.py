"""Seconds that checkpoints take to save and load."""
