"""Job files that `load_job` reads back into equal objects: sections of objects, a new job, a job with another plan.

Fields that hold their default are left out. A new job file has every field in it: common ones set, the others as comments
that hold the value in force; taking the `# ` away leaves the job as it is, and fields that the job has no value for stand
behind `##`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import yaml
from pydantic import BaseModel

from ..core import units
from ..core.errors import DataError, SpecError
from ..core.use_case import Message
from ..core.write_file import write_text
from ..framework.base import GIB
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster, Device
from ..system.network import Tier
from ..tables.document import Document
from ..tables.yaml_toml import flow
from ..variability.config import variability_to_dict
from ..variability.tree import Variability
from ..workload.base.workload import Workload
from ..workload.catalog import TRANSFORMER, kind_of
from .job import Job
from .load_job import JobSource, job_of, read_job_file
from .reference import JobField, job_fields, quantity_of
from .schema import DEVICE_NAMES, TIER_NAMES, section_of
from .sections import HF_CONFIG, KERNELS, MODEL_SOURCES, SOURCE

WIDTH = 130
MOST_KEPT = 64_000  # characters of a job in a record; captures hold more
FILES = (
    ("model", HF_CONFIG),
    ("model", SOURCE),
    ("model", KERNELS),
    ("model", "moe", "routing", "counts"),
    ("data", "lengths"),
)  # fields that name a file, from the folder of the job
Found = TypeVar("Found")


@runtime_checkable
class Written(Protocol):
    """A value that job files write in a form of its own."""

    @property
    def written(self) -> Any:
        """Plain data that the file's reader reads back."""
        ...


AS_WIDE_AS_THE_JOB = ("n_devices",)  # of the outermost tier


def model_fields(model: Workload) -> dict[str, Any]:
    """Section `model`, without a preset.

    Raises:
        SpecError: the class of the model belongs to no kind that is registered.
    """
    kind = kind_of(model)
    if kind is None:
        raise SpecError(f"{type(model).__name__} belongs to no kind of model, so a job file cannot name it")
    return ({} if kind is TRANSFORMER else {"kind": kind.name}) | changed_fields(model)


def device_fields(device: Device) -> dict[str, Any]:
    """Section `cluster.device`, without a preset."""
    own = changed_fields(device)
    alike = {"like": own.pop("like"), "likeness_sd": device.likeness_sd} if device.like else {}
    return alike | _with_units(own, section_of(Device), DEVICE_NAMES)


def cluster_fields(cluster: Cluster) -> dict[str, Any]:
    """Section `cluster`, without a preset and without a number of devices: the outermost tier spans as many as the job needs.

    Raises:
        SpecError: the cluster has a network of another kind than tiers.
    """
    if cluster.network is not None:
        raise SpecError(f"cluster {cluster.name} has a network of its own kind, which is not written")
    tiers = [_with_units(changed_fields(tier), section_of(Tier), TIER_NAMES) for tier in cluster.tiers]
    outer = {name: value for name, value in tiers[-1].items() if name not in AS_WIDE_AS_THE_JOB}
    return {
        "name": cluster.name,
        "device": device_fields(cluster.device),
        "tiers": [*tiers[:-1], outer],
        "node_size": cluster.node_size,
        **({} if cluster.host_bytes is None else {"host_memory": f"{cluster.host_bytes / GIB:g} GiB"}),
        **({"source": cluster.source} if cluster.source else {}),
    }


def variability_fields(variability: Variability) -> dict[str, Any]:
    """Section `variability`, without a preset."""
    return {name: value for name, value in variability_to_dict(variability).items() if value not in ("", [], {})}


def whole_fields(value: Any) -> dict[str, Any]:
    """All fields of a dataclass as plain data, those that hold their default too; inside, None is left out."""
    return {item.name: _whole(getattr(value, item.name)) for item in fields(value)}


def _whole(value: Any) -> Any:
    if isinstance(value, Written):
        return value.written
    if is_dataclass(value):
        return {name: inner for name, inner in whole_fields(value).items() if inner is not None}
    return [_whole(item) for item in value] if isinstance(value, (list, tuple)) else value


def section_text(section: dict[str, Any], comment: str = "") -> str:
    """YAML of a section, which `load_job` reads."""
    text = yaml.safe_dump(section, sort_keys=False, allow_unicode=True, width=WIDTH)
    return "".join(f"# {line}\n" for line in comment.splitlines()) + text


def stated_text(job: JobSource, overrides: Sequence[str] = ()) -> str | None:
    """The job as a file states it, with the fields that options replace, for the record of a run; None for a Job, or a long file.

    Args:
        job, overrides: as in `load_job`.

    Raises:
        ConfigError, DataError: the file cannot be read.
    """
    if isinstance(job, Job):
        return None
    text = yaml.safe_dump(read_job_file(job, overrides).data, sort_keys=False, allow_unicode=True, width=WIDTH)
    return text if len(text) <= MOST_KEPT else None


