"""Predictions of several jobs, or of one job under several draws of a fit, with one compiled program."""
