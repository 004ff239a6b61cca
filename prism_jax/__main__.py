"""`prism-jax`, and `python -m prism_jax`."""

import sys


def main() -> int:
    """Runs the command line and returns its exit code, also where Ctrl-C comes while the first modules are loaded."""
    try:
        from .shell.app import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
