"""Files as the PyTorch profiler writes them, made up: builders of events, and a small machine that runs an FSDP-like step."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from prism_jax.trace.trace import OpTable

Event = dict[str, Any]
BASE_NS = 1790857026000000000
AHEAD_US = 3  # microseconds between two calls of the host
KERNELS = {
    "all_gather": "ncclDevKernel_AllGather_RING_LL",
    "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
}


def span(cat: str, name: str, ts: float, dur: float, *, tid: int = 1, **args: Any) -> Event:
    """A finished span, times in microseconds."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur, "args": args}


def step(number: int, ts: float, dur: float) -> Event:
    """The annotation of a step."""
    return span("user_annotation", f"ProfilerStep#{number}", ts, dur)


def profile(
    events: list[Event], rank: int | None = 0, world: int = 2, base_ns: int | None = BASE_NS, **more: Any
) -> Event:
    """The content of a file."""
    head: Event = {"schemaVersion": 1}
    if rank is not None:
        head["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world, "pg_config": []}
    if base_ns is not None:
        head["baseTimeNanoseconds"] = base_ns
    noise = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}, {"ph": "i", "s": "g", "ts": 1}]
    return {**head, **more, "displayTimeUnit": "ms", "traceEvents": noise + events, "traceName": "made.json"}


def write(folder: Path, contents: list[Event], *, packed: bool = False) -> list[Path]:
    """One file per rank."""
    paths = [folder / f"profile_{index}.json{'.gz' if packed else ''}" for index in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        text = json.dumps(content, indent=1).encode()
        path.write_bytes(gzip.compress(text) if packed else text)
    return paths


class Machine:
    """GPUs whose hosts run the same program, ahead of them; every rank has its own clock.

    Streams 7 (compute) and 20 (NCCL); a kernel starts when it is launched, its stream is free and what the stream was told to
    wait for has ended; a collective ends on all ranks together, up to jitter.
    """

    def __init__(self, offset_s: list[float], *, seed: int = 0, jitter_us: float = 2.0, launches: bool = True) -> None:
        self.n_rank = len(offset_s)
        self.offset_us = np.array(offset_s) * 1e6
        self.rng = np.random.default_rng(seed)
        self.jitter_us, self.launches = jitter_us, launches
        self.host = np.full(self.n_rank, 1000.0)
        self.free = {7: np.zeros(self.n_rank), 20: np.zeros(self.n_rank)}
        self.events: list[list[Event]] = [[] for _ in offset_s]
        self.correlation = 0
        self.work_us = np.zeros(self.n_rank)

    def _emit(self, rank: int, cat: str, name: str, start: float, end: float, tid: int, **args: Any) -> None:
        ts = round(start + self.offset_us[rank], 3)
        self.events[rank].append(span(cat, name, ts, round(end - start, 3), tid=tid, **args))

    def _launch(self, name: str) -> int:
        self.host += AHEAD_US + self.rng.uniform(0, 1, self.n_rank)
        self.correlation += 1
        if self.launches:
            for rank in range(self.n_rank):
                at = self.host[rank]
                self._emit(rank, "cuda_runtime", name, at - 2, at, 1, correlation=self.correlation)
        return self.correlation

    def compute(self, kernels: int, mean_us: float) -> None:
        """Kernels on the compute stream."""
        for _ in range(kernels):
            link = self._launch("cudaLaunchKernel")
            start = np.maximum(self.host, self.free[7])
            end = start + mean_us * self.rng.uniform(0.8, 1.2, self.n_rank)
            for rank in range(self.n_rank):
                self._emit(rank, "kernel", "sm90_gemm", start[rank], end[rank], 7, stream=7, correlation=link)
            self.free[7] = end + 1.0
            self.work_us += end - start

    def collective(self, kind: str, us: float, **args: Any) -> None:
        """A collective of all ranks, after the compute launched so far."""
        self.wait(20, 7)
        link = self._launch("cudaLaunchKernelExC")
        start = np.maximum(self.host, self.free[20])
        end = start.max() + us + self.rng.normal(0, self.jitter_us, self.n_rank)
        named = {"Collective name": f"_{kind}_base", "Process Group Name": "0", "Group size": self.n_rank, **args}
        for rank in range(self.n_rank):
            more = {"stream": 20, "correlation": link, "Process Group Ranks": "[0, 1]", "Comms Id": 2**64 - 5, **named}
            self._emit(rank, "kernel", KERNELS[kind], start[rank], end[rank], 20, **more)
        self.free[20] = end + 1.0

    def wait(self, stream: int, other: int) -> None:
        """`stream` does nothing more until all that was launched on `other` has ended."""
        self._launch("cudaStreamWaitEvent")
        self.free[stream] = np.maximum(self.free[stream], self.free[other])

    def fsdp_step(self, number: int, layers: int = 3) -> None:
        """Gather, compute, scatter; the next layer is gathered while one computes."""
        begin = self.host.copy()
        self.collective("all_gather", 150)
        for layer in range(layers):
            self.wait(7, 20)
            if layer + 1 < layers:
                self.collective("all_gather", 150)
            self.compute(2, 100)
        for _ in range(layers):
            self.compute(2, 200)
            self.collective("reduce_scatter", 250)
        self.wait(7, 20)
        self.compute(1, 50)
        for rank in range(self.n_rank):
            self._emit(rank, "user_annotation", f"ProfilerStep#{number}", begin[rank], self.host[rank], 1)
        self.host = self.host + 1.0


def fsdp_job(
    offset_s: list[float], *, n_step: int = 5, seed: int = 0, launches: bool = True, **args: Any
) -> list[Event]:
    """Contents of the files of an FSDP job."""
    machine = Machine(offset_s, seed=seed, launches=launches)
    for number in range(3, 3 + n_step):
        machine.fsdp_step(number)
    return [profile(machine.events[rank], rank, len(offset_s), **args) for rank in range(len(offset_s))]


def kernel(start: float, name: str, link: int, *, stream: int = 7, dur: float = 100.0, **args: Any) -> list[Event]:
    """A kernel and, just before, its launch."""
    launch = span("cuda_runtime", "cudaLaunchKernel", start - 0.5, 0.2, correlation=link)
    return [launch, span("kernel", name, start, dur, tid=stream, **{"stream": stream, "correlation": link, **args})]


def bare(folder: Path, events: list[Any]) -> Path:
    """A file of rank 0 without anything around its events, so that their numbers are known."""
    path = folder / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def timed(table: OpTable) -> list[tuple[str, float, float]]:
    """Type, start and duration of every op; microseconds to a tenth of a nanosecond."""
    columns = zip(table.op_type.tolist(), table.start_s * 1e6, table.duration_s * 1e6, strict=True)
    return sorted((table.op_types[kind], round(start, 4), round(dur, 4)) for kind, start, dur in columns)
