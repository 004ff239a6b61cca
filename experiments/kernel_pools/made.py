"""Profiles of a made-up data-parallel job of two GPUs, in which one kernel is noisy; the truth is known.

A step gathers weights, runs `n_layer` layers of kernels and scatters gradients, by NCCL. Every kernel of a layer has a mean; all
vary with the clock of the step and of the GPU (shared) and a little of their own; the noisy one varies much more of its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Event = dict[str, Any]
BETWEEN_US, AHEAD_US = 1.0, 3.0  # of two kernels on a stream, and of two calls of the host
NCCL = {"gather": "ncclDevKernel_AllGather_RING_LL", "scatter": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"}


@dataclass(frozen=True)
class MadeJob:
    """A made-up job.

    Attributes:
        seed: of everything that is drawn.
        n_step, n_layer, n_kernel: steps, layers of a step, kinds of kernels of a layer.
        noisy_share: of a layer's time that the noisy kernel takes.
        own_cv, noisy_cv: own variation of a kernel, and of the noisy one.
        step_cv, gpu_cv: variation that all kernels share.
    """

    seed: int
    n_step: int = 40
    n_layer: int = 4
    n_kernel: int = 6
    noisy_share: float = 0.15
    own_cv: float = 0.01
    noisy_cv: float = 0.2
    step_cv: float = 0.01
    gpu_cv: float = 0.01

    @property
    def noisy(self) -> int:
        """Number of the noisy kernel."""
        return self.seed % self.n_kernel


def write_made_job(job: MadeJob, folder: Path) -> str:
    """Writes a profile per GPU into `folder`, and returns the name of the noisy kernel."""
    rng = np.random.default_rng(job.seed)
    means_us = rng.uniform(50.0, 250.0, job.n_kernel)
    others = means_us.sum() - means_us[job.noisy]
    means_us[job.noisy] = others * job.noisy_share / (1.0 - job.noisy_share)
    cv = np.where(np.arange(job.n_kernel) == job.noisy, job.noisy_cv, job.own_cv)
    gpu = 1.0 + job.gpu_cv * rng.standard_normal(2)
    writers = [_Gpu(rank) for rank in range(2)]
    for step in range(job.n_step):
        clock = 1.0 + job.step_cv * rng.standard_normal()
        begin = [writer.host_us for writer in writers]
        _collective(writers, "gather", rng)
        for _ in range(job.n_layer):
            own = np.exp(cv * rng.standard_normal((2, job.n_kernel)) - 0.5 * cv**2)
            for writer, seconds in zip(writers, clock * gpu[:, None] * own * means_us, strict=True):
                for kernel, us in enumerate(seconds.tolist()):
                    writer.kernel(f"kernel_{kernel}", us, kernel)
            _collective(writers, "scatter", rng)
        end = max(max(writer.host_us, writer.free_us) for writer in writers) + AHEAD_US
        for writer, first in zip(writers, begin, strict=True):
            writer.span("user_annotation", f"ProfilerStep#{step}", first, end - first, 1)
            writer.host_us = end
    for writer in writers:
        writer.write(folder)
    return f"kernel_{job.noisy}"


class _Gpu:
    """Events of one rank: the host launches ahead, the one stream runs in order."""

    def __init__(self, rank: int) -> None:
        self.rank, self.events = rank, list[Event]()
        self.host_us, self.free_us, self.link = 1000.0, 0.0, 0

    def span(self, cat: str, name: str, ts: float, dur: float, tid: int, **args: Any) -> None:
        """Adds a finished span, in microseconds."""
        self.events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": self.rank,
                "tid": tid,
                "ts": round(ts, 3),
                "dur": round(dur, 3),
                "args": args,
            }
        )

    def launch(self) -> tuple[float, int]:
        """Start on the stream, and the number of the call."""
        self.host_us += AHEAD_US
        self.link += 1
        self.span("cuda_runtime", "cudaLaunchKernel", self.host_us - 1.0, 0.5, 1, correlation=self.link)
        return max(self.host_us, self.free_us + BETWEEN_US), self.link

    def kernel(self, name: str, us: float, size: int) -> None:
        """Adds a kernel after all before it, and the operator that launches it."""
        start, link = self.launch()
        self.span(
            "cpu_op", "aten::op", self.host_us - 1.5, 2.0, 1, **{"Input Dims": [[64, 8 + size], [8 + size, 64], []]}
        )
        self.span("kernel", name, start, us, 7, stream=7, correlation=link)
        self.free_us = start + us

    def write(self, folder: Path) -> None:
        """Writes the profile."""
        head = {"distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": 2, "pg_config": []}}
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**head, "baseTimeNanoseconds": 0, "traceEvents": self.events})
        (folder / f"rank{self.rank}.pt.trace.json").write_text(text)


def _collective(gpus: list[_Gpu], kind: str, rng: np.random.Generator) -> None:
    """Adds a collective that ends on both when the last has come, and 100 us more."""
    starts = [gpu.launch() for gpu in gpus]
    end = max(start for start, _ in starts) + 100.0 + rng.normal(0.0, 1.0)
    named = {"Process Group Name": "0", "Group size": 2, "Process Group Ranks": "[0, 1]", "stream": 7}
    for gpu, (start, link) in zip(gpus, starts, strict=True):
        gpu.span("kernel", NCCL[kind], start, end - start, 7, correlation=link, **named)
        gpu.free_us = end
