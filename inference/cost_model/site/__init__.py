"""The shipped calibration updated by measured runs of one cluster."""
