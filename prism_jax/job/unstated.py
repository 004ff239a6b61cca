"""Fields that a job file, or a row of a table of jobs, leaves open in addition to its software, with odds of their values.

A field of the plan that a job file leaves out has the default that its page states; a fabric that nobody describes, and the
routing of a run's tokens, have none. In a table of measured jobs a blank says that nobody stated the field: precision,
recomputation and chunks per stage are open there, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..calibration.open_fields import IMBALANCE, NETWORK, USUAL_NETWORK, VIRTUAL_STAGES, Odds, imbalance_of
from ..calibration.usual import USUAL_ROUTING, usual_dtypes, usual_recompute, usual_virtual_stages
from ..framework.frameworks import framework_of
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base.workload import Workload, n_body

_FABRIC = ("preset", "like", "tiers", "network")  # any of them describes it
_ROUTING = ("imbalance", "capacity_factor", "routing")

Open = tuple[tuple[str, Odds], ...]


def open_in_file(data: Mapping[str, Any], model: Workload, cluster: Cluster) -> Open:
    """Fields of cluster and model that sections `data` leave out and that matter to a step, with their odds."""
    return tuple(_of_site(data, model, cluster))


def open_in_row(data: Mapping[str, Any], model: Workload, cluster: Cluster, plan: ParallelPlan, framework: Any) -> Open:
    """Returns the open fields of a row of a table of jobs: blanks of the plan are open too, values that the row states never
    are.
    """
    return (*_of_site(data, model, cluster), *_of_plan(_section(data, "plan"), model, cluster, plan, framework))


def _of_site(data: Mapping[str, Any], model: Workload, cluster: Cluster) -> Iterator[tuple[str, Odds]]:
    given = data.get("cluster")
    is_described = not isinstance(given, Mapping) or any(name in given for name in _FABRIC)
    if not is_described and cluster.n_devices > cluster.node_size and len(cluster.tiers) > 1:
        yield NETWORK, USUAL_NETWORK
    routed = _section(_section(data, "model"), "moe")
    if imbalance_of(model) == 1.0 and not any(name in routed for name in _ROUTING):
        yield IMBALANCE, USUAL_ROUTING


def _of_plan(
    given: Mapping[str, Any], model: Workload, cluster: Cluster, plan: ParallelPlan, framework: Any
) -> Iterator[tuple[str, Odds]]:
    dtypes = usual_dtypes(cluster.device, plan.software.tuning)
    if "dtype" not in given and len(dtypes) > 1 and plan.dtype in dict(dtypes):
        yield "dtype", dtypes
    recomputed = usual_recompute(framework_of(framework).name)
    if "recompute" not in given and len(recomputed) > 1:
        yield "recompute", recomputed
    able = framework_of(framework).capabilities.schedules
    is_blank = "schedule" not in given and "virtual_stages" not in given
    chunks = usual_virtual_stages(n_body(model), plan) if is_blank and able and "interleaved" in able else ()
    if chunks:
        yield VIRTUAL_STAGES, chunks


def _section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A section, empty where it is left out or is a name."""
    found = data.get(name)
    return found if isinstance(found, Mapping) else {}
