"""Use cases about clouds: what to rent."""
