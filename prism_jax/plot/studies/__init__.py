"""Pictures of studies of many jobs."""
