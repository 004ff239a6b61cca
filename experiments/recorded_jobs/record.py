# pyright: reportMissingImports=false
"""Records small PyTorch jobs on one machine with `torch.profiler`, as its users do: gloo, no annotations, one file per rank.

    python record.py OUT                      all twelve jobs, each in a folder of its own
    python record.py OUT --only ddp_2 tp_4    some of them
    python record.py OUT --slim               profiles cut down to steps and communication, some 5 KB per rank

Every job runs `WARM_UP` unrecorded steps and `--steps` recorded ones. It needs PyTorch (2.13 was used; the CPU build will do)
and nothing of this project. Jobs whose name ends in `uneven` give their last rank extra work in every step, as much as a random
draw says.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.profiler import ProfilerActivity, profile, schedule

WARM_UP, STEPS, N_LAYER, WIDTH, ROWS, N_MICRO_BATCH = 3, 36, 4, 512, 256, 4
EXTRA_ROWS = 512  # of the slow rank's extra work, on average
KEPT_EVENTS = ("ProfilerStep#", "gloo:")  # of a profile that is cut down
KEPT_HEADER = ("schemaVersion", "displayTimeUnit", "baseTimeNanoseconds")
Step = Callable[[torch.Generator], None]


class Job(NamedTuple):
    """One recording: how the model is split, over how many processes, and whether the last one has extra work."""

    split: str
    world: int
    uneven: bool = False

    @property
    def name(self) -> str:
        """Folder of the recording."""
        return f"{self.split}_{self.world}" + ("_uneven" if self.uneven else "")


class Block(nn.Module):
    """Two linear layers with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Input plus what the two layers make of it."""
        return x + self.down(torch.relu(self.up(x)))


def model(n_layer: int = N_LAYER) -> nn.Sequential:
    """`n_layer` blocks."""
    return nn.Sequential(*(Block() for _ in range(n_layer)))


def trained(net: nn.Module) -> Step:
    """One step of training `net` on random rows."""
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)

    def step(rng: torch.Generator) -> None:
        loss = net(torch.randn(ROWS, WIDTH, generator=rng)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def data_parallel(_: int, world: int) -> Step:
    """Replicas whose gradients are reduced in buckets while the backward pass runs."""
    del world
    return trained(nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=4))


def fully_sharded(_: int, world: int) -> Step:
    """Every layer's parameters are spread over all ranks and gathered before use."""
    net = model()
    mesh = init_device_mesh("cpu", (world,))
    for block in net:
        fully_shard(block, mesh=mesh)
    return trained(fully_shard(net, mesh=mesh))


def tensor_parallel(_: int, world: int) -> Step:
    """Every layer's matrices are cut: columns of the first, rows of the second."""
    net, mesh = model(), init_device_mesh("cpu", (world,))
    for block in net:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return trained(net)


def pipeline(rank: int, world: int) -> Step:
    """Layers spread over stages; micro-batches in 1F1B order."""
    net = model(max(N_LAYER // world, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    stage = PipelineStage(net, rank, world, torch.device("cpu"))
    plan = Schedule1F1B(stage, max(N_MICRO_BATCH, world), loss_fn=lambda y, target: (y - target).square().mean())

    def step(rng: torch.Generator) -> None:
        x = torch.randn(ROWS * 2, WIDTH, generator=rng)
        if rank == 0:
            plan.step(x)
        elif rank == world - 1:
            plan.step(target=x, losses=[])
        else:
            plan.step()
        optimizer.step()
        optimizer.zero_grad()

    return step


SPLITS = {"ddp": data_parallel, "fsdp": fully_sharded, "tp": tensor_parallel, "pp": pipeline}
JOBS = tuple(Job(split, world, uneven) for split in SPLITS for world, uneven in ((2, False), (4, False), (2, True)))


def work(rank: int, job: Job, port: int, n_step: int, slimmed: bool, folder: Path) -> None:
    """What one process does."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(job.world))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=job.world)
    step, rng = SPLITS[job.split](rank, job.world), torch.Generator().manual_seed(rank)
    slow = job.uneven and rank == job.world - 1
    extra = torch.randn(WIDTH, WIDTH)
    written = partial(save, folder / f"rank{rank}.json.gz", slimmed)
    plan = schedule(wait=0, warmup=WARM_UP, active=n_step, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=written) as profiler:
        for _ in range(WARM_UP + n_step):
            if slow:
                n_row = int(EXTRA_ROWS * (0.5 + torch.rand((), generator=rng)))
                _ = torch.randn(n_row, WIDTH, generator=rng) @ extra @ extra
            step(rng)
            profiler.step()
    dist.barrier()
    dist.destroy_process_group()


def save(path: Path, slimmed: bool, profiler: profile) -> None:
    """Write a rank's profile, cut down if that is wanted."""
    profiler.export_chrome_trace(str(path))
    if slimmed:
        slim(path)


def slim(path: Path) -> None:
    """Keep steps and communication of a profile, with the ranks of its job; no operators, no names of machines or files."""
    with gzip.open(path, "rt") as file:
        trace = json.load(file)
    job = trace.get("distributedInfo", {})
    kept = {key: trace[key] for key in KEPT_HEADER if key in trace}
    kept["distributedInfo"] = {key: job[key] for key in ("backend", "rank", "world_size") if key in job}
    threads: dict[int, int] = {}
    kept["traceEvents"] = [
        {key: event[key] for key in ("ph", "cat", "name", "ts", "dur")}
        | {"pid": job.get("rank", 0), "tid": threads.setdefault(event["tid"], len(threads))}
        for event in sorted(trace["traceEvents"], key=lambda event: event.get("ts", 0.0))
        if event.get("cat") == "user_annotation" and event["name"].startswith(KEPT_EVENTS)
    ]
    text = json.dumps(kept, separators=(",", ":"))
    with path.open("wb") as file, gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
        packed.write(text.encode())


def record(job: Job, n_step: int, slimmed: bool, out: Path) -> Path:
    """Run a job; its profiles lie in the folder that is returned."""
    folder = out / job.name
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, args=(job, port, n_step, slimmed, folder), nprocs=job.world)
    return folder


def main() -> None:
    """Command line."""
    names = {job.name: job for job in JOBS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", choices=names, default=list(names))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--slim", action="store_true")
    options = parser.parse_args()
    for name in options.only:
        print(record(names[name], options.steps, options.slim, options.out), flush=True)


if __name__ == "__main__":
    main()
