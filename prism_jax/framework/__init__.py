"""Training frameworks: names, kernels, and what they hold in memory."""
