"""What rows of a steps table say of kernels, adapters and how the software runs."""
