"""Reports beyond the step, as lines of plain text."""
