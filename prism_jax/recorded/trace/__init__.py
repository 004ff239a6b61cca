"""The ops of a recorded job as columns, their dependencies and the waits between them."""
