"""Pictures as files: asked for by the ending of their name, written whole or not at all."""

from __future__ import annotations

from typing import Any

from .._core.files import atomic_path, check_target
from ..errors import DataError

ENDINGS = ("png", "pdf", "svg")


def check_picture(path: str) -> None:
    """Whether a picture could be written at `path`: to be asked before minutes of work, not after.

    Raises:
        DataError: another ending, no such folder, or a folder in its place.
    """
    if _ending(path) not in ENDINGS:
        raise DataError(f"--plot: {path}: the name must end in .{', .'.join(ENDINGS[:-1])} or .{ENDINGS[-1]}")
    check_target(path)


def write_picture(path: str, figure: Any) -> None:
    """Writes a figure of `plot` in the format of the ending of `path`."""
    from ..plot import figure_bytes  # matplotlib is heavy

    with atomic_path(path) as temporary:
        temporary.write_bytes(figure_bytes(figure, _ending(path)))


def _ending(path: str) -> str:
    return path.rsplit(".", 1)[-1].lower() if "." in path else ""
