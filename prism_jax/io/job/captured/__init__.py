"""Captures in the place of a job file, or of the model of one."""
