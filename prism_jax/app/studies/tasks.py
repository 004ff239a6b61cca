"""Tasks of studies about job files: picklable, and told apart by the content of their files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..._core.input_file import check_input, open_input
from ...errors import DataError
from ...io.job.examples import example_files
from ...job import Job
from ..fitted.load_fits import load_fits
from ..jobs import JobSource, loaded

PART = 1 << 20


@dataclass(frozen=True)
class JobTask:
    """A job file with overrides and fits.

    Attributes:
        source: file, or name of a shipped job.
        overrides: "section.field=value".
        fits: files of `prism-jax fit` or `calibrate`.
        force: use a fit even where its verdict is failed.
    """

    source: str
    overrides: tuple[str, ...] = ()
    fits: tuple[str, ...] = ()
    force: bool = False


def load_task(task: JobTask) -> Job:
    """The job of a task, with its fits.

    Raises:
        ConfigError, DataError, FitError: a file or an override is wrong.
    """
    job = loaded(task.source, task.overrides)
    return load_fits(job, task.fits, force=task.force).job if task.fits else job


def source_text(job: JobSource) -> str:
    """The job as a task names it.

    Raises:
        DataError: a Job, which has no fields that texts could replace.
    """
    if isinstance(job, Job):
        raise DataError("a study replaces fields of a job file. Give a file or the name of a shipped job, not a Job.")
    return str(job)


def content_of(source: str, fits: Sequence[str]) -> tuple[str, ...]:
    """Digests of the files that a study reads.

    Raises:
        DataError: one cannot be read.
    """
    return tuple(_digest(file) for file in (example_files().get(source, Path(source)), *map(Path, fits)))


def _digest(file: Path) -> str:
    check_input(file)
    digest = hashlib.blake2b(digest_size=16)
    with open_input(file) as stream:
        while part := stream.read(PART):
            digest.update(part)
    return digest.hexdigest()
