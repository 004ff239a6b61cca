"""Use cases about many jobs: sweeps, scaling, comparisons, capacity."""
