"""Use cases that place things: measured nodes, embedding tables."""
