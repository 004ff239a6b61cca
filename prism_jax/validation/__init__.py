"""Predicted against measured step times: errors, intervals and reasons per row, by source and overall."""
