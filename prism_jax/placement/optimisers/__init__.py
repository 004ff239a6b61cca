"""Ways to assign nodes to slots."""
