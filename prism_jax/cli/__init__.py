"""The `prism-jax` command. Data go to stdout, talk to stderr; nothing here imports JAX before a command needs it."""
