"""Cost."""
