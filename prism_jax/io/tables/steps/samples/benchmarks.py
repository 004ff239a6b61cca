"""Benchmarks by the names that tables of results give them: which preset a row trained, and what submissions have in common."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from .....errors import SpecError
from .....plan.table_sharding import AUTO, HYBRID, TableSharding
from .....system.hardware import Cluster, Device
from .....workload import catalog
from .....workload.base import Workload


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
