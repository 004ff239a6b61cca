"""Jobs as use cases take them: an object, a file, or the name of a shipped example."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

from ..errors import DataError
from ..io.job.load_job import load_job
from ..job import Job
from ..report.option import Argument

JobSource: TypeAlias = Job | str | Path


def loaded(job: JobSource, overrides: Sequence[str] = ()) -> Job:
    """The job itself, or the one that a file describes.

    Args:
        job: a Job; YAML or TOML file; or a name that `prism-jax show examples` lists.
        overrides: "section.field=value" texts that replace or add fields of a file.

    Raises:
        ConfigError: everything that is wrong with a file.
        DataError: overrides of a Job.
    """
    if not isinstance(job, Job):
        return load_job(job, list(overrides))
    if overrides:
        raise DataError(
            f"overrides = {list(overrides)}, but they replace fields of a file. Replace fields of the Job itself."
        )
    return job


def source_of(job: JobSource) -> str:
    """What a run record calls the job."""
    return job.name if isinstance(job, Job) else str(job)


JobFile = Annotated[
    JobSource,
    Argument(
        metavar="JOB",
        told=source_of,
        help="YAML or TOML file, a capture, or the name of a shipped job (`prism-jax show examples`).",
    ),
]
