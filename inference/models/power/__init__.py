"""Power of GPUs against clock and power limit."""
