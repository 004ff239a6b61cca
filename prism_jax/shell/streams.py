"""Exit codes and standard streams of `prism-jax`.

0 done; 1 failed: a fit that failed its checks, a job given to `check` or `predict` that does not fit into memory, a full disk, a
fault; 2 wrong input: an option, a file, a job; 130 interrupted, 143 terminated (work that is
kept was written).

Standard streams as they are found: closed ones lead nowhere, and what an encoding cannot write is spelt in ASCII.

What a command says to people (stderr), and how much of it; the same options on every command.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from dataclasses import dataclass

from ..core.errors import printable, shortened
from ..core.processes import Progress

OK, FAILED, WRONG_INPUT, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143


_SPELT = {"±": "+/-", **dict.fromkeys("█▉▊▋▌", "#"), **dict.fromkeys("▍▎▏", "")}  # what the reports draw with
_HANDLER = "prism_jax.spell"


def prepare_streams() -> None:
    """Call before anything is printed: with a daemon's closed streams, or in a locale of few characters, commands still run."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # in the order of their numbers
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  stays open to the end
    codecs.register_error(_HANDLER, _spell)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_HANDLER)


def json_for_stdout(text: str) -> str:
    """JSON `text`, its characters escaped where stdout cannot write them, or where they would steer the terminal."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return "".join(letter if letter.isascii() else json.dumps(letter)[1:-1] for letter in text)
    return "".join(letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1] for letter in text)


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_SPELT.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


@dataclass
class Verbosity:
    """Words that were typed, and how talkative this run is; set by the options, read everywhere in `shell`.

    Attributes:
        progress: told how far the work is in the place of a terminal; None: nobody but a terminal is told.
    """

    words: tuple[str, ...] = ()
    quiet: bool = False
    verbose: bool = False
    debug: bool = False
    progress: Progress | None = None

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
