"""Catalogues that ship with the package, which `prism-jax show` lists.

A catalogue has names, columns of its table, and all facts of every entry. Each imports what it lists when it is opened, so that a
command pays only for the one it shows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..core import units
from ..core.errors import SpecError
from ..core.registry import did_you_mean
from ..core.report import to_plain
from .report import CatalogueReport, EntryReport
from .reports import REPORTS, published_schema

Entry = dict[str, Any]


@dataclass(frozen=True)
class Catalogue:
    """One kind of shipped thing.

    Attributes:
        names: all of them, in the order of the table.
        columns: headings.
        row: name -> cells.
        entry: name -> everything known, in SI units; raises PrismError on an unknown name.
    """

    names: Sequence[str]
    columns: Sequence[str]
    row: Callable[[str], Sequence[str]]
    entry: Callable[[str], Entry]


def _of_entries(
    names: Sequence[str], columns: Sequence[str], entry: Callable[[str], Entry], shown: Sequence[str] = ()
) -> Catalogue:
    """A catalogue whose cells are values of its entries: those of the keys `shown`, by default all of them."""

    def row(name: str) -> Sequence[str]:
        found = entry(name)
        return tuple(", ".join(one) if isinstance(one, list) else one for one in (found[key] for key in shown or found))

    return Catalogue(names, columns, row, entry)


def models() -> Catalogue:
    """Models of all kinds."""
    from ..workload.base.workload import distinct_runs
    from ..workload.catalog import workload, workload_names
    from ..workload.transformer.spec import TransformerSpec

    def entry(name: str) -> Entry:
        spec = workload(name)
        facts: Entry = {"n_params": spec.n_params(), "n_params_active": spec.n_params_active()}
        if isinstance(spec, TransformerSpec):
            spec = spec.with_defaults_written()
            facts |= {"layer_kinds": {run.kind: run.count for run in distinct_runs(spec) if run.place == "body"}}
            facts |= {"head_dim": spec.head_dim or None}  # latent attention has widths of its own
        return asdict(spec) | facts  # pyright: ignore[reportArgumentType]  (workloads are dataclasses)

    def row(name: str) -> Sequence[str]:
        spec = workload(name)
        if not isinstance(spec, TransformerSpec):
            return name, units.format_count(spec.n_params()), *[""] * 9
        moe = f"{spec.moe.n_experts} experts, top {spec.moe.top_k}" if spec.moe else ""
        sizes = (spec.n_layers, spec.hidden, spec.n_heads, spec.kv_heads, spec.ffn_hidden, spec.vocab)
        attention = "MLA" if spec.mla else "GQA" if spec.kv_heads < spec.n_heads else "MHA"
        attention += f", window {spec.window.size}" if spec.window else ""
        return (
            name,
            units.format_count(spec.n_params()),
            units.format_count(spec.n_params_active()) if spec.moe else "",
            *(str(size) for size in sizes),
            attention,
            moe,
        )

    columns = (
        "model",
        "parameters",
        "active",
        "layers",
        "hidden",
        "heads",
        "kv heads",
        "ffn",
        "vocab",
        "attention",
        "MoE",
    )
    return Catalogue(workload_names(), columns, row, entry)


def devices() -> Catalogue:
    """Accelerators."""
    from ..system.catalog import device, device_names

    def row(name: str) -> Sequence[str]:
        found = device(name)
        peaks = [
            f"{found.peak_flops_per_s[d] / 1e12:g}" if d in found.peak_flops_per_s else ""
            for d in ("bf16", "fp16", "fp8")
        ]
        hbm = units.format_bytes(found.hbm_bytes, 3)
        return name, *peaks, hbm, f"{found.hbm_bytes_per_s / 1e12:.3g}", f"{found.power_watts:g}", found.generation

    columns = ("device", "bf16 TFLOP/s", "fp16 TFLOP/s", "fp8 TFLOP/s", "HBM", "HBM TB/s", "W", "generation")
    return Catalogue(device_names(), columns, row, lambda name: asdict(device(name)))


def clusters() -> Catalogue:
    """Reference clusters; the outermost tier grows with the job."""
    from ..system.catalog import cluster, cluster_names

    def row(name: str) -> Sequence[str]:
        found = cluster(name, 1)
        tiers = [f"{tier.name} {units.format_bytes_per_s(tier.effective_bytes_per_s)}" for tier in found.tiers]
        return name, found.device.name, str(found.node_size), ", ".join(tiers)

    def entry(name: str) -> Entry:
        found = asdict(cluster(name, 1))
        found["tiers"][-1]["n_devices"] = None  # spans whatever the job asks for
        return {key: value for key, value in found.items() if key not in ("n_devices", "notes", "network")}

    columns = ("cluster", "device", "node size", "bandwidth per device and direction, inside out")
    return Catalogue(cluster_names(), columns, row, entry)


def networks() -> Catalogue:
    """Kinds of network that a cluster may have."""
    from ..job.cluster_section import written_names
    from ..system.network_kinds import NETWORKS

    def entry(name: str) -> Entry:
        kind = NETWORKS.named(name)
        return {"name": name, "description": kind.about, "fields": list(written_names(kind).values())}

    return _of_entries(NETWORKS.names, ("network", "fields", "what it is"), entry, ("name", "fields", "description"))


def schedules() -> Catalogue:
    """Pipeline schedules."""
    from ..schedule.registry import SCHEDULES

    def entry(name: str) -> Entry:
        return {"name": name, "description": SCHEDULES.named(name).description}

    return Catalogue(
        SCHEDULES.names, ("schedule", "what it does"), lambda name: (name, SCHEDULES.named(name).about), entry
    )


def frameworks() -> Catalogue:
    """Training software that a job may name."""
    from ..framework.frameworks import FRAMEWORKS

    known = FRAMEWORKS.names

    def entry(name: str) -> Entry:
        found = FRAMEWORKS.named(_known("framework", name, known))
        return {
            "name": found.name,
            "kernels": found.style,
            "description": found.about,
            "searched": {"memory_margin": found.memory_margin, **asdict(found.capabilities)},
        }

    def row(name: str) -> Sequence[str]:
        found = FRAMEWORKS.named(name)
        schedules = found.capabilities.schedules
        pipelines = "all" if schedules is None else ", ".join(schedules) or "none"
        return name, found.style, pipelines, found.about

    return Catalogue(known, ("framework", "kernels", "pipelines in a search", "what it is"), row, entry)


def objectives() -> Catalogue:
    """Objectives that a search or a placement can minimise."""
    from ..result.objective import OBJECTIVES

    def entry(name: str) -> Entry:
        found = OBJECTIVES.named(name)
        return {"name": found.name, "description": found.about, "unit": found.unit}

    return _of_entries(OBJECTIVES.names, ("objective", "what it is", "unit"), entry)


def variabilities() -> Catalogue:
    """Presets of how much hardware varies."""
    from ..variability.config import preset, preset_names

    def row(name: str) -> Sequence[str]:
        found = preset(name)
        spread = [f"{kernel} {100 * max(c.gpu.cv, c.node.cv, c.call.cv):.2g} %" for kernel, c in found.classes.items()]
        return name, f"{100 * found.step.cv:.2g} %", ", ".join(spread), str(len(found.stalls))

    columns = ("variability", "step cv", "largest cv per kernel class", "stalls")
    return Catalogue(preset_names(), columns, row, lambda name: asdict(preset(name)))


def reliabilities() -> Catalogue:
    """Interruptions of jobs: published failure counts and rates."""
    from ..horizon.reliability_file import preset, preset_names

    def row(name: str) -> Sequence[str]:
        found = preset(name)
        mttf = [f"{found.mttf_h(n_gpus, 8):.3g}" for n_gpus in (1024, 16384, 131072)]
        return name, *mttf, ", ".join(one.cause for one in (*found.hazards, *found.slow_phases)), found.source

    columns = ("reliability", "MTTF h, 1,024 GPUs", "16,384", "131,072", "causes", "source")
    return Catalogue(preset_names(), columns, row, lambda name: asdict(preset(name)))


def kernels() -> Catalogue:
    """Classes of compute kernels: the parts of a step's compute, and of a variability section."""
    from ..core.kernels import KERNEL_CLASSES

    def entry(name: str) -> Entry:
        found = KERNEL_CLASSES.named(name)
        return {"name": name, "description": found.about, "knob": found.knob, "varies like": found.varies_like or name}

    columns = ("kernel class", "what it is", "calibration factor", "varies like")
    return _of_entries(KERNEL_CLASSES.names, columns, entry)


