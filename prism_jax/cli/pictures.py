"""Pictures as files: asked for by the ending of their name, written whole or not at all."""

from __future__ import annotations

from typing import Any

ENDINGS = ("png", "pdf", "svg")


def check_picture(path: str | None) -> None:
    """Whether a picture could be written at `path`: to be asked before minutes of work, not after.

    Raises:
        DataError: another ending, no such folder, or a folder in its place.
    """
    from ..errors import DataError
    from ..io.write import check_target

    if path is None:
        return
    if _ending(path) not in ENDINGS:
        raise DataError(f"--plot: {path}: the name must end in .{', .'.join(ENDINGS[:-1])} or .{ENDINGS[-1]}")
    check_target(path)


def write_picture(path: str, figure: Any) -> None:
    """Writes a figure of `plot` in the format of the ending of `path`."""
    from ..io.write import write_bytes
    from ..plot import figure_bytes

    write_bytes(path, figure_bytes(figure, _ending(path)))


def _ending(path: str) -> str:
    return path.rsplit(".", 1)[-1].lower() if "." in path else ""
