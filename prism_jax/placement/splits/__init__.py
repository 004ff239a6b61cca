"""Uneven layers per stage and micro-batches per replica."""
