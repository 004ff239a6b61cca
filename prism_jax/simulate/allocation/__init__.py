"""Steps within one allocation of GPUs, and allocations beside each other."""

from .measure import allocation_spread as allocation_spread
