"""The sharding problem of a job: what the cost model says of its step, taken apart into tables and the rest.

Lookups, collectives and the pace of the host are those of `cost` under the job's calibration. What remains is the difference to
`cost.step.step_cost` of the job as it is. What copies add (their gradients are reduced, during other work or not, and their
parameters updated) is the difference with more and more tables copied, the smallest first, and linear in between.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..core.arrays import Flags, Floats
from ..core.errors import DataError
from ..cost.block_cost import BlockCostModel, collective_s, crosses_nodes
from ..cost.efficiency import Efficiency
from ..cost.memory import memory
from ..cost.step import step_cost
from ..job.job import Job
from ..plan.fields import HYBRID, TableShard, TableSharding
from ..plan.plan import ParallelPlan
from ..workload.dlrm.lookup_law import lookup_law
from ..workload.dlrm.parts import EVERYWHERE, parts_of
from ..workload.dlrm.spec import DENSE, TABLES, DLRMSpec, held_by_fullest, kernel_of
from .assignment import Assignment, loads
from .problem import Cut, ShardingProblem
from .sharders import greedy, predicted_s
from .task import ASSUMED_SPREAD, Exchange, Law, StepRest, per_size

N_PROBE = 9  # numbers of copied tables of which the cost model is asked
FORWARD, BACKWARD = (0,), (1, 2)  # passes of `core.kernels.PASSES` in a part of the step


def problem_of(
    job: Job, *, split: bool = True, spread: float | None = None, memory_margin: float = 0.0
) -> ShardingProblem:
    """Tables of a job, and what they cost on its cluster.

    Args:
        job: with a `DLRMSpec` as its model.
        split: whether tables may be cut, spread by rows or copied.
        spread: of a step's look-ups into every table; None: what the tables state, `ASSUMED_SPREAD` where they state nothing.
        memory_margin: share of a device's memory that is left free for the error of the memory model.

    Raises:
        DataError: the job has no embedding tables, or more GPUs than tables that stay whole.
        PlanError: the plan is impossible.
    """
    model, plan = _checked(job, split)
    eff, n = job.efficiency, plan.dp
    probes = _probes(model, plan)
    rest, factor = _rest(job, model, eff)
    capacity_bytes, copy_bytes = _memory(job, model, probes)
    capacity_bytes -= memory_margin * job.cluster.device.hbm_bytes
    problem = ShardingProblem(
        model.tables,
        n,
        plan.micro_batch * n,
        lookup_law(job.cluster.device, eff.cache_bytes),
        capacity_bytes,
        rest,
        optimizer=model.optimizer,
        output_bytes=plan.element_bytes,
        kernel_factor=factor,
        copy_bytes=copy_bytes,
        spread=tuple(_spread(table.spread, spread) for table in model.tables),
        split=split,
    )
    law = _copies_law(job, problem, probes)
    problem = replace(problem, rest=replace(rest, copies_law=law))
    return replace(problem, rest=replace(problem.rest, fixed_s=_missing_s(job, problem, own_assignment(job))))


def noise_free_s(job: Job, one: Assignment, *, anew: bool = False) -> float:
    """Noise-free step that the cost model says of the job with its tables assigned like that.

    Args:
        anew: with the efficiency of that job, which depends on its plan where fields are open; else with that of `job`.
    """
    names = [table.name for table in _checked(job, True)[0].tables]
    plan = replace(job.plan, tables=TableSharding(tuple(zip(names, one.shards(job.plan.dp), strict=True))))
    eff = replace(job, plan=plan).efficiency if anew else job.efficiency
    cost = step_cost(job.model, job.cluster, plan, eff)
    passes = float(cost.compute_s.sum() + cost.comm_s.sum())
    return plan.n_micro_batch * passes + float(cost.end_compute_s[0] + cost.end_comm_s[0])


def own_assignment(job: Job) -> Assignment:
    """Assignment by the job's plan, or by the usual rule where it states none."""
    model, plan = _checked(job, True)
    n = plan.dp
    parts = parts_of(model.tables, plan.tables, n, plan.micro_batch * n)
    cuts, codes = [], []
    for index, table in enumerate(model.tables):
        here = parts.table == index
        devices, dims = parts.device[here].tolist(), parts.lookups.dim[here]
        if devices[0] == EVERYWHERE:
            cuts, codes = [*cuts, Cut()], [*codes, n + 1]
        elif len(devices) > 1 and dims[0] < table.dim:
            cuts, codes = [*cuts, Cut(1, len(devices))], [*codes, *devices]
        elif len(devices) == n > 1:
            cuts, codes = [*cuts, Cut()], [*codes, n]
        else:
            cuts, codes = [*cuts, Cut(len(devices), 1)], [*codes, *devices]
    return Assignment(tuple(cuts), tuple(codes))


class Probe(NamedTuple):
    """The job with some of its tables copied and the others whole.

    Attributes:
        plan: of it.
        is_copied: [table].
        n_copied: elements of the copied tables.
        copied_bytes: of these elements.
    """

    plan: ParallelPlan
    is_copied: Flags
    n_copied: float
    copied_bytes: float


