"""`python -m prism_jax`: the same as `prism-jax`."""

import sys

try:
    from .shell.app import main

    code = main()
except KeyboardInterrupt:  # while the first modules are loaded
    code = 130
sys.exit(code)