def changed_fields(value: Any) -> dict[str, Any]:
    """Fields of a dataclass that do not hold their default, as plain data."""
    found: dict[str, Any] = {}
    for item in fields(value):
        own = getattr(value, item.name)
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        if default is MISSING or own != default:
            found[item.name] = _plain(own)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Written):
        return value.written
    if is_dataclass(value):
        return changed_fields(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _with_units(plain: dict[str, Any], section: type[BaseModel], names: dict[str, str]) -> dict[str, Any]:
    """Names as files have them, and SI numbers as texts with a unit that mean exactly these numbers."""
    found: dict[str, Any] = {}
    for name, value in plain.items():
        written = names.get(name, name)
        kind = quantity_of(section.model_fields[written])
        if kind is None:
            found[written] = value
        elif isinstance(value, dict):
            found[written] = {key: units.exact(item, kind) for key, item in value.items()}
        else:
            found[written] = units.exact(value, kind)
    return found


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
    for name in ("name", "model", "cluster", "plan", "framework", "software", "data", "published", "variability"):
        lines += [*_section(name, data, job, found), ""]
    return "\n".join(lines)


def _section(name: str, data: Mapping[str, Any], job: Job, found: Mapping[tuple[str, ...], JobField]) -> Iterator[str]:
    """Lines of one section of the top level."""
    about = found[(name,)].about
    inside = [field for path, field in found.items() if len(path) == 2 and path[0] == name]
    if name == "variability":
        yield _line("# ", name, job.variability.name, about)
        yield _line("## ", name, _names(inside), "its fields")
    elif name in ("software", "data", "published") and name not in data:  # stating what is assumed would change the job
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
    elif name in values and len(flow(values[name])) <= LONGEST:
        yield _line("  # ", name, values[name], field.about)
    elif name not in MODEL_SOURCES or field.path[0] != "model":
        inner = [each for path, each in found.items() if path[:-1] == field.path]
        yield _line("  ## ", name, _names(inner) if inner else field.takes, field.about)


def _line(front: str, name: str, value: Any, about: str) -> str:
    return f"{front}{name}: {value if front.endswith('## ') else flow(value)}".ljust(COLUMN - 1) + f" # {about}"


def _names(inner: list[JobField]) -> str:
    return f"{{{', '.join(field.path[-1] for field in inner)}}}"


def _cluster_values(job: Job) -> dict[str, Any]:
    """Fields of the cluster as changes to a preset: its device, and tiers by name."""
    written = cluster_fields(job.cluster)
    device = {name: value for name, value in written["device"].items() if name in OF_DEVICE}
    tiers = {tier["name"]: {name: tier[name] for name in OF_TIER} for tier in written["tiers"]}
    return written | {"device": device, "tiers": tiers, "n_devices": job.cluster.n_devices}


def _plan_values(job: Job) -> dict[str, Any]:
    plain = whole_fields(job.plan)
    names = [item.name for item in fields(ParallelPlan) if item.name not in ("software", "data")]  # which have sections
    return {name: plain[name] for name in names if plain[name] is not None}


_VALUES = {
    "model": lambda job: {name: value for name, value in whole_fields(job.model).items() if value is not None},
    "cluster": _cluster_values,
    "plan": _plan_values,
    "software": lambda _: {},
    "data": lambda job: whole_fields(job.plan.data),
    "published": lambda _: {},
}  # of software none but those that are stated


def values_in_force(job: Job) -> dict[str, dict[str, Any]]:
    """Fields of a job by section, also of those that its file leaves out, as a file holds them; of the software none."""
    return {name: values(job) for name, values in _VALUES.items()}


@dataclass(frozen=True)
class ChosenFrom(Generic[Found]):
    """Result of a search, and the job that it started from, for its picture and its job file.

    Attributes:
        found: result of the search.
        source, overrides: the job whose plan was searched.
    """

    found: Found
    source: JobSource
    overrides: tuple[str, ...] = ()

    def write(
        self,
        output: str | Path,
        chosen: Mapping[str, Any],
        dropped: Sequence[str],
        comment: str,
        sections: Mapping[str, Any] = MappingProxyType({}),
    ) -> Message:
        """Writes the job with the chosen fields of its plan, as YAML that every command takes; arguments as `job_with_plan`.

        Raises:
            DataError: the job was not read from a file, or the file cannot be written.
        """
        if not isinstance(self.source, str | Path):
            raise DataError(f"{output}: the job was not read from a file, so that it cannot be written as one.")
        folder = Path(output).parent
        text = job_with_plan(self.source, self.overrides, chosen, dropped, comment, folder=folder, sections=sections)
        write_text(output, text)
        return Message(f"wrote {output}")


def job_with_plan(
    job: str | Path,
    overrides: Sequence[str],
    chosen: Mapping[str, Any],
    dropped: Sequence[str],
    comment: str,
    *,
    folder: Path | None = None,
    sections: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """YAML of the job of a file, with the fields of its plan that were chosen.

    Args:
        job, overrides: as in `load_job`.
        chosen: fields of the plan, as a job file spells them.
        dropped: fields of the plan that do not hold with the chosen ones.
        comment: stands above everything.
        folder: where the text will be kept; that of the job if not given. Files that the job names are named from there.
        sections: other sections that replace those of the file; None: the section is left out.

    Raises:
        ConfigError: the file cannot be read, or an override is wrong.
    """
    data = read_job_file(job, overrides).data
    kept = {name: value for name, value in data["plan"].items() if name not in dropped}
    moved, own = {**data, "plan": {**kept, **chosen}, **sections}, Path(job).parent
    if folder is not None:
        for path in FILES:
            moved = _with_file(moved, path, own, folder)
    stated = {name: value for name, value in moved.items() if value is not None or name not in sections}
    text = yaml.safe_dump(stated, sort_keys=False, allow_unicode=True)
    return "".join(f"# {line}\n" for line in comment.splitlines()) + text


def _with_file(section: Any, path: Sequence[str], folder: Path, other: Path) -> Any:
    """The section with the file that the field at `path` names, if it names one, as `other` calls it."""
    if not path:
        return _from(folder, other, section) if isinstance(section, str) else section
    if not isinstance(section, Mapping) or path[0] not in section:
        return section
    return {**section, path[0]: _with_file(section[path[0]], path[1:], folder, other)}


def _from(folder: Path, other: Path, file: str) -> str:
    """Returns the name, seen from `other`, of a file that `folder` calls `file`."""
    if Path(file).is_absolute() or folder.resolve() == other.resolve():
        return file
    return os.path.relpath((folder / file).resolve(), other.resolve())
