"""Types of reports about many jobs."""
