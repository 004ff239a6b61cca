"""Use cases on recorded jobs."""
