"""A revision to compare with: a folder, or a temporary worktree of a commit."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .stored import ROOT


@contextmanager
def checkout_of(revision: str) -> Iterator[Path]:
    """Yields the folder itself, or a temporary worktree of a git revision."""
    if Path(revision).is_dir():
        yield Path(revision).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="worktree-") as above:
        folder = Path(above).resolve() / "checkout"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(folder), revision], check=True)
        try:
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True)
