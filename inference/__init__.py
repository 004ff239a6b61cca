"""Fitting variability to measurements. Reached through `prism_jax.fit`, which checks that this package is the one imported."""

PART_OF_PRISM_JAX = True
