"""run_study: figures of every task, on this process or on several, in the order of the tasks.

A task is whatever `load` makes a job of: options of a command, or a job itself. Every task is measured by itself under the same
seed, so that the table is the same to the last bit however many processes share the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import astuple, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from .._core.content import content_hash
from .._core.processes import check_workers, processes
from .._version import __version__
from ..errors import PrismError
from ..job import Job
from ..progress import Progress, silent
from .figures import Figures
from .journal import StudyJournal
from .measure import Asked, figures_of

Task = TypeVar("Task")
COLUMNS = tuple(item.name for item in fields(Figures))


@dataclass(frozen=True)
class Measured(Generic[Task]):
    """What has become of a task.

    Attributes:
        figures: None where the job is impossible.
        problem: why.
    """

    task: Task
    figures: Figures | None
    problem: str = ""


def run_study(
    tasks: Sequence[Task],
    load: Callable[[Task], Job],
    asked: Asked,
    *,
    identity: object = (),
    resume: Path | None = None,
    n_workers: int = 1,
    progress: Progress = silent,
) -> list[Measured[Task]]:
    """Measures every task.

    Args:
        tasks: picklable; with `load`, a function that a module defines, the whole of a job.
        identity: what else decides the answer, such as the content of files (`content_hash` takes it).
        resume: file that remembers what is done; the same study with the same file goes on where it stopped.
        n_workers: processes on this host.

    Raises:
        DataError: the file is that of another study, or `n_workers` is out of range.

    Notes:
        A job that is impossible is a row with its reason; the others go on.
    """
    check_workers(n_workers)
    fingerprint = content_hash(__version__, COLUMNS, asked, list(tasks), identity)
    journal = StudyJournal(resume, fingerprint, len(tasks), len(COLUMNS))
    left = [number for number in range(len(tasks)) if not journal.done[number]]
    one = partial(_measured, load=load, asked=asked)
    for done, (number, row, problem) in enumerate(_results(one, tasks, left, n_workers), len(tasks) - len(left) + 1):
        journal.put(number, row, problem)
        progress(done / len(tasks), "jobs")
    if left:
        journal.save()
    return [_row(task, journal, number) for number, task in enumerate(tasks)]


def _results(
    one: Callable[[Task], tuple[np.ndarray | None, str]], tasks: Sequence[Task], left: Sequence[int], n_workers: int
) -> Iterator[tuple[int, np.ndarray | None, str]]:
    """What becomes of the tasks that are left, as they are done."""
    if n_workers == 1 or len(left) < 2:
        yield from ((number, *one(tasks[number])) for number in left)
        return
    with processes(min(n_workers, len(left))) as pool:
        waiting = {pool.submit(one, tasks[number]): number for number in left}
        for future in as_completed(waiting):
            yield (waiting[future], *future.result())


def _measured(task: Task, *, load: Callable[[Task], Job], asked: Asked) -> tuple[np.ndarray | None, str]:
    try:
        return np.array(astuple(figures_of(load(task), asked)), dtype=np.float64), ""
    except PrismError as error:
        return None, " ".join(str(error).split())


def _row(task: Task, journal: StudyJournal, number: int) -> Measured[Task]:
    problem = str(journal.problems[number])
    if problem:
        return Measured(task, None, problem)
    return Measured(task, Figures(*map(float, journal.rows[number])))
