"""Seconds of a checkpoint from the bytes of its files, on one kind of storage."""
