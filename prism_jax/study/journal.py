"""Journal of a study: the tasks that are done, in an archive, so that an interrupted study goes on where it stopped."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from .._core.archive import opened, write_archive
from ..errors import DataError

KIND = "study"
REMEDY = "Give another file, or remove it to start over."
SAVE_EVERY_S = 10.0
MAX_BYTES = 1 << 30
MOST_TEXT = 400  # characters kept of why a task has no figures


class StudyJournal:
    """Rows of numbers by the position of their task, or why a task has none.

    Args:
        path: None: in memory only.
        fingerprint: of the tasks and of what is measured; a file of another study is refused.
        n_tasks, n_columns: of the study.

    Raises:
        DataError: the file is damaged, or that of another study.
    """

    def __init__(self, path: Path | None, fingerprint: str, n_tasks: int, n_columns: int) -> None:
        self._path, self._fingerprint = path, fingerprint
        self.rows = np.full((n_tasks, n_columns), np.nan)
        self.problems = np.full(n_tasks, "", dtype=f"U{MOST_TEXT}")
        self.done = np.zeros(n_tasks, dtype=bool)
        if path is not None and path.exists():
            self._load(path)
        self._saved_at = time.monotonic()

    def put(self, task: int, row: np.ndarray | None, problem: str = "") -> None:
        """Keeps what has become of a task, on disk too if some time has passed."""
        if row is not None:
            self.rows[task] = row
        self.problems[task] = problem[:MOST_TEXT]
        self.done[task] = True
        if time.monotonic() - self._saved_at > SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Writes the file, whole or not at all."""
        if self._path is not None:
            arrays = {"rows": self.rows, "problems": self.problems, "done": self.done}
            write_archive(self._path, KIND, {"fingerprint": self._fingerprint}, arrays)
        self._saved_at = time.monotonic()

    def _load(self, path: Path) -> None:
        with opened(path, KIND, REMEDY, MAX_BYTES) as archive:
            if archive.about.get("fingerprint") != self._fingerprint:
                raise DataError(f"{path}: the file of another study (job, grid, options or version differ). {REMEDY}")
            for name in ("rows", "problems", "done"):
                own, header = getattr(self, name), archive.headers.get(name)
                if header is None or (header.shape, header.kind) != (own.shape, own.dtype.kind):
                    raise DataError(f"{path}: {name} is missing or of another form. {REMEDY}")
                setattr(self, name, archive.load(name).astype(own.dtype))
