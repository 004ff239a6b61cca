"""Recorded jobs changed: other workers, more micro-batches, stragglers replaced."""
