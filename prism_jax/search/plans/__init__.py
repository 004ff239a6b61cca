"""Spaces and tables of plans, the rules they must keep, and what they cost without a simulation."""