def families() -> Catalogue:
    """Families of slowdown factors, the `kind` of a variability section."""
    from ..variability.family_registry import FAMILIES, family_fields

    def entry(name: str) -> Entry:
        family = FAMILIES.named(name)
        fields = ", ".join(field.name for field in family_fields(name))
        return {"name": name, "fields": fields, "description": inspect.getdoc(family) or ""}

    def row(name: str) -> Sequence[str]:
        found = entry(name)
        return name, found["fields"], found["description"].partition("\n")[0]

    return Catalogue(FAMILIES.names, ("family", "fields", "the factor"), row, entry)


def traces() -> Catalogue:
    """Formats of recorded jobs that the `trace` commands read; files are told apart by their content."""
    from ..recorded.formats.open_trace import TRACE_FORMATS

    def entry(name: str) -> Entry:
        found = TRACE_FORMATS.named(name)
        several = "one file per rank: name their folder" if found.of_folder else "one file"
        return {"name": found.name, "description": found.about, "files": several}

    return _of_entries(TRACE_FORMATS.names, ("format", "what it is", "files of a job"), entry)


def detectors() -> Catalogue:
    """Straggler detectors and monitors whose reports `slowdowns` and `--slowdowns` read; told apart by content."""
    from ..slowdowns.detectors import DETECTORS

    def entry(name: str) -> Entry:
        found = DETECTORS.named(name)
        return {"name": found.name, "description": found.about, "content": "JSON" if found.sign is None else "text"}

    return _of_entries(DETECTORS.names, ("detector", "what it is", "content"), entry)


