"""Scripts that measure GEMM, attention, memory and collectives on a person's own GPUs, and the command that writes them."""
