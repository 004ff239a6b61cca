"""Whether a fit of collectives says anything of a job: one of all-reduces says nothing of a job that runs none."""

from __future__ import annotations

from ...cost.step import step_cost
from ...job import Job
from ...kernels import COLLECTIVES, COMM_AXES
from ...variability.families import Constant
from ...variability.tree import Variability


def unused_note(fitted: Variability, job: Job, file: str) -> str | None:
    """That nothing of a fit applies to the job, in words; None where something does, or the fit is not of collectives alone.

    Raises:
        PlanError: the plan is impossible.
    """
    measured = [name for name in COLLECTIVES if not fitted.of(name).is_zero]
    others = set(fitted.classes) - set(COLLECTIVES)
    if others or not measured or fitted.stalls or not isinstance(fitted.step, Constant):
        return None
    run = collectives_of(job)
    if set(run) & set(measured):
        return None
    there = f"the job runs {', '.join(run)}" if run else "the job runs no collective"
    return f"{file}: nothing of this fit applies to the job: the fit is of {', '.join(measured)}, and {there}"


def collectives_of(job: Job) -> list[str]:
    """Collectives that a step of the job takes time for, by name."""
    job.check()
    cost = step_cost(job.model, job.cluster, job.plan, job.efficiency)
    inside = cost.comm_s + cost.hidden_comm_s
    seconds = {axis: float(inside[..., i].sum()) for i, axis in enumerate(COMM_AXES)}
    seconds |= {"pp": float(cost.p2p_s.sum()), "end": float((cost.end_comm_s + cost.end_hidden_comm_s).sum())}
    return sorted({cost.collective_of.get(axis, "all_reduce") for axis, total in seconds.items() if total > 0.0})