def _checked(job: Job, split: bool) -> tuple[DLRMSpec, ParallelPlan]:
    model = job.model
    if not isinstance(model, DLRMSpec):
        raise DataError(
            f"{job.name}: {model.name} has no embedding tables to place. Give a job whose model is of kind dlrm "
            "(prism-jax show models)."
        )
    job.check()
    if HYBRID in (job.plan.tables.usual, *(shard.way for shard in job.plan.tables.by_table.values())):
        raise DataError(
            f"{job.name}: plan.tables is {HYBRID}, but this search does not copy rows by how often they are read. "
            "Write tables: auto."
        )
    if not split and job.plan.dp > len(model.tables):
        raise DataError(
            f"{job.name}: {job.plan.dp} GPUs, but only {len(model.tables)} tables, and tables stay whole: GPUs would be idle. "
            f"Let tables be split, or use at most {len(model.tables)} GPUs."
        )
    return model, job.plan


def _spread(stated: float | None, asked: float | None) -> float:
    return asked if asked is not None else ASSUMED_SPREAD if stated is None else stated


def _probes(model: DLRMSpec, plan: ParallelPlan) -> list[Probe]:
    """No table copied, and more and more of the smallest."""
    order = sorted(model.tables, key=lambda table: table.n_params)
    found = []
    for n in sorted({round(share * len(order)) for share in np.linspace(0.0, 1.0, N_PROBE)}):
        copied = {table.name for table in order[:n]}
        ways = tuple((table.name, TableShard("dp" if table.name in copied else "table")) for table in model.tables)
        sizes = [table.n_params for table in order[:n]]
        n_bytes = sum(table.n_params * table.element_bytes for table in order[:n])
        flags = np.array([table.name in copied for table in model.tables])
        found.append(Probe(replace(plan, tables=TableSharding(ways)), flags, float(sum(sizes)), float(n_bytes)))
    return found


def _rest(job: Job, model: DLRMSpec, eff: Efficiency) -> tuple[StepRest, float]:
    """The step without its tables, and the factor of lookup kernels in a step."""
    plan, cluster = job.plan, job.cluster
    blocks = BlockCostModel(model, cluster, plan, eff)
    both = [blocks.alone(TABLES), blocks.alone(DENSE)]
    factor = eff.correction.memory / eff.in_step
    tables_s = [
        factor * float(kernel_of(model, plan, phase).seconds(cluster.device, eff.cache_bytes)) for phase in ("F", "B")
    ]
    compute_s, launches = (np.sum([getattr(b, name) for b in both], axis=0) for name in ("compute_s", "n_launch"))
    other = [float(compute_s[list(rows)].sum()) - own for rows, own in zip((FORWARD, BACKWARD), tables_s, strict=True)]
    host = [float(launches[list(rows)].sum()) * eff.host_launch_s * eff.correction.host for rows in (FORWARD, BACKWARD)]
    rows_host_s = plan.software.host_share * eff.host_launch_s * eff.correction.host
    if any(comm.kind == "reduce_scatter" for comm in model.block(TABLES, plan).comms):  # counted among the launches
        host = [own - rows_host_s for own in host]
    start_s = factor * lookup_law(cluster.device, eff.cache_bytes).start_s
    rest = StepRest(
        Exchange(_law(job, eff, "all_to_all")),
        (_law(job, eff, "reduce_scatter"), _law(job, eff, "all_gather")),
        start_s=(start_s, start_s),
        other_s=(other[0], other[1]),
        host_s=(host[0], host[1]),
        rows_host_s=rows_host_s,
        n_micro_batch=plan.n_micro_batch,
    )
    return rest, factor


def _law(job: Job, eff: Efficiency, kind: str) -> Law:
    """Seconds of a collective over all ranks."""
    cluster, stride, n = job.cluster, job.plan.stride("dp"), job.plan.dp
    factor, call_s = eff.correction.comm(crosses_nodes(cluster, stride, n))
    return per_size(lambda n_bytes: factor * float(collective_s(kind, n_bytes, cluster, stride, n).seconds) + call_s)


def _copies_law(job: Job, problem: ShardingProblem, probes: list[Probe]) -> Law:
    """Seconds that copies add to a step besides their look-ups."""
    task, missing = problem.task(problem.uncut), []
    for probe in probes:
        fixed = np.where(probe.is_copied, problem.n_ranks + 1, -1)
        codes = greedy(task, predicted_s(task), fixed)
        missing.append(_missing_s(job, problem, Assignment(problem.uncut, tuple(codes.tolist()))))
    sizes, added = np.array([probe.copied_bytes for probe in probes]), np.array(missing) - missing[0]

    def law(n_bytes: Floats) -> Floats:
        return np.interp(n_bytes, sizes, np.maximum.accumulate(added))

    return law


def _missing_s(job: Job, problem: ShardingProblem, one: Assignment) -> float:
    """Seconds by which the problem's step is shorter than the noise-free step of the cost model."""
    return noise_free_s(job, one) - float(loads(problem.task(one.cuts), one.columns).step_s[0, 0])


def _memory(job: Job, model: DLRMSpec, probes: list[Probe]) -> tuple[float, float]:
    """Memory of a device that is left for tables, and bytes of an element of a copied one."""
    rules = job.software.memory
    dense, others = [], []
    for probe in (probes[0], probes[len(probes) // 2]):
        found = memory(model, job.cluster, probe.plan, rules)
        held = held_by_fullest(model, probe.plan)
        dense.append(float(found.worst.states_bytes) - held.n_params * held.element_bytes)
        others.append(float(found.worst.total_bytes) - held.n_params * held.element_bytes)
    n_copied = probes[len(probes) // 2].n_copied
    copy_bytes = (dense[1] - dense[0]) / n_copied if n_copied > 0.0 else 0.0
    return float(job.cluster.device.hbm_bytes) - others[0], copy_bytes
