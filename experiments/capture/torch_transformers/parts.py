"""Where the step of a captured program and that of a spec differ: seconds by kind, of one micro-batch on all stages."""

from __future__ import annotations

from collections import Counter

from prism_jax import Job
from prism_jax.cost.block_cost import BlockCostModel
from prism_jax.cost.compute import op_seconds
from prism_jax.cost.partition import chunk_blocks
from prism_jax.cost.step import step_cost_of
from prism_jax.workload.base.workload import distinct_runs

COPIES = ("gather_copy", "scatter_copy", "fsdp::")  # in the names of kernels that copy sharded parameters


def parts(job: Job) -> Counter[str]:
    """Seconds by kind, kernels alone on the device; what the host and communication beside them add; the end of the step."""
    model, plan = job.model, job.plan
    blocks = BlockCostModel(model, job.cluster, plan, job.efficiency)
    found: Counter[str] = Counter()
    for chunk in chunk_blocks(model, plan):
        for run, n in zip(distinct_runs(model), chunk, strict=True):
            if n:
                table = model.block(run.kind, plan).kernels
                for op, seconds in zip(
                    table.ops, op_seconds(table, job.cluster.device, plan.dtype, job.efficiency), strict=True
                ):
                    found[_kind(op.kernel, op.phase, op.name)] += n * float(seconds)
                found["copies of shards"] += n * float(blocks.gathering(run.kind).compute_s.sum())
    cost = step_cost_of(blocks)
    found["waiting for the host, slower beside"] = float(cost.compute_s.sum()) - sum(found.values())
    found["communication that shows"] = float(cost.comm_s.sum())
    found["end of the step, all stages"] = float(cost.end_compute_s.sum() + cost.end_comm_s.sum())
    return found


def _kind(kernel: str, phase: str, name: str) -> str:
    if any(word in name for word in COPIES):
        return "copies of shards"
    return f"{kernel} {phase}" if kernel == "memory" else kernel


def show_parts(spec: Job, captured: Job) -> None:
    """A line for each kind: milliseconds of the spec, of the capture, and their difference."""
    own, other = parts(spec), parts(captured)
    for kind in sorted(set(own) | set(other)):
        one, two = 1e3 * own[kind], 1e3 * other[kind]
        print(f"    {kind:<36} {one:>10.2f} {two:>10.2f} {two - one:>+9.2f} ms")
