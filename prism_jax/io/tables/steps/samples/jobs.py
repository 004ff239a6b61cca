"""From a row that states samples per second of a benchmark to its job: data parallel over all devices, one batch for each."""

from __future__ import annotations

from .....plan.plan import ParallelPlan
from .....software.choices import Software
from .....system.hardware import Cluster
from .....workload.base import Workload
from ..kind import NO_NUMBER, UnsupportedRowError
from ..record import StepRecord
from .benchmarks import Benchmark, benchmark_of

_OTHER_MODEL = "no preset of this model"


def benchmark_of_record(record: StepRecord) -> tuple[Benchmark, Workload]:
    """Benchmark and model of a row.

    Raises:
        UnsupportedRowError: none is known by that name, or the row holds no rate.
    """
    benchmark = benchmark_of(record.model_name)
    model = benchmark.model if benchmark is not None else None
    if benchmark is None or model is None:
        raise UnsupportedRowError(_OTHER_MODEL)
    if not record.measured_s:
        raise UnsupportedRowError(NO_NUMBER)
    return benchmark, model


def plan_of_samples(record: StepRecord, benchmark: Benchmark, cluster: Cluster) -> ParallelPlan:
    """Data parallel over all devices.

    Notes:
        A global batch that the devices cannot share evenly is rounded to one that they can; see `measured_s_of`.

    Raises:
        UnsupportedRowError: no batch is stated.
    """
    if record.micro_batch is None or record.global_batch is None:
        raise UnsupportedRowError("batch not stated")
    each = cluster.n_devices * record.micro_batch
    n_micro_batch = max(1, round(record.global_batch / each))
    return ParallelPlan(
        micro_batch=record.micro_batch,
        global_batch=n_micro_batch * each,
        seq_len=benchmark.seq_len,
        dp=cluster.n_devices,
        dtype=record.precision or benchmark.dtype_on(cluster.device),
        software=Software(**benchmark.software, date=record.date),
        tables=benchmark.tables_on(cluster),
    )


def measured_s_of(record: StepRecord, plan: ParallelPlan) -> float:
    """Seconds of a step of the plan's batch at the rate that was measured."""
    assert record.measured_s is not None
    assert record.global_batch is not None
    return record.measured_s * plan.global_batch / record.global_batch
