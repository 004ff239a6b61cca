"""Commands about many jobs: sweeps, scaling, comparisons, capacity."""
