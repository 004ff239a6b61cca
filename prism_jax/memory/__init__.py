"""Peak memory of a device."""
