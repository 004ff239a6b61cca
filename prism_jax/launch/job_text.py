"""Writes a stated job as a job file: every field with where it is from. Names of hosts and folders are not written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..plan.plan import ParallelPlan
from ..tables.document import Document
from ..tables.yaml_toml import flow
from .stated import StatedJob

COLUMN = 44


ORIGINS = {"log": "the head of a training log", "script": "a launch script", "configuration": "a configuration"}


def degrees_text(plan: ParallelPlan) -> str:
    """Degrees of a plan in words, such as tp 8 x pp 4 x dp 16."""
    return f"tp {plan.tp} x pp {plan.pp} x cp {plan.cp} x dp {plan.dp}".replace(" x cp 1", "")


def job_text(stated: StatedJob, document: Document, source: str = "log") -> str:
    """YAML of a job file.

    Args:
        stated: the fields and where they are from.
        document: what is written: the fields, with what replaces some of them.
        source: kind of file that it is from.
    """
    comments = {tuple(path.split(".")): one.comment for path, one in stated.fields.items()}
    lines = [f"# Read from {ORIGINS[source]}; every field says from which line."]
    lines += _section(document.data, (), comments)
    return "\n".join(lines) + "\n"


def _section(data: dict[str, Any], path: tuple[str, ...], comments: dict[tuple[str, ...], str]) -> Iterator[str]:
    front = "  " * len(path)
    for name, value in data.items():
        here = (*path, name)
        if isinstance(value, dict):
            yield f"{front}{name}:"
            yield from _section(value, here, comments)
            continue
        text = f"{front}{name}: {flow(value)}"
        about = comments.get(here, "" if here == ("name",) else "--set")
        yield f"{text.ljust(COLUMN)} # {about}" if about else text
