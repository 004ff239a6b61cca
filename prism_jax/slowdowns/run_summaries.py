"""Reads summaries of runs in JSON: TraceML's `final_summary.json`, and reports of NVIDIA's cluster readiness engine (NVCRE).

TraceML gives every rank's milliseconds by phase; compute counts, since a step takes all ranks equally long. NVCRE measures jobs
on groups of nodes: the record of a certification has the nodes of every job; of its report a domain counts as a place where it is
one node, and for all of its nodes where results per node name the group. Failed nodes have no factor; they are named.

Source: traceopt-ai/traceml, schema 1.7 of its summary; NVIDIA/cluster-readiness-engine, "Validation Results" of its documentation
and package record, schema 1.0.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import DataError
from .readings import (
    DetectorFile,
    DetectorReadings,
    SlowdownDetector,
    number_in,
    object_in,
    objects_in,
    place_of,
    short_name,
)

PHASES = ("compute_ms", "forward_ms", "backward_ms", "traced_step_time_gpu_ms", "step_time_gpu_ms")
MOST_NAMED = 8
GROUPS_NOTE = "jobs of several nodes are as slow as the slowest of them; groups are told apart, not their nodes"


def read_traceml(file: DetectorFile) -> DetectorReadings:
    """Compute of every rank in a final summary.

    Raises:
        DataError: cannot be read, no JSON, or no phase that all ranks have.
    """
    found = DetectorReadings(file.name, n_report=1)
    section = object_in(object_in(file.document).get("step_time"))
    rows = object_in(object_in(section.get("groups")).get("rows"))
    ranks = {key: object_in(row) for key, row in rows.items()}
    phase = next((name for name in PHASES if ranks and all(_ms(row, name) > 0.0 for row in ranks.values())), "")
    if not phase:
        raise DataError(
            f"{file.name}: no phase of the step that all ranks have ({', '.join(PHASES[:3])}). Trace the forward pass of all."
        )
    for key, row in ranks.items():
        where = f"{file.name}: step_time.groups.rows.{short_name(key)}"
        identity = object_in(row.get("identity"))
        place = place_of(where, identity.get("hostname"), identity.get("local_rank"), identity.get("global_rank", key))
        found.add(where, place, phase.removesuffix("_ms"), "time", _ms(row, phase))
    version = object_in(file.document).get("schema_version")
    if not str(version).startswith("1."):
        found.notes.append(f"schema {short_name(str(version))} of TraceML is newer than what is known (1.7)")
    return found


def _ms(row: Mapping[str, Any], phase: str) -> float:
    """Milliseconds of a phase, NaN where it is not there."""
    return number_in(object_in(row.get("metrics")).get(phase))


def _is_traceml(document: Any) -> bool:
    groups = object_in(object_in(object_in(document).get("step_time")).get("groups"))
    return isinstance(groups.get("rows"), Mapping)


def read_readiness(file: DetectorFile) -> DetectorReadings:
    """Training jobs on single nodes in a report or record, one reading per node and job.

    Raises:
        DataError: cannot be read, no JSON, or a host that is none.
    """
    found = DetectorReadings(file.name, n_report=1)
    failed: dict[str, None] = {}
    for document in objects_in(file.document) or [object_in(file.document)]:
        report = object_in(document.get("report")) or document
        failed |= dict.fromkeys(map(str, _strings(report.get("failedNodes"))))
        failed |= {
            str(n.get("hostnameAlias")): None for n in objects_in(report.get("nodes")) if n.get("outcome") == "Failed"
        }
        for category in objects_in(report.get("categories")):
            series = f"{category.get('domain', '')}/{category.get('variant', '')} {category.get('mnnvl', '')}"
            _add_domains(found, category, series, _nodes_of_groups(report))
            _add_attempts(found, category, series)
    if failed:
        named = ", ".join(short_name(name) for name in list(failed)[:MOST_NAMED])
        more = f", and {len(failed) - MOST_NAMED:,} more" if len(failed) > MOST_NAMED else ""
        found.notes.append(f"failed nodes, which have no factor and should be replaced: {named}{more}")
    return found


def _nodes_of_groups(report: Mapping[str, Any]) -> dict[str, list[str]]:
    """Group or rack -> its nodes, as the results per node tell."""
    found: dict[str, list[str]] = {}
    for node in objects_in(report.get("nodeResults")):
        for group in dict.fromkeys(str(node[key]) for key in ("group", "rack") if node.get(key)):
            found.setdefault(group, []).append(str(node.get("name", "")))
    return found


def _add_domains(
    found: DetectorReadings, category: Mapping[str, Any], series: str, nodes: Mapping[str, list[str]]
) -> None:
    """Adds the nodes of every domain: TFLOP/s per GPU, else seconds of a step."""
    for domain in objects_in(category.get("domains")):
        name = str(domain.get("name", ""))
        alone = number_in(domain.get("nodeCount")) == 1
        where = f"{found.source}: {short_name(series)}, domain {short_name(name)}"
        for host in nodes.get(name, [name] if alone else []):
            _add_job(found, where, host, series, (domain.get("tflops"), domain.get("stepTime")))
        if not alone and GROUPS_NOTE not in found.notes:
            found.notes.append(GROUPS_NOTE)


def _add_attempts(found: DetectorReadings, category: Mapping[str, Any], series: str) -> None:
    """Adds the jobs of the record of a certification that ran on one node; iterations are reports."""
    for number, iteration in enumerate(objects_in(category.get("iterations")), start=1):
        for group in objects_in(iteration.get("groups")):
            nodes = _strings(group.get("nodes"))
            for attempt in objects_in(group.get("attempts")) if len(nodes) == 1 else ():
                for measured in objects_in(attempt.get("measurements")):
                    goodput = object_in(measured.get("goodput"))
                    values = goodput.get("avgTFLOPSPerGPU"), goodput.get("avgStepTimeSec")
                    found.n_report = number
                    _add_job(
                        found, f"{found.source}: {short_name(series)}, {short_name(nodes[0])}", nodes[0], series, values
                    )


def _add_job(found: DetectorReadings, where: str, host: str, series: str, values: tuple[Any, Any]) -> None:
    """Adds a job by its TFLOP/s, else by the seconds of its step."""
    tflops, step_s = (number_in(str(value).rstrip("s")) if value is not None else float("nan") for value in values)
    if tflops > 0.0:
        found.add(where, place_of(where, host), series, "rate", tflops)
    else:
        found.add(where, place_of(where, host), series, "time", step_s)


def _strings(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _is_readiness(document: Any) -> bool:
    first = next(iter(objects_in(document)), object_in(document))
    report = object_in(first.get("report")) or first
    told = {"platform", "totalNodes", "failedNodes"} <= report.keys() or report.get("kind") == "CertificationResult"
    return told and isinstance(report.get("categories"), list)


TRACEML = SlowdownDetector("traceml", "final_summary.json of TraceML", read_traceml, owns=_is_traceml)
READINESS = SlowdownDetector(
    "nvcre", "reports of NVIDIA's cluster readiness engine in JSON", read_readiness, owns=_is_readiness
)
