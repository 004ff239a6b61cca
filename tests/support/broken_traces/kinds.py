"""How kinds of broken traces are listed, and what several of them are made of."""

import re
from collections.abc import Callable
from pathlib import Path

from tests.support.files.broken import Broken

HEADER = "step,dp,pp,op_type,start_s,duration_s"
GOOD_ROW = "1,0,0,forward-compute,0,1\n"


BROKEN: list[Broken] = []


def broken(name: str, match: str) -> Callable[[Callable[[Path], Path]], Callable[[Path], Path]]:
    """Adds a kind to `BROKEN`."""

    def add(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
        BROKEN.append(Broken(name, make, match))
        return make

    return add


def bytes_file(name: str, file: str, content: bytes, match: str) -> None:
    """A kind whose file is `content`; `match` is what the message says after the name of the file."""
    broken(name, re.escape(file) + match)(lambda folder: written(folder / file, content))


def csv_file(name: str, text: str, match: str) -> None:
    """A kind that is a plain table in CSV."""
    bytes_file(name, "ops.csv", text.encode(), match)


def written(path: Path, content: bytes) -> Path:
    """`path`, with that content."""
    path.write_bytes(content)
    return path
