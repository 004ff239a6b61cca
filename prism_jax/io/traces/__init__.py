"""Readers of recorded training jobs, one file per format, and `open_trace`, which finds the reader by the content."""
