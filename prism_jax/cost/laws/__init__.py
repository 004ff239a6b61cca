"""Laws of kernels beside matrix products and fused attention: convolutions, and kernels bound by memory or by their start."""
