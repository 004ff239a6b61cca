"""Seconds until a machine that was asked for runs."""
