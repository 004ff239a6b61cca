"""A kind of broken file: how it is made, and what the one message about it must say."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Broken(NamedTuple):
    """One kind.

    Attributes:
        name: what is wrong, readable in a list of tests.
        make: writes it into a folder and returns what to open or read.
        match: regular expression that the message must match.
    """

    name: str
    make: Callable[[Path], Path]
    match: str
