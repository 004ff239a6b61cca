"""Pictures of recorded jobs."""
