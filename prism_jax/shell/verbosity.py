"""What a command says to people (stderr), and how much of it; the same options on every command."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from ..printable import printable, shortened


@dataclass
class Verbosity:
    """How talkative this run is; set by the options, read everywhere in `shell`."""

    quiet: bool = False
    verbose: bool = False
    debug: bool = False

    def reset(self) -> None:
        """Back to the default: progress and errors, no tracebacks."""
        self.quiet = self.verbose = self.debug = False


VERBOSITY = Verbosity()


def say(text: str, *, always: bool = False, detail: bool = False) -> None:
    """One line to stderr, spelt out where it would steer the terminal, and no longer than people read.

    Args:
        always: even when quiet.
        detail: only when verbose.
    """
    if always or (not VERBOSITY.quiet and (VERBOSITY.verbose or not detail)):
        print(shortened(printable(text)), file=sys.stderr)
