"""A new job file with every field in it: common ones set, the others as comments that hold the value in force.

Taking the `# ` in front of such a comment away leaves the job as it is. Fields that the job has no value for stand behind `##`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import yaml

from ....job import Job
from ....plan.plan import ParallelPlan
from ..document import Document
from ..load_job import job_of
from ..reference.fields import JobField, job_fields
from ..sections import MODEL_SOURCES
from .sections import cluster_fields, whole_fields

HEAD = """\
# A job of prism-jax: `prism-jax check {file}` says what follows from it, `prism-jax predict {file}` how long its step takes.
# A field behind `# ` has the value that holds without it: take the `# ` away to change it.
# A field behind `##` is one that this job does not have. docs/job_file.md describes them all.
"""
COMMON = (
    "micro_batch", "global_batch", "seq_len", "tp", "pp", "dp", "cp", "ep", "schedule", "virtual_stages", "sequence_parallel",
    "zero_stage", "recompute", "dtype",
)  # fmt: skip
COLUMN = 40  # where the words begin
LONGEST = 120  # characters of a value; longer ones are named only
OF_DEVICE, OF_TIER = ("hbm", "hbm_bandwidth", "power"), ("bandwidth", "latency")  # what people change


def new_job_text(data: Mapping[str, Any], file: str) -> str:
    """YAML of a job with the given sections.

    Args:
        data: name, model, cluster, plan and perhaps framework, as a job file has them: mappings for model, cluster and plan.
        file: where the text will be kept, for its head and for paths inside it.

    Raises:
        ConfigError: these sections are no job.
    """
    job = job_of(Document(file, dict(data)))
    found = {field.path: field for field in job_fields()}
    lines = [HEAD.format(file=file)]
    for name in ("name", "model", "cluster", "plan", "framework", "software", "variability"):
        lines += [*_section(name, data, job, found), ""]
    return "\n".join(lines)


def _section(name: str, data: Mapping[str, Any], job: Job, found: Mapping[tuple[str, ...], JobField]) -> Iterator[str]:
    """Lines of one section of the top level."""
    about = found[(name,)].about
    inside = [field for path, field in found.items() if len(path) == 2 and path[0] == name]
    if name == "variability":
        yield _line("# ", name, job.variability.name, about)
        yield _line("## ", name, _names(inside), "its fields")
    elif name == "software" and name not in data:  # stating what is assumed would change the job
        yield f"{name}: # {about}"
        yield from (_line("  ## ", field.path[-1], field.takes, field.about) for field in inside)
    elif name not in data:
        yield _line("## ", name, found[(name,)].takes, about)
    elif not isinstance(data[name], Mapping):
        yield _line("", name, data[name], about)
    else:
        yield f"{name}: # {about}"
        values = _VALUES[name](job)
        set_ = {*(COMMON if name == "plan" else ()), *data[name]}
        for field in sorted(inside, key=lambda field: field.path[1] not in set_):
            yield from _field(field, set_, data[name], values, found)


def _field(
    field: JobField,
    set_: set[str],
    data: Mapping[str, Any],
    values: Mapping[str, Any],
    found: Mapping[tuple[str, ...], JobField],
) -> Iterator[str]:
    """The line of one field inside a section."""
    name = field.path[-1]
    if name in data:
        yield _line("  ", name, data[name], field.about)
    elif name in set_:
        yield _line("  ", name, values[name], field.about)
    elif name in values and len(_flow(values[name])) <= LONGEST:
        yield _line("  # ", name, values[name], field.about)
    elif name not in MODEL_SOURCES or field.path[0] != "model":
        inner = [each for path, each in found.items() if path[:-1] == field.path]
        yield _line("  ## ", name, _names(inner) if inner else field.takes, field.about)


def _line(front: str, name: str, value: Any, about: str) -> str:
    return f"{front}{name}: {value if front.endswith('## ') else _flow(value)}".ljust(COLUMN - 1) + f" # {about}"


def _names(inner: list[JobField]) -> str:
    return f"{{{', '.join(field.path[-1] for field in inner)}}}"


def _flow(value: Any) -> str:
    """A value on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def _model_values(job: Job) -> dict[str, Any]:
    return {name: value for name, value in whole_fields(job.model).items() if value is not None}


def _cluster_values(job: Job) -> dict[str, Any]:
    """Fields of the cluster as changes to a preset: its device, and tiers by name."""
    written = cluster_fields(job.cluster)
    device = {name: value for name, value in written["device"].items() if name in OF_DEVICE}
    tiers = {tier["name"]: {name: tier[name] for name in OF_TIER} for tier in written["tiers"]}
    return written | {"device": device, "tiers": tiers, "n_devices": job.cluster.n_devices}


def _plan_values(job: Job) -> dict[str, Any]:
    plain = whole_fields(job.plan)
    names = [item.name for item in fields(ParallelPlan) if item.name != "software"]  # which has a section of its own
    return {name: plain[name] for name in names if plain[name] is not None}


def _software_values(job: Job) -> dict[str, Any]:
    return {}  # none but those that are stated


_VALUES = {"model": _model_values, "cluster": _cluster_values, "plan": _plan_values, "software": _software_values}
