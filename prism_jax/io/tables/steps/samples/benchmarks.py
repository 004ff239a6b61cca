"""Benchmarks by the names that tables of results give them: which preset a row trained, and what submissions have in common."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from .....errors import SpecError
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
        software: what submissions have in common.
        framework: that they run on; empty: several.
    """

    pattern: str
    preset: str
    seq_len: int = 0
    dtype: str = "fp16"
    software: dict[str, Any] = field(default_factory=dict)
    framework: str = ""

    @property
    def model(self) -> Workload | None:
        """The preset; None while there is none of that name."""
        try:
            return catalog.workload(self.preset)
        except SpecError:
            return None


# Results of MLPerf Training are tuned by the vendor of the device. HugeCTR and MXNet start whole steps as CUDA graphs (notes of
# NVIDIA's submissions, rounds 2.0 and 3.0).
_TUNED = {"tuning": "vendor"}
_GRAPHS = _TUNED | {"cuda_graphs": "step"}
BENCHMARKS = (
    # MXNet's `BatchNormAddRelu` is one kernel.
    Benchmark(r"resnet-?50", "resnet-50", software=_GRAPHS | {"norm": "fused"}),
    Benchmark(r"bert-large \(mlperf\)", "bert-large-mlperf", 512, software=_TUNED),
    Benchmark(r"dlrm-dcnv2", "dlrm-dcnv2", software=_GRAPHS),
    Benchmark(r"dlrm \(criteo 1tb\)|dlrm mlperf", "dlrm-criteo1tb", software=_GRAPHS),
)


def benchmark_of(model_name: str) -> Benchmark | None:
    """The benchmark that a row's model belongs to; None for a name that no benchmark has."""
    return next((one for one in BENCHMARKS if re.match(one.pattern, model_name, re.IGNORECASE)), None)
