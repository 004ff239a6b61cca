"""Writes a job as the arguments of a training framework, and says what they cannot; what `prism-jax export` does.

`EXPORTERS` lists the frameworks. What was written is read back by the import, in a folder of its own, before anything is kept:
fields that come back otherwise are those that the framework has no argument for, and stand in the report and above the arguments.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from .._version import __version__
from ..core.errors import ConfigError, DataError, SpecError
from ..core.read_file import also_below
from ..core.registry import Registry
from ..core.report import Report
from ..core.use_case import OUTPUT, THE_JOB, UNRECORDED, Message, Option, use_case
from ..core.write_file import check_folder, write_files
from ..job.job import Job
from ..job.load_job import JobFile, job_of, loaded
from ..job.write_job import model_fields
from ..result.parameters import Overrides
from ..system import catalog
from ..workload.transformer.spec import TransformerSpec
from .export_report import ExportReport, UnexpressedField
from .head_job import stated_fields
from .job_fields import UnlikeField, fields_that_matter, unlike_fields
from .launch_files import heads_of_file
from .stated import degrees_text
from .to_deepspeed import deepspeed_files
from .to_maxtext import maxtext_files
from .to_megatron import megatron_files
from .to_torchtitan import torchtitan_files

WITH_EVERY_FORMAT = "b200"  # a device whose matrix units know all number formats, for jobs of devices of a person's own
LONGEST = 100  # characters of a value in a comment


@dataclass(frozen=True)
class Exporter:
    """A framework that arguments are written for.

    Attributes:
        name: as `--to` takes it.
        title: as people call it.
        write: texts of the files by name, from a job and comments; the first is the one that is read back.
        frameworks: of jobs whose arguments these are, as job files name them.
    """

    name: str
    title: str
    write: Callable[[Job, Sequence[str]], Mapping[str, str]]
    frameworks: tuple[str, ...] = ()


def _shipped() -> tuple[Exporter, ...]:
    return (
        Exporter("megatron", "Megatron-LM", megatron_files, ("megatron-core", "megatron-2021", "flagscale")),
        Exporter("torchtitan", "torchtitan", torchtitan_files, ("torchtitan", "fsdp")),
        Exporter("deepspeed", "DeepSpeed", deepspeed_files, ("deepspeed",)),
        Exporter("maxtext", "MaxText", maxtext_files, ("maxtext", "jax")),
    )


EXPORTERS: Registry[Exporter] = Registry("framework that arguments are written for", _shipped, error=SpecError)


@dataclass(frozen=True)
class Exported:
    """Arguments of a framework for a job.

    Attributes:
        files: texts by name of the file.
        n_fields: fields of the job that matter to its step.
        unexpressed: those that the arguments do not say.
    """

    files: Mapping[str, str]
    n_fields: int
    unexpressed: tuple[UnexpressedField, ...]


def exporter_of(job: Job) -> Exporter | None:
    """Framework whose arguments are those of a job by the framework that it names; None where there is none."""
    named = {job.called, job.software.name}
    return next((EXPORTERS.named(one) for one in EXPORTERS.names if named & set(EXPORTERS.named(one).frameworks)), None)


def exported(job: Job, exporter: Exporter) -> Exported:
    """Arguments for a job, with what they cannot say in the comments above them.

    Raises:
        DataError: the model is of a kind that the frameworks do not train.
    """
    if not isinstance(job.model, TransformerSpec):
        raise DataError(
            f"{job.name}: model {job.model.name} is no transformer of one stack of layers, and arguments are written for those."
        )
    unlike = read_back_unlike(job, exporter)
    about = [f"{exporter.title} arguments of the job {_line(job.name)}, written by prism-jax {__version__}."]
    about += [f"Not expressible in {exporter.title}: {one.path} = {_line(one.value)}" for one in unlike]
    found = tuple(UnexpressedField(one.path, _text(one.value), _text(one.other)) for one in unlike)
    return Exported(exporter.write(job, about), len(fields_that_matter(job)), found)


def read_back_unlike(job: Job, exporter: Exporter) -> list[UnlikeField]:
    """Fields of a job that its arguments, read by the import, do not say."""
    with tempfile.TemporaryDirectory(prefix="prism-jax-") as folder, also_below(folder):
        files = exporter.write(job, ())
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        head = heads_of_file(Path(folder) / next(iter(files)))[0]
        stated = stated_fields(head, job.cluster.device.generation)
    stated.fields = {path: one for path, one in stated.fields.items() if not path.startswith("cluster.")}
    device = job.cluster.device.name
    known = device in catalog.device_names() and catalog.device(device) == job.cluster.device
    stated.put("cluster.device", device if known else WITH_EVERY_FORMAT)
    stated.put("cluster.n_devices", job.plan.n_devices)
    if stated.get("plan.dp") is None:
        stated.put("plan.dp", "auto")
    document = stated.document(job.name, exporter.title)
    unnamed = [] if stated.get("model.n_layers") is not None else [UnlikeField("model", job.model.name, None)]
    if unnamed:
        document.data["model"] = model_fields(job.model)
    try:
        read = job_of(document)
    except ConfigError as error:  # what is left of the plan contradicts itself
        raise DataError(f"{exporter.title} cannot run a plan like that of {job.name}: {error}") from None
    return [*unnamed, *unlike_fields(job, read)]


def _text(value: object) -> str:
    return "not stated" if value is None else str(list(value) if isinstance(value, tuple) else value)


def _line(value: object) -> str:
    """A text on one line, of printable characters."""
    return "".join(one if one.isprintable() else " " for one in _text(value))[:LONGEST]


def save_job(
    folder: str | Path,
    write: Callable[[Path], object],
    report: Report | None = None,
    more: Mapping[str, str] | None = None,
) -> tuple[Message, ...]:
    """Writes a job into a folder, with the arguments of the framework that it names; returns messages on what was written.

    Args:
        write: writes the job as a job file.
        report: from which it is; kept as report.json.
        more: texts of further files by name.

    Raises:
        DataError: a file cannot be written.
    """
    file = Path(folder) / "job.yaml"
    written = list(write_files(folder, more or {}))
    write(file)
    if report is not None:
        report.save(file.with_name("report.json"))
        written.append(str(file.with_name("report.json")))
    job = loaded(file)
    exporter = exporter_of(job)
    found = [Message(f"wrote {path}") for path in (str(file), *written)]
    if exporter is None or not isinstance(job.model, TransformerSpec):
        named = "framework" if exporter is None else "model"
        names = "|".join(EXPORTERS.names)
        text = f"no arguments were written for its {named}: prism-jax export {file} --to {names} writes those of one"
        return (*found, Message(text, always=True))
    made = exported(job, exporter)
    found += [Message(f"wrote {path}") for path in write_files(folder, made.files)]
    lost = ", ".join(one.path for one in made.unexpressed)
    return (*found, *([Message(f"not expressible in {exporter.title}: {lost}", always=True)] if lost else []))


def files_written(report: ExportReport) -> tuple[Message, ...]:
    """Messages that name the files."""
    return tuple(Message(f"wrote {path}") for path in report.written)


def _known(_: str, name: str) -> None:
    EXPORTERS.named(name)


@use_case(then=(files_written,))
def export_job(
    job: JobFile,
    to: Annotated[str, Option("--to", "NAME", heading=THE_JOB, check=_known)],
    *,
    save_dir: Annotated[str | Path, Option("--save-dir", "DIR", key=None, heading=OUTPUT, check=check_folder)] = ".",
    overrides: Overrides = (),
    overwrite: Annotated[bool, Option("--force", key=None)] = False,
) -> ExportReport:
    """Write a job as the arguments of a training framework, ready to paste, and list what they cannot say.

    Args:
        job: a Job, a job file, or the name of a shipped example.
        to: megatron, torchtitan, deepspeed or maxtext.
        save_dir: folder for the files, made where there is none.
        overrides: "section.field=value" texts that replace fields of the file.
        overwrite: replace files that are there.

    Raises:
        ConfigError: the file is wrong.
        DataError: a file is there already or cannot be written; the model is none that the frameworks train.
        SpecError: an unknown framework.

    Example:
        >>> export_job("llama3_405b_16384", "megatron", save_dir="out").written  # doctest: +SKIP
    """
    own, exporter = loaded(job, overrides), EXPORTERS.named(to)
    made = exported(own, exporter)
    written = write_files(save_dir, made.files, overwrite=overwrite)
    return export_report(own, exporter, made, written)


def export_report(job: Job, exporter: Exporter, made: Exported, written: Sequence[str]) -> ExportReport:
    """Report of arguments that were written."""
    plan = job.plan
    return ExportReport(
        job=job.name,
        framework=exporter.title,
        plan=degrees_text(plan),
        n_devices=plan.n_devices,
        n_fields=made.n_fields,
        unexpressed=made.unexpressed,
        written=tuple(written),
        record=UNRECORDED,
    )
