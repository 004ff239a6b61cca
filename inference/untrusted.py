"""Reading files that somebody else may have written: whatever is wrong with them is one kind of error, that says what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prism_jax._core.input_file import check_input
from prism_jax.errors import DataError


@contextmanager
def reading(path: Path, kind: str, command: str, max_bytes: int) -> Iterator[None]:
    """What is read inside it, of a file of this `kind` that `prism-jax COMMAND` writes.

    Raises:
        DataError: there is no such file, it is no regular file, larger than `max_bytes`, or reading it failed in any way.
    """
    if not os.path.lexists(path):
        raise DataError(f"{path}: no such file. Write one with `prism-jax {command} -o {path.name}`.")
    check_input(path)
    if path.stat().st_size > max_bytes:
        raise DataError(f"{path}: larger than {max_bytes >> 20} MiB, which no {kind} is")
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # HDF5 reports damage by many kinds of error
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: not a {kind} that can be read ({type(error).__name__}: {reason})") from error
