"""`load_job`: a job file to a Job, or one error that lists every mistake with file, line, field, value and remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ...errors import ConfigError, Mistake
from ...framework import FRAMEWORKS
from ...job import Job
from ...rules.check import problems
from ...software.choices import Software
from .captured.section import names_capture, read_captured, refuse_kernels, with_captured_plan
from .cluster_section import read_cluster
from .document import Document
from .mistakes import validated
from .override import apply_overrides
from .read_job_file import read_job_file
from .schema import Text, job_section, one_of
from .sections import located, read_model, read_plan, read_software
from .variability_section import read_variability

SECTIONS: dict[str, Any] = {
    "name": (Text, None),
    "model": (Any, ...),
    "cluster": (Any, ...),
    "plan": (Any, ...),
    "software": (Any, None),
    "variability": (Any, None),
}


def load_job(path: str | Path, overrides: Sequence[str] = ()) -> Job:
    """The job described by a YAML or TOML file, or by the name of a shipped example.

    Args:
        path: the file, or a name that `prism-jax show examples` lists.
        overrides: "section.field=value" texts that replace or add fields, values read as YAML.

    Raises:
        ConfigError: everything that is wrong, one line per mistake.

    Example:
        >>> load_job("llama3_405b_16384", ["plan.micro_batch=2"])  # doctest: +SKIP
    """
    document = apply_overrides(read_job_file(path), list(overrides))
    return job_of(document)


def job_of(document: Document) -> Job:
    """The job of a document; see `load_job`."""
    found: list[Mistake] = []
    refuse_kernels(document)
    captured = read_captured(document, found) if names_capture(document) else None
    if names_capture(document) and captured is None:
        raise ConfigError(found)
    document = document if captured is None else with_captured_plan(document, captured)
    validated(job_sections(), document.data, document, (), found)
    written = document.data.keys()
    plan = read_plan(document, found) if "plan" in written else None
    software = read_software(document, found) if "software" in written else Software()
    plan = None if plan is None or software is None else replace(plan, software=software)
    model = captured or (read_model(document, found) if "model" in written else None)
    cluster = read_cluster(document, plan, found) if "cluster" in written else None
    variability = read_variability(document, cluster, found)
    if plan is not None and model is not None and cluster is not None:
        found += [located(problem, document, ("plan",)) for problem in problems(plan, model, cluster)]
    if found or plan is None or model is None or cluster is None or variability is None:
        raise ConfigError(sorted(found, key=lambda mistake: mistake.place))
    name = document.data.get("name") or Path(document.name).stem
    framework = document.data.get("framework") or ""
    return Job(model=model, cluster=cluster, plan=plan, variability=variability, name=name, framework=framework)


def job_sections() -> type[BaseModel]:
    """The top level of a job file; the frameworks that a job may name are those that are known now."""
    return _sections_of(tuple(FRAMEWORKS.names))


@lru_cache(maxsize=8)  # tables of jobs ask once per row
def _sections_of(frameworks: tuple[str, ...]) -> type[BaseModel]:
    return job_section({**SECTIONS, "framework": (one_of(frameworks), None)})
