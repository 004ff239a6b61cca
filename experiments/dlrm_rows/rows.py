"""Rows of recommendation models as jobs: DLRM and DLRM-DCNv2 of MLPerf, DLRM of other code, Wide & Deep of OneFlow."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.step_tables.table import read_step_rows
from prism_jax.framework.software import Software
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster
from prism_jax.system.hardware import Cluster
from prism_jax.workload.base.workload import completed_plan
from prism_jax.workload.catalog import workload
from prism_jax.workload.dlrm.spec import DLRMSpec
from prism_jax.workload.dlrm.tables import EmbeddingTable

WIDE_FIELDS = 26  # sparse fields of Criteo, in one table
PRESETS = ("dlrm-criteo1tb", "dlrm-dcnv2")


@dataclass(frozen=True)
class Row:
    """One measured configuration.

    Attributes:
        table: mlperf | benchmarks | dle | wdl.
        source: submitter or example.
        measured_s: seconds of a step.
    """

    id: str
    table: str
    source: str
    model: DLRMSpec
    cluster: Cluster
    plan: ParallelPlan
    measured_s: float

    @property
    def gpu(self) -> str:
        """Name of the preset that the GPU is, or is like."""
        return self.cluster.device.like or self.cluster.device.name

    @property
    def configuration(self) -> tuple[str, str, int, int]:
        """Model, GPU, devices, batch: what several submitters ran alike."""
        return self.model.name, self.gpu, self.plan.dp, self.plan.global_batch


def mlperf_rows(data: Path) -> list[Row]:
    """Those of `steps_nonllm.csv.gz` that state a rate."""
    found = []
    for row in read_step_rows(data / "steps" / "steps_nonllm.csv.gz"):
        if isinstance(row.model, DLRMSpec) and row.measured_s and row.cluster and row.plan and not row.defect:
            found.append(Row(row.id, "mlperf", row.source, row.model, row.cluster, row.plan, row.measured_s))
    return found


def other_rows(data: Path) -> list[Row]:
    """Rows of frameworks that are not tuned for one result."""
    return [*_benchmarks(data), *_examples(data), *_wide_and_deep(data)]


def _benchmarks(data: Path) -> Iterator[Row]:
    with (data / "nonllm" / "dlrm_benchmarks.csv").open(encoding="utf-8") as lines:
        for number, row in enumerate(csv.DictReader(lines)):
            if "Criteo" in row["model"]:
                dtype = "fp16" if row["dtype"] == "amp" else "fp32"
                yield _criteo(
                    f"benchmarks-{number}",
                    "benchmarks",
                    row["source"],
                    "dgx-a100",
                    int(row["gpus"]),
                    int(row["global_batch"]),
                    dtype,
                    float(row["step_ms"]) / 1e3,
                )


def _examples(data: Path) -> Iterator[Row]:
    with gzip.open(data / "nonllm" / "nvidia_dle.csv.gz", "rt", encoding="utf-8") as lines:
        for number, row in enumerate(csv.DictReader(lines)):
            if row["model"] != "PyTorch/Recommendation/DLRM":
                continue
            n, batch = int(row["gpus_total"]), 65536
            dtype = "fp16" if "amp" in row["dtype"] else "fp32"
            where = "dgx-a100" if row["gpu"].startswith("A100") else "dgx-v100"
            yield _criteo(
                f"dle-{number}", "dle", row["model"], where, n, batch, dtype, batch / float(row["throughput"])
            )


def _criteo(id_: str, table: str, source: str, where: str, n: int, batch: int, dtype: str, step_s: float) -> Row:
    model = workload("dlrm-criteo1tb")
    assert isinstance(model, DLRMSpec)
    return _row(id_, table, source, model, cluster(where, n), batch, dtype, step_s)


def _wide_and_deep(data: Path) -> Iterator[Row]:
    with (data / "nonllm" / "dlperf_wdl_v100.csv").open(encoding="utf-8") as lines:
        for number, row in enumerate(csv.DictReader(lines)):
            if row["section"].startswith("fixed"):
                continue  # its number of GPUs is not stated
            n = 8 if "8 devices" in row["section"] else 1
            model = wide_and_deep(float(row["vocab"]), int(row["emb_dim"]), int(row["hidden_layers"]))
            batch = int(row["batch"])
            yield _row(
                f"wdl-{number}",
                "wdl",
                row["framework"],
                model,
                cluster("dgx-v100", n),
                batch,
                "fp32",
                float(row["step_ms"]) / 1e3,
            )


def wide_and_deep(vocab: float, dim: int, n_hidden: int) -> DLRMSpec:
    """Wide & Deep of DLPerf: a table of single weights and one of vectors, both looked up once per field, and layers of 1,024.

    Its 13 dense features enter with the vectors of the fields; they are left out, since they are 3% of the first layer.
    """
    rows = max(int(vocab / WIDE_FIELDS), 1)
    tables = tuple(
        EmbeddingTable(f"{kind}{i}", rows, width)
        for kind, width in (("wide", 1), ("deep", dim))
        for i in range(WIDE_FIELDS)
    )
    return DLRMSpec(
        "wide-and-deep",
        0,
        (),
        tables,
        (1024,) * n_hidden + (1,),
        "cat",
        optimizer="adagrad",
        source="Oneflow-Inc/DLPerf",
    )


def _row(
    id_: str, table: str, source: str, model: DLRMSpec, where: Cluster, batch: int, dtype: str, step_s: float
) -> Row:
    n = where.n_devices
    where = replace(where, n_devices=n)
    plan = ParallelPlan(batch // n, batch // n * n, dp=n, dtype=dtype, software=Software(tuning="typical"))
    return Row(id_, table, source, model, where, completed_plan(model, plan, where.node_size), step_s)
