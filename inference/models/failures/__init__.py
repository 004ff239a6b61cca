"""Failure rates per GPU, node and job from counts of several clusters."""
