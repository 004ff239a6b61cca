"""A local page over a folder of results: `prism-jax serve DIR`."""
