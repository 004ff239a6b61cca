"""The commands on recorded jobs."""
