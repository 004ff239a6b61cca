"""The trace front end: recorded ops of a real job, who waits for whom in it, and what of their time was work. No JAX."""
