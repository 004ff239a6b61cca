"""Makes a job file of a launch script, configuration files or the head of a log; what `prism-jax import` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from ..core.errors import DataError
from ..core.use_case import OUTPUT, UNRECORDED, Argument, Message, Option, use_case
from ..core.write_file import check_file, write_text
from ..result.parameters import Overrides
from .head import Head
from .head_job import HeadJob, asked_job
from .import_report import ImportedField, ImportReport, LaunchArgument
from .launch_files import heads_of_file
from .models import give_model, named_model
from .stated import degrees_text, job_text


def written_message(report: ImportReport) -> Message | None:
    """Message on where the job was written."""
    return None if report.written is None else Message(f"wrote {report.written}")


def variables_of(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Variables of NAME=VALUE texts.

    Raises:
        DataError: one is none.
    """
    pairs = [text.partition("=") for text in texts]
    for text, (name, equals, _) in zip(texts, pairs, strict=True):
        if not equals or not name.isidentifier():
            raise DataError(f"{option} {text}: write NAME=VALUE, such as {option} TP=8")
    return {name: value for name, _, value in pairs}


@use_case(then=(written_message,))
def import_job(
    file: Annotated[str | Path, Argument(metavar="FILE")],
    arguments: Annotated[Sequence[str], Argument(metavar="ARGUMENT...", recorded_as=list)] = (),
    *,
    variables: Annotated[
        dict[str, str] | None, Option("--env", "NAME=VALUE", key="env", parse=variables_of, is_repeated=True)
    ] = None,
    n_devices: Annotated[int | None, Option("--gpus", "N", least=1, most=2**20, key="gpus")] = None,
    device: Annotated[str | None, Option(metavar="NAME")] = None,
    root: Annotated[str | Path | None, Option(metavar="DIR")] = None,
    model: Annotated[str | Path | None, Option(metavar="FILE")] = None,
    overrides: Overrides = (),
    output: Annotated[
        str | Path | None, Option("--output -o", "FILE", key=None, heading=OUTPUT, check=check_file)
    ] = None,
) -> ImportReport:
    """Make a job file of a launch script, of a trainer's configuration files, or of the head of a training log.

    A script is followed and never executed; what a file leaves open is asked for once, by name and line.

    Args:
        file: script of bash, configuration (YAML, TOML, JSON), or a training log with a head (docs/launch.md).
        arguments: arguments of a script, $1 and on, behind `--` where one begins with a hyphen; behind a configuration, further
            files of the job and KEY=VALUE texts as its trainer takes them.
        variables: variables that are set around the script; may be repeated.
        n_devices: GPUs of the job, where the script does not say.
        device: GPU (`prism-jax show devices`), where the file does not say.
        model: configuration of the model (config.json of Hugging Face), or the name of one that ships (`prism-jax show models`),
            in the place of the one that the file names.
        root: folder below which files may be followed that a configuration names; its own folder always is.
        overrides: "section.field=value" texts that replace fields of the job.
        output: job file to write, every field with the line that it is from.

    Raises:
        DataError: the file cannot be read, states no training, or leaves open what a job needs.
        ConfigError: fields contradict each other; names the line.

    Example:
        >>> import_job("train.sh", device="h100-sxm").plan  # doctest: +SKIP
    """
    report, text = imported(Path(file), arguments, variables, n_devices, device, root, model, overrides)
    if output is None:
        return report
    write_text(output, text)
    return replace(report, written=str(output))


def imported(
    path: Path,
    arguments: Sequence[str] = (),
    variables: dict[str, str] | None = None,
    n_devices: int | None = None,
    device: str | None = None,
    root: str | Path | None = None,
    model: str | Path | None = None,
    overrides: Sequence[str] = (),
) -> tuple[ImportReport, str]:
    """The report of an import, and the job file; arguments and errors as those of `import_job`."""
    heads = heads_of_file(path, arguments, variables, n_devices, None if root is None else Path(root))
    if model is not None and (named := named_model(model)):
        overrides = [f"model={named}", *overrides]
    elif model is not None:
        give_model(heads, Path(model))
    head, made = asked_job(heads, path, device, overrides)
    return _report(head, made, path.name), job_text(made.stated, made.document, head.source)


def _report(head: Head, made: HeadJob, name: str) -> ImportReport:
    job, stated = made.job, made.stated
    used = {id(said) for field in stated.fields.values() for said in field.said}
    used |= {id(one) for one in stated.not_modelled}
    rest = [
        LaunchArgument(one.name, head.open.shown(one.text)[:80], one.line)
        for name, one in (head.arguments if head.source == "log" else head.facts | head.arguments).items()
        if id(one) not in used and one.line and name not in head.asked
    ]
    plan, model = job.plan, job.model
    degrees = degrees_text(plan)
    return ImportReport(
        file=name,
        line=head.first_line,
        model=f"{getattr(model, 'n_layers', 0)} layers, hidden {getattr(model, 'hidden', 0):,}",
        plan=f"{degrees}, micro-batch {plan.micro_batch}, global batch {plan.global_batch:,}, {plan.seq_len:,} tokens",
        devices=f"{plan.n_devices:,} x {job.cluster.device.name}",
        read=tuple(ImportedField(one.path, str(one.value), one.comment) for one in stated.fields.values()),
        no_effect=tuple(rest),
        not_modelled=tuple(LaunchArgument(one.name, one.text[:80], one.line) for one in stated.not_modelled),
        assumed=tuple(stated.assumed),
        written=None,
        notes=(*stated.notes, *head.notes),
        record=UNRECORDED,
    )
