"""`python -m prism_jax`: the same as `prism-jax`."""

import sys

from .cli.app import main

sys.exit(main())
