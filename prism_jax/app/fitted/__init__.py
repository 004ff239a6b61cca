"""Jobs with what fits say of them: calibrated cost, fitted variability, the level of a log."""
