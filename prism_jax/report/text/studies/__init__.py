"""Reports about many jobs, as lines of plain text."""
