"""Fields by which the job of a log is told from others, as one text that is kept with what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .job import Job

TELL_APART = (
    "model.n_layers", "model.hidden", "plan.tp", "plan.pp", "plan.cp", "plan.ep", "plan.micro_batch", "plan.global_batch",
    "plan.seq_len",
)  # fmt: skip


def logged_job(get: Callable[[str], Any]) -> str:
    """The text of a job that a head states; empty where it states none of the fields.

    Args:
        get: value of a field by its path; None where it is not stated.
    """
    stated = [f"{path}={value}" for path in TELL_APART if (value := get(path)) is not None]
    return " ".join(stated)


def unlike(text: str, job: Job) -> Sequence[str]:
    """Differences between the job of a log and another, in words; none where the text is empty.

    Args:
        text: as `logged_job` writes it.
    """
    found: list[str] = []
    for one in text.split():
        path, _, logged = one.partition("=")
        section, _, name = path.partition(".")
        own = getattr(getattr(job, section, None), name, None)
        if own is not None and str(own) != logged:
            found.append(f"{path} {logged} instead of {own}")
    return found