def logs() -> Catalogue:
    """Text logs of training frameworks, which the `trace` commands, `fit steps` and `calibrate --log` read."""
    from ..recorded.formats.log_entries import KINDS
    from ..recorded.formats.text_logs import LINE_FORMATS, WRITERS

    known: dict[str, Entry] = {
        one.name: {"name": one.name, "line": one.looks_for, "step time": KINDS[one.kind], "note": one.note}
        for one in LINE_FORMATS
    }
    known |= {
        one.name: {"name": one.name, "line": one.looks_for, "step time": one.times, "note": ""} for one in WRITERS
    }

    def entry(name: str) -> Entry:
        return known.get(name) or {"name": LINE_FORMATS.named(name).name}  # raises

    return _of_entries(tuple(known), ("log", "line", "step time"), entry, ("name", "line", "step time"))


def examples() -> Catalogue:
    """Shipped jobs."""
    from ..tables.streams import example_files

    files = example_files()

    def entry(name: str) -> Entry:
        file = files[_known("example", name, tuple(files))]
        return {"name": name, "path": str(file), "text": file.read_text(encoding="utf-8")}

    def row(name: str) -> Sequence[str]:
        first = files[name].read_text(encoding="utf-8").partition("\n")[0]
        return name, first.lstrip("# ") if first.startswith("#") else ""

    return Catalogue(tuple(files), ("example", "what it is"), row, entry)


def schemas() -> Catalogue:
    """JSON schemas of the reports."""

    def entry(name: str) -> Entry:
        return {"name": name, **published_schema(name)}

    def row(name: str) -> Sequence[str]:
        return name, REPORTS.named(name).schema(), str(published_schema(name)["description"])

    return Catalogue(REPORTS.names, ("report", "schema", "what it is"), row, entry)


CATALOGUES: Mapping[str, Callable[[], Catalogue]] = {
    "models": models,
    "devices": devices,
    "clusters": clusters,
    "networks": networks,
    "schedules": schedules,
    "frameworks": frameworks,
    "objectives": objectives,
    "variability": variabilities,
    "reliability": reliabilities,
    "kernels": kernels,
    "families": families,
    "traces": traces,
    "detectors": detectors,
    "logs": logs,
    "examples": examples,
    "schemas": schemas,
}


def show_catalogue(catalogue: str) -> CatalogueReport:
    """Catalogue of everything of one kind that ships with the package.

    Args:
        catalogue: one of `CATALOGUES`.

    Raises:
        SpecError: there is none of that name.

    Example:
        >>> "gpipe" in [entry["name"] for entry in show_catalogue("schedules").entries]
        True
    """
    found = _catalogue(catalogue)
    return CatalogueReport(
        catalogue,
        tuple(found.columns),
        tuple(tuple(found.row(name)) for name in found.names),
        tuple(to_plain(found.entry(name)) for name in found.names),
    )


def show_entry(catalogue: str, name: str) -> EntryReport:
    """Facts about one thing that ships with the package.

    Args:
        catalogue: one of `CATALOGUES`.
        name: of the entry.

    Raises:
        SpecError: there is no such catalogue, or no such entry.

    Example:
        >>> show_entry("devices", "h100-sxm").entry["power_watts"]
        700.0
    """
    entry = to_plain(_catalogue(catalogue).entry(name))
    return EntryReport(catalogue, str(entry["name"]), entry)


def _catalogue(name: str) -> Catalogue:
    if name not in CATALOGUES:
        hint = did_you_mean(name, CATALOGUES, f"; there are {', '.join(CATALOGUES)}")
        raise SpecError(f"unknown kind {name!r}{hint}")
    return CATALOGUES[name]()


def _known(kind: str, name: str, names: Sequence[str]) -> str:
    if name in names:
        return name
    hint = did_you_mean(name, names, f"; there are {', '.join(names)}")
    raise SpecError(f"unknown {kind} {name!r}{hint}")
