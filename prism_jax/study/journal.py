"""Figures of a study that are done, in a file or in a folder with one file of every shard.

A shard is every n-th task of a study, for schedulers that start the same command many times: an array of Slurm, a Job of
Kubernetes with an index. Each writes its own file into one folder; the command without a shard then reads them all. A task that
two files hold has the same figures in both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core.errors import DataError
from ..core.kept_work import Expected, WorkFile
from ..core.processes import COUNTED_BY
from ..job.job import Job
from .figures import JobFigures

MOST_TEXT = 400  # characters kept of why a task has no figures
MOST = 1e30  # of any figure
MOST_SHARDS = 100_000
COLUMNS = tuple(item.name for item in fields(JobFigures))
MAY_BE_UNKNOWN = np.array([item.default is not MISSING for item in fields(JobFigures)])
POSITIVE = (
    "n_devices", "value", "mean_s", "p50_s", "model_low", "tokens_per_step", "tokens_per_s", "tokens_per_s_per_gpu",
)  # fmt: skip


class StudyShard(NamedTuple):
    """Every n-th task of a study.

    Attributes:
        number: 0 to `of` - 1.
        of: number of shards.
    """

    number: int = 0
    of: int = 1

    def positions(self, n_tasks: int) -> range:
        """Returns the positions of its tasks in the study."""
        return range(self.number, n_tasks, self.of)

    @property
    def file_name(self) -> str:
        """Name of its file in a folder of results."""
        return "whole.npz" if self.of == 1 else f"shard-{self.number}-of-{self.of}.npz"


WHOLE = StudyShard()
FILE_NAME = re.compile(r"whole\.npz|shard-\d{1,6}-of-\d{1,6}\.npz")
SCHEDULERS = (  # variables with the index of a process, the first index, and the number of processes
    ("JOB_COMPLETION_INDEX", "", ""),  # a Job of Kubernetes with completionMode: Indexed
    ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_COUNT"),
    *((number, "", count) for number, count in COUNTED_BY),
)


def shard_of(text: str, variables: Mapping[str, str] = os.environ) -> StudyShard:
    """Reads a shard: "3/64" is the fourth of 64; "auto/64" takes the number from the scheduler, "auto" the 64 too.

    Args:
        variables: environment in which schedulers state the index of a process.

    Raises:
        DataError: the text is no shard, or no scheduler states one.
    """
    number, _, of = text.partition("/")
    if number == "auto":
        number, known = _scheduled(variables)
        of = of or known
    if not (number.isdecimal() and of.isdecimal()) or not int(number) < int(of) <= MOST_SHARDS:
        raise DataError(
            f"--shard: {text!r} is none. Give the index and the number of shards, 0/64 to 63/64 (at most {MOST_SHARDS:,}), or "
            f"auto/64, which takes the index from the scheduler."
        )
    return StudyShard(int(number), int(of))


def _scheduled(variables: Mapping[str, str]) -> tuple[str, str]:
    """Index and number of processes that a scheduler states.

    Raises:
        DataError: none does.
    """
    for index, first, count in SCHEDULERS:
        found, start = variables.get(index, ""), variables.get(first, "") or "0"
        if found.isdecimal() and start.isdecimal() and int(found) >= int(start):
            return str(int(found) - int(start)), variables.get(count, "")
    names = ", ".join(index for index, _, _ in SCHEDULERS)
    raise DataError(f"--shard auto: no scheduler states an index here ({names} are not set). Give --shard 0/64.")


class StudyJournal:
    """Rows of figures by the position of their task, or why a task has none, each with the content of the job that it is of.

    Args:
        path: file, or folder of files; None: in memory only.
        own: `identity` of what is measured.
        n_tasks: of the study.
        shard: the tasks of this process; a part of a study needs a folder.

    Raises:
        DataError: a file is damaged, or that of another study.
    """

    def __init__(self, path: Path | None, own: str, n_tasks: int, shard: StudyShard = WHOLE) -> None:
        self.rows = np.full((n_tasks, len(COLUMNS)), np.nan)
        self.problems = np.full(n_tasks, "", dtype=f"U{MOST_TEXT}")
        self.jobs = np.full(n_tasks, "", dtype="U32")  # empty: not done
        others, target = [], path
        if path is not None and (path.is_dir() or shard.of > 1):
            target = path / shard.file_name
            others = [file for file in _files(path) if file != target]
        for file in others:
            self._read(WorkFile(file, "study", own))
        self._saved = self.jobs != ""  # in files of others
        self._file = WorkFile(target, "study", own)
        self._read(self._file)

    def _read(self, file: WorkFile) -> None:
        """Takes what a file holds.

        Raises:
            DataError: it is damaged, of another study, or contradicts another file.
        """
        least = np.array([0.0 if name not in POSITIVE else 1.0 / MOST for name in COLUMNS])
        least[COLUMNS.index("waiting_s")] = -MOST  # a difference of two times
        schema = {
            "tasks/positions": Expected("iu", (None,), 0, len(self.jobs) - 1),
            "tasks/rows": Expected("f", (None, len(COLUMNS)), least, MOST, may_be_nan=True),
            "tasks/problems": Expected("U", (None,)),
            "tasks/jobs": Expected("U", (None,)),
        }
        if (found := file.read(lambda _: schema)) is None:
            return
        positions, rows, problems, jobs = (found[name] for name in schema)
        if len({len(positions), len(rows), len(problems), len(jobs)}) > 1 or len(set(positions.tolist())) < len(
            positions
        ):
            raise file.refused("its arrays are of unlike tasks")
        self._check(file, rows, problems, jobs)
        again = self.jobs[positions] != ""
        before = self.rows[positions], self.problems[positions], self.jobs[positions]
        self.rows[positions], self.problems[positions], self.jobs[positions] = rows, problems, jobs
        after = self.rows[positions], self.problems[positions], self.jobs[positions]
        if any(
            not np.array_equal(x[again], y[again], equal_nan=x.dtype.kind == "f")
            for x, y in zip(before, after, strict=True)
        ):
            raise file.refused("another file of the folder holds other figures of the same task")

    def _check(self, file: WorkFile, rows: np.ndarray, problems: np.ndarray, jobs: np.ndarray) -> None:
        """Whether every task has a job, and a reason or figures in order."""
        has_row, unknown = problems == "", np.isnan(rows)
        low, middle, high, fits = (rows[has_row, COLUMNS.index(name)] for name in ("p50_s", "p95_s", "p99_s", "fits"))
        if (jobs == "").any() or (unknown & ~MAY_BE_UNKNOWN)[has_row].any() or not unknown[~has_row].all():
            raise file.refused("figures are missing or too many")
        if not ((low <= middle) & (middle <= high) & np.isin(fits, (0.0, 1.0))).all():
            raise file.refused("figures contradict each other")

    def left(self, positions: Sequence[int], job_of: Callable[[int], Job | None]) -> list[int]:
        """Selects the positions of the tasks that are not done.

        Args:
            positions: of the tasks that are wanted.
            job_of: position of a task -> its job as it is now; None where it cannot be loaded.

        Raises:
            DataError: a task that is done is now of another job, or its figures are.
        """
        for number in positions:
            if self.jobs[number] == "":
                continue
            job = job_of(number)
            if job is None or job.content != self.jobs[number]:
                raise self._file.of_another()
            if self.problems[number] == "" and self.rows[number, COLUMNS.index("n_devices")] != job.plan.n_devices:
                raise self._file.refused("figures are of another number of GPUs")
        return [number for number in positions if self.jobs[number] == ""]

    def put(self, task: int, job: str, row: np.ndarray | None, problem: str) -> None:
        """Keeps what has become of a task, on disk too if some time has passed."""
        if row is not None:
            self.rows[task] = row
        self.problems[task], self.jobs[task] = problem[:MOST_TEXT], job
        if self._file.is_due:
            self.save()

    def save(self) -> None:
        """Writes the file, if there is one to write, with what no other file of a folder holds."""
        done = np.flatnonzero((self.jobs != "") & ~self._saved)
        problems = np.array(self.problems[done].tolist(), dtype=str)  # no wider than the longest
        arrays = {"positions": done, "rows": self.rows[done], "problems": problems, "jobs": self.jobs[done]}
        self._file.save({f"tasks/{name}": value for name, value in arrays.items()})


def _files(folder: Path) -> list[Path]:
    """Files of shards in a folder, which is made where it is missing.

    Raises:
        DataError: the folder cannot be made or read.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return sorted(file for file in folder.iterdir() if FILE_NAME.fullmatch(file.name))
    except OSError as error:
        raise DataError(f"{folder}: cannot be a folder of results: {error.strerror}. Give another folder.") from None
