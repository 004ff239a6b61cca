"""Use cases of captured programs."""
