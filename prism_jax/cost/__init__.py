"""Seconds of kernels and communication, and of everything a member group does in a step."""
