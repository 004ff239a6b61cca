"""Dlrm."""
