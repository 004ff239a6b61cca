"""Show."""
