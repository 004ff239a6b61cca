"""Calibration of the cost model to measured training steps."""
