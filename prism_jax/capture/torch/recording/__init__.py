"""What torch dispatches while a step runs, as rows: operations, collectives, fused kernels, and what routing is taken to be."""
