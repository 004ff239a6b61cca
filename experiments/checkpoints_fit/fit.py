"""`python -m experiments.checkpoints_fit.fit TABLE [--json]`; options and output as those of `prism-jax fit MODEL`."""

from experiments.extra_fits import main

if __name__ == "__main__":
    main("checkpoints")
