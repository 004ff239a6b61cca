"""Cloud."""
