"""Speed of the GPUs of a fleet."""
