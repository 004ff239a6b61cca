"""`prism-jax`, and `python -m prism_jax`."""

import gc
import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code, also where Ctrl-C comes while the first modules are loaded.

    Args:
        arguments: words after the name of the program; those of this process by default.
    """
    # Small products on two threads take many times as long as on one; read when NumPy is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Modules and programs stay: to look through them 150 times was a tenth of a prediction.
    gc.set_threshold(500_000, 10, 10)
    try:
        from .shell.app import main as run

        return run(arguments)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
