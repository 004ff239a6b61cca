"""Rows of tables that state samples per second of a named benchmark, such as results of MLPerf Training, as jobs.

Columns model, gpu, num_gpus, global_batch and samples_per_s. The source of a row is its submitter and the round of the
benchmark, where it has both: rows of one submission share a site.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from experiments.step_tables.dates import ROUNDS
from experiments.step_tables.records import MEASURED, NO_NUMBER, StepRecord, UnsupportedRowError
from prism_jax.core.errors import SpecError
from prism_jax.framework.software import Software
from prism_jax.plan.fields import AUTO, HYBRID, TableSharding
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.hardware import Cluster, Device
from prism_jax.tables.csv_rows import CsvTable, Seen, integer_field, number_field, seconds_field
from prism_jax.workload import catalog
from prism_jax.workload.base.workload import Workload

REQUIRED = ("id", "model", "gpu", "num_gpus", "global_batch", "samples_per_s")
_ROUND = re.compile(r"training_results_(v\d\.\d)")


def is_samples_table(columns: Collection[str]) -> bool:
    """Whether a table with these columns states samples per second, and no seconds of a step under their usual name."""
    return MEASURED not in columns and all(column in columns for column in REQUIRED)


def sample_records(table: CsvTable) -> list[StepRecord]:
    """All rows.

    Raises:
        DataError: a row is malformed; names row and field.
    """
    seen, records = Seen(), []
    for row in table.rows():
        place = table.place(row.line)
        records.append(replace(_record(row.fields, place), same_as=seen.before(row.fields.values(), place)))
    return records


def _record(row: Mapping[str, str], where: str) -> StepRecord:
    where = f"{where} ({row['id'] or 'no id'})"
    counts = {name: integer_field(row.get(name), name, where) for name in ("num_gpus", "gpus_per_node", "global_batch")}
    accumulated = integer_field(row.get("grad_accum"), "grad_accum", where) or 1
    rate = number_field(row["samples_per_s"], "samples_per_s", where)
    step_s = seconds_field(row.get("step_time_s"), "step_time_s", where)
    n_gpus, batch = counts["num_gpus"] or None, counts["global_batch"]
    round_of_results = _ROUND.search(row.get("source_repo", ""))
    return StepRecord(
        id=row["id"],
        source=_source(row, round_of_results[1] if round_of_results else ""),
        model_name=row["model"],
        gpu=row["gpu"],
        n_gpus=n_gpus,
        gpus_per_node=counts["gpus_per_node"] or None,
        network=row.get("network", ""),
        micro_batch=max(1, round(batch / (n_gpus * accumulated))) if n_gpus and batch else None,
        global_batch=batch,
        measured_s=step_s or (batch / rate if rate and batch else None),
        table=row.get("source_path", ""),
        notes=row.get("notes", ""),
        framework=row.get("framework", ""),
        precision=row.get("precision", ""),
        date=ROUNDS.get(round_of_results[1], "") if round_of_results else "",
    )


def _source(row: Mapping[str, str], version: str) -> str:
    submitter = row.get("submitter", "")
    if submitter and version:
        return f"{submitter}, MLPerf Training {version}"
    return submitter or row.get("source_repo", "") or row.get("source", "")


# Benchmarks by the names that tables of results give them: which preset a row trained, and what submissions have in
# common.


@dataclass(frozen=True)
class Benchmark:
    """One model under the rules of one benchmark.

    Attributes:
        pattern: of the names that tables give it.
        preset: model that a job file may name.
        seq_len: tokens of a sample; 0: samples are no sequences.
        dtype: that submissions run.
        has_fp8: whether they run products in 8 bits where the device has tensor cores for a transformer engine.
        software: what submissions have in common.
        framework: that they run on; empty: several.
        linked_tables: how embedding tables are spread where all devices of a node are linked.
    """

    pattern: str
    preset: str
    seq_len: int = 0
    dtype: str = "fp16"
    has_fp8: bool = False
    software: dict[str, Any] = field(default_factory=dict)
    framework: str = ""
    linked_tables: str = AUTO

    def tables_on(self, cluster: Cluster) -> TableSharding:
        """How submissions spread embedding tables over the devices of a cluster."""
        return TableSharding(usual=self.linked_tables if cluster.tiers[0].name == "nvlink" else AUTO)

    def dtype_on(self, device: Device) -> str:
        """What submissions run on a device."""
        return "fp8" if self.has_fp8 and device.generation in _TRANSFORMER_ENGINE else self.dtype

    @property
    def model(self) -> Workload | None:
        """The preset; None while there is none of that name."""
        try:
            return catalog.workload(self.preset)
        except SpecError:
            return None


# Results of MLPerf Training are tuned by the vendor of the device. NVIDIA's code, which most submitters run, starts steps as
# CUDA graphs in HugeCTR, MXNet and, of BERT, in PyTorch, which runs in 8 bits from H100 on (README files of its submissions,
# rounds 2.0 to 3.0).
_TRANSFORMER_ENGINE = ("hopper", "blackwell")
_GRAPHS = {"tuning": "vendor", "cuda_graphs": "step"}
_BERT = _GRAPHS | {
    "attention": "flash3",
    "norm": "fused",
    "activation": "fused",
    "cross_entropy": "fused",
}  # apex, cuDNN
# Of DLRM they run HugeCTR's hybrid embedding, which needs NVLink among all devices of a node.
BENCHMARKS = (
    # MXNet's `BatchNormAddRelu` is one kernel.
    Benchmark(r"resnet-?50", "resnet-50", software=_GRAPHS | {"norm": "fused"}),
    Benchmark(r"bert-large \(mlperf\)", "bert-large-mlperf", 512, has_fp8=True, software=_BERT),
    Benchmark(r"dlrm-dcnv2", "dlrm-dcnv2", software=_GRAPHS),
    Benchmark(r"dlrm \(criteo 1tb\)|dlrm mlperf", "dlrm-criteo1tb", software=_GRAPHS, linked_tables=HYBRID),
)


def benchmark_of(model_name: str) -> Benchmark | None:
    """The benchmark that a row's model belongs to; None for a name that no benchmark has."""
    return next((one for one in BENCHMARKS if re.match(one.pattern, model_name, re.IGNORECASE)), None)


# From a row that states samples per second of a benchmark to its job: data parallel over all devices, one batch for
# each.

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
