"""How fast kernels run by shape."""
