"""Step times of runs."""
