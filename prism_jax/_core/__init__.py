"""What everything rests on: files written whole, lazy names, registries, equality by content, array libraries."""
