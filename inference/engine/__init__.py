"""Samplers, approximations and their diagnostics; knows no model."""
