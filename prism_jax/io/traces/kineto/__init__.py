"""PyTorch profiles (kineto)."""
