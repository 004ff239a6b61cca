# pyright: reportMissingImports=false
"""One process of the job: 1F1B pipeline steps over gloo, every op of them in a span of the PyTorch profiler.

Every kind of transfer runs on a thread of its own, as on a communication stream of a GPU: a receive is posted as soon as the
compute before the one that needs it has ended, a send as soon as its compute has, and the span lasts until the transfer is done.
gloo moves data once both sides are there, so neither span ends before the other has begun.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from job import Job
from slim import slim
from stage import Stage, sequence
from torch import Tensor
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function, schedule

LEARNING_RATE, MOMENTUM, MAX_NORM = 0.05, 0.9, 1.0
TIMEOUT_S = 120.0  # of a transfer whose peer is gone


def run_rank(rank: int, job: Job, meeting_file: str, out: Path, cores: list[int], kernels: bool) -> None:
    """Train `job` as process `rank` and write its trace to `out`/rank<rank>.json.gz, with single operators if asked for."""
    if cores:
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # tiny gradients would take twice as long
    torch.manual_seed(job.seed + job.place(rank)[1])  # replicas start from the same weights
    meeting = {"init_method": f"file://{meeting_file}", "rank": rank, "world_size": job.n_rank}
    dist.init_process_group("gloo", **meeting, timeout=timedelta(seconds=TIMEOUT_S))
    worker = Worker(rank, job)
    raw = out / f"rank{rank}.raw.json"
    gc.disable()  # collected between steps instead, as large jobs do
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=job.n_warmup, active=job.n_step, repeat=1),
        on_trace_ready=lambda finished: finished.export_chrome_trace(str(raw)),
        record_shapes=kernels,
        experimental_config=_ExperimentalConfig(profile_all_threads=True),
    ) as profiler:
        profiler.add_metadata_json("prism", json.dumps(worker.metadata()))
        for step in range(job.n_warmup + job.n_step):
            worker.step(step)
            profiler.step()
    worker.close()
    if worker.losses and worker.replica == 0:
        first, last = (sum(part) / job.n_micro_batch for part in worker.ends_of_losses())
        print(f"mean loss of the first step {first:.2f}, of the last {last:.2f}")
    dist.destroy_process_group()
    slim(raw, out / f"rank{rank}.json.gz", kernels)
    raw.unlink()


def _line() -> dist.ProcessGroup:
    """Connections of their own between all processes."""
    group = dist.new_group()
    assert isinstance(group, dist.ProcessGroup)
    return group


class Worker:
    """Weights of one stage of one replica and the streams to its neighbours."""

    def __init__(self, rank: int, job: Job) -> None:
        self.job, self.rank = job, rank
        self.replica, self.stage = job.place(rank)
        self.model = Stage(job, self.stage)
        parameters = list(self.model.parameters())
        self.gradients = torch.zeros(sum(p.numel() for p in parameters))  # one bucket; every p.grad is a view of it
        for p, flat in zip(parameters, self.gradients.split([p.numel() for p in parameters]), strict=True):
            p.grad = flat.view_as(p)
        self.optimizer = torch.optim.SGD(parameters, LEARNING_RATE, MOMENTUM, foreach=True)
        self.extra = job.slow_factor - 1.0 if rank == job.slow_rank else 0.0
        peers = [[job.rank(r, stage) for r in range(job.dp)] for stage in range(job.pp)]
        self.replicas = [dist.new_group(ranks) for ranks in peers][self.stage]
        self.lines = {way: _line() for way in ("forward", "backward")}
        names = [f"{way}-{end}" for way in self.lines for end in ("recv", "send")]
        self.streams = {name: ThreadPoolExecutor(1, thread_name_prefix=name) for name in names}
        self.losses: list[float] = []

    def metadata(self) -> dict[str, int]:
        """Place of the process and degrees of the job, for the reader of the trace."""
        sizes = {"dp_size": self.job.dp, "pp_size": self.job.pp, "tp_size": 1}
        return {"dp": self.replica, "pp": self.stage, "tp": 0} | sizes

    def ends_of_losses(self) -> tuple[list[float], list[float]]:
        """Losses of the micro-batches of the first and of the last step; known to the last stage."""
        return self.losses[: self.job.n_micro_batch], self.losses[-self.job.n_micro_batch :]

    def close(self) -> None:
        """End the threads of the streams."""
        for stream in self.streams.values():
            stream.shutdown()

    def step(self, step: int) -> None:
        """One optimizer step."""
        _Step(self, step).run()
        self._reduce()
        self._clip()
        with record_function("optimizer"):
            self.optimizer.step()
            self.gradients.zero_()
        gc.collect(0)

    def _reduce(self) -> None:
        """Mean of the gradients over the replicas of the stage."""
        if self.job.dp > 1:
            with record_function("grads-reduce-scatter"):
                dist.all_reduce(self.gradients, group=self.replicas)
                self.gradients /= self.job.dp

    def _clip(self) -> None:
        """Scale the gradients by their norm over all stages; every process takes part."""
        with record_function("optimizer-clip-main-grad"):
            square = self.gradients.dot(self.gradients)
            dist.all_reduce(square)
            norm = (square / self.job.dp).sqrt()
            self.gradients *= (MAX_NORM / (norm + 1e-6)).clamp(max=1.0)


class _Step:
    """Micro-batches of one step of one process."""

    def __init__(self, worker: Worker, step: int) -> None:
        self.worker, self.job, self.number = worker, worker.job, step
        self.arriving: dict[str, Future[Tensor]] = {}
        self.leaving: list[Future[None]] = []
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}  # input and output of micro-batches that await their backward
        self.has_previous, self.has_next = worker.stage > 0, worker.stage < worker.job.pp - 1
        self.data = [sequence(worker.job, step, worker.replica, b) for b in range(worker.job.n_micro_batch)]

    def run(self) -> None:
        order = self.job.schedule(self.worker.stage)
        first_backward = [way for way, _ in order].index("backward")
        self._expect("forward", 0)
        if first_backward < 2:
            self._expect("backward", 0)
        for position, (way, micro_batch) in enumerate(order):
            (self._forward if way == "forward" else self._backward)(micro_batch)
            self._expect(way, micro_batch + 1)
            if position == first_backward - 2:
                self._expect("backward", 0)
        for sent in self.leaving:
            sent.result()

    def _forward(self, micro_batch: int) -> None:
        tokens = self.data[micro_batch]
        x = self._arrived("forward").requires_grad_() if self.has_previous else tokens[:-1]
        with record_function(f"forward-compute mb={micro_batch} chunk=0"):
            y = self.worker.model(x, tokens[1:])
            self.worker.model.repeat(len(x), self.worker.extra)
        self.kept[micro_batch] = x, y
        if self.has_next:
            self._send("forward", micro_batch, y.detach())
        else:
            self.worker.losses.append(y.item())

    def _backward(self, micro_batch: int) -> None:
        gradient = self._arrived("backward") if self.has_next else torch.tensor(1.0 / self.job.n_micro_batch)
        x, y = self.kept.pop(micro_batch)
        with record_function(f"backward-compute mb={micro_batch} chunk=0"):
            y.backward(gradient)
            self.worker.model.repeat(len(x), 2.0 * self.worker.extra)  # a backward is about two forwards
        if self.has_previous:
            assert x.grad is not None
            self._send("backward", micro_batch, x.grad)

    def _neighbour(self, stages: int) -> int:
        return self.job.rank(self.worker.replica, self.worker.stage + stages)

    def _expect(self, way: str, micro_batch: int) -> None:
        """Post the receive of a micro-batch."""
        sends = self.has_previous if way == "forward" else self.has_next
        if not sends or micro_batch == self.job.n_micro_batch:
            return
        peer, line = self._neighbour(-1 if way == "forward" else 1), self.worker.lines[way]
        n_token = self.job.length(self.number, self.worker.replica, micro_batch)

        def receive() -> Tensor:
            x = torch.empty(n_token, self.job.d_model)
            dist.recv(x, peer, group=line, tag=micro_batch)
            return x

        self.arriving[way] = self._post(f"{way}-recv", micro_batch, receive)

    def _arrived(self, way: str) -> Tensor:
        return self.arriving.pop(way).result()

    def _send(self, way: str, micro_batch: int, x: Tensor) -> None:
        peer, line = self._neighbour(1 if way == "forward" else -1), self.worker.lines[way]

        def send() -> None:
            dist.send(x, peer, group=line, tag=micro_batch)

        self.leaving.append(self._post(f"{way}-send", micro_batch, send))

    def _post(self, name: str, micro_batch: int, transfer: Callable) -> Future:
        """Queue a transfer on its stream; its span is that of the transfer itself."""

        def spanned() -> object:
            with record_function(f"{name} mb={micro_batch}"):
                return transfer()

        return self.worker.streams[name].submit(spanned)
