"""Finds the kernels that a recorded job spends its time and its variation on; what `prism-jax trace kernels` does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from ..core.errors import DataError
from ..core.use_case import UNRECORDED, Argument, Option, use_case
from ..trace.step_log import without_warm_up
from ..trace.trace import Trace
from .kernel_report import TraceKernelsReport
from .trace_facts import Meta, Skip, named, recorded, trace_facts

NO_KERNELS = "no kernels inside its operations. Record with ProfilerActivity.CUDA (of a CPU: keep its operators)"
KERNELS = "A PyTorch profile, or a folder or pattern of them, one for each rank; shapes with record_shapes=True."


@use_case()
def kernels_of_trace(
    source: Annotated[str | Path | Trace, Argument(metavar="FILE", key="file", recorded_as=named, help=KERNELS)],
    *,
    meta: Meta = None,
    skip: Skip = None,
    rank: Annotated[int | None, Option("--rank", "N", least=0, most=10_000_000)] = None,
    top: Annotated[int, Option("--top", "N", least=1, most=1000)] = 20,
) -> TraceKernelsReport:
    """Rank the kernels of a recorded job by what their variation costs, with the time and the spread of each.

    Args:
        source: a Trace with kernels; or a PyTorch profile, a folder or a pattern of them.
        meta: degrees of the job (YAML); by default the meta-*.yaml next to the trace.
        skip: first steps to leave out; None: those that are warm-up (`trace/step_log.py`).
        rank: rank of a single profile, where it does not say.
        top: kernels that are held still in turn, those first that vary most in a step.

    Raises:
        DataError: it cannot be read, is no profile, or names no kernels inside its operations.

    Example:
        >>> kernels_of_trace("profiles").pools[0].name  # doctest: +SKIP
    """
    trace, n_left_out = without_warm_up(with_kernels(source, meta, {} if rank is None else {"rank": rank}), skip)
    assert trace.kernels is not None
    from .kernel_pools import pool_table  # here, so that mistakes above do not wait for SciPy
    from .recorded_job import fit_job

    table = pool_table(fit_job(trace), trace.kernels, top)
    return TraceKernelsReport(info=trace_facts(trace, n_left_out), table=table, record=UNRECORDED)


def with_kernels(source: Any, meta: str | Path | None, stated: dict[str, Any]) -> Trace:
    """Opens the trace with its kernels.

    Raises:
        DataError: it has none.
    """
    found = recorded(source, meta, {**stated, "kernels": True})
    if not isinstance(found, Trace) or found.kernels is None or len(found.kernels.op) == 0:
        raise DataError(f"{found.source}: {NO_KERNELS}")
    return found
