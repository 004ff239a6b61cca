"""Search: plans, and placements of measured nodes, that minimise the tail of the step time."""
