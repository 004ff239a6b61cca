"""Cost model."""
