"""Measures GEMM, attention, memory and two collectives on every GPU with PyTorch, and writes tables for `prism-jax fit`.

    python measure_torch.py                               # one process per GPU of this machine
    torchrun --nnodes 2 --nproc_per_node 8 measure_torch.py      # several nodes
    prism-jax fit kernels kernels.csv; prism-jax fit fleet kernels.csv; prism-jax fit collectives collectives.csv

Kernels run on every GPU at the same time, as in training, in rounds over all shapes; every round is a row with the clock of the
GPU next to it. A time is that of a few launches in a row, divided by their number. This file needs PyTorch and nothing else.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.functional import scaled_dot_product_attention

GEMMS = [(m, n, k) for m in (1024, 4096, 16384) for n in (1024, 4096, 8192) for k in (1024, 4096, 8192)]
ATTENTIONS = [
    (1, s, 32, kv, 128) for s in (1024, 2048, 4096, 8192) for kv in (32, 8)
]  # batch, tokens, heads, key heads, width
MEMORIES = [2**power for power in range(20, 31, 2)]  # bytes moved
MESSAGES = [2**power for power in range(10, 31, 2)]  # bytes
SMALL_GEMMS = [(m, n, 64) for m in (64, 128, 256) for n in (64, 128)]
SMALL_ATTENTIONS = [(1, s, 4, 4, 32) for s in (64, 128, 256)]
SMALL_MEMORIES = [2**power for power in (12, 14, 16, 18)]
SMALL_MESSAGES = [2**power for power in (10, 12, 14, 16, 18)]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
KERNELS = ("op", "m", "n", "k", "batch", "seq_len", "n_head", "n_kv_head", "head_dim", "causal", "bytes", "dtype", "gpu_name",
           "software", "duration_s", "gpu_uuid", "node", "kernel", "input_size", "run", "time", "clock_mhz")  # fmt: skip
COLLECTIVES = ("op", "message_bytes", "n_gpus", "n_nodes", "gpus_per_node", "gpu", "library", "duration_s", "run", "time",
               "clock_mhz")  # fmt: skip
N_LAUNCH = 5  # in one time
Shape = tuple[str, dict[str, Any], Callable[[], Any]]  # operation, its sizes, and what is timed


class Place:
    """The GPU of this process, or the CPU where there is none."""

    def __init__(self, local_rank: int) -> None:
        self.is_gpu = torch.cuda.is_available()
        self.index = local_rank
        self.device = torch.device("cuda", local_rank) if self.is_gpu else torch.device("cpu")
        if self.is_gpu:
            torch.cuda.set_device(self.device)
        self.name = torch.cuda.get_device_name(self.device) if self.is_gpu else platform.processor() or "cpu"
        self.node = socket.gethostname()
        uuid = getattr(torch.cuda.get_device_properties(self.device), "uuid", "") if self.is_gpu else ""
        self.uuid = str(uuid) or f"{self.node}-{local_rank}"

    def wait(self) -> None:
        """Waits until all that was started is done."""
        if self.is_gpu:
            torch.cuda.synchronize(self.device)

    def clock_mhz(self) -> str:
        """Clock of the multiprocessors; empty where nothing says it."""
        query = ["nvidia-smi", "-i", self.uuid if self.uuid.startswith("GPU-") else str(self.index)]
        query += ["--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
        if not self.is_gpu:
            return ""
        try:
            found = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.SubprocessError):
            return ""
        return found.stdout.strip() if found.stdout.strip().isdecimal() else ""

    def seconds(self, work: Callable[[], Any]) -> float:
        """Seconds of one launch among several in a row."""
        self.wait()
        if not self.is_gpu:
            start_s = time.perf_counter()
            for _ in range(N_LAUNCH):
                work()
            return (time.perf_counter() - start_s) / N_LAUNCH
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(N_LAUNCH):
            work()
        end.record()
        end.synchronize()
        return 1e-3 * start.elapsed_time(end) / N_LAUNCH


def kernels(place: Place, dtype: torch.dtype, is_small: bool) -> Iterator[Shape]:
    """Yields the shapes one by one, so that the tensors of one alone are kept."""
    on = {"device": place.device, "dtype": dtype}
    for m, n, k in SMALL_GEMMS if is_small else GEMMS:
        a, b = torch.randn(m, k, **on), torch.randn(k, n, **on)
        yield "gemm", {"m": m, "n": n, "k": k}, lambda a=a, b=b: a @ b
    for batch, length, heads, kv_heads, width in SMALL_ATTENTIONS if is_small else ATTENTIONS:
        q, k_, v = (torch.randn(batch, heads, length, width, **on) for _ in range(3))
        if kv_heads < heads:  # the same keys for several heads, as they lie in memory after expansion
            k_, v = (x[:, :kv_heads].repeat_interleave(heads // kv_heads, 1) for x in (k_, v))
        sizes = {
            "batch": batch,
            "seq_len": length,
            "n_head": heads,
            "n_kv_head": kv_heads,
            "head_dim": width,
            "causal": True,
        }
        yield "attention", sizes, lambda q=q, k=k_, v=v: scaled_dot_product_attention(q, k, v, is_causal=True)
    for n_bytes in SMALL_MEMORIES if is_small else MEMORIES:
        source = torch.zeros(n_bytes // 2 // torch.empty((), dtype=dtype).element_size(), **on)
        target = torch.empty_like(source)
        yield "memory", {"bytes": n_bytes}, lambda s=source, t=target: t.copy_(s)


def measure_kernels(place: Place, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the kernels of this GPU."""
    rows: list[dict[str, Any]] = []
    for run in range(options.repeats):
        for dtype in options.dtypes:
            for op, sizes, work in kernels(place, DTYPES[dtype], options.small):
                if run == 0:
                    place.seconds(work)  # compiles, allocates, raises the clock
                size = "x".join(str(value) for name, value in sizes.items() if name != "causal")
                rows.append({
                    "op": op, **sizes, "dtype": dtype, "gpu_name": options.gpu or place.name, "duration_s": place.seconds(work),
                    "software": f"torch {torch.__version__}", "gpu_uuid": place.uuid, "node": place.node,
                    "kernel": f"{op} {dtype}", "input_size": size, "run": run, "time": time.time(), "clock_mhz": "",
                })  # fmt: skip
        clock = place.clock_mhz()  # right behind the work of the round
        for row in rows:
            row["clock_mhz"] = clock if row["run"] == run else row["clock_mhz"]
    return rows


def measure_collectives(place: Place, options: argparse.Namespace, per_node: int) -> list[dict[str, Any]]:
    """Rows of all-reduce and all-gather over all processes, the slowest of which counts; the same on every process."""
    n, dtype = dist.get_world_size(), DTYPES[options.dtypes[0]]
    element = torch.empty((), dtype=dtype).element_size()
    rows: list[dict[str, Any]] = []
    for run in range(options.repeats):
        clock = place.clock_mhz()
        for n_bytes in SMALL_MESSAGES if options.small else MESSAGES:
            whole = torch.zeros(max(n_bytes // element // n, 1) * n, device=place.device, dtype=dtype)
            part = whole.chunk(n)[dist.get_rank()].clone()
            works = {
                "all_reduce": lambda x=whole: dist.all_reduce(x),
                "all_gather": lambda x=whole, y=part: dist.all_gather_into_tensor(x, y),
            }
            for op, work in works.items():
                if run == 0:
                    place.seconds(work)
                dist.barrier()
                slowest = torch.tensor([place.seconds(work)], device=place.device, dtype=torch.float64)
                dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
                rows.append({
                    "op": op, "message_bytes": whole.numel() * element, "n_gpus": n, "n_nodes": n // per_node,
                    "gpus_per_node": per_node, "gpu": options.gpu or place.name, "duration_s": float(slowest), "run": run,
                    "library": f"{dist.get_backend()} torch {torch.__version__}", "time": time.time(), "clock_mhz": clock,
                })  # fmt: skip
    return rows


def write_table(path: Path, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """Writes a table, whole or not at all."""
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    unfinished.replace(path)
    print(f"wrote {path}: {len(rows):,} rows")


def measure(local_rank: int, options: argparse.Namespace, n_local: int, meeting: str) -> None:
    """Measures with one process of several; the first writes."""
    place = Place(local_rank)
    if not place.is_gpu:
        torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if place.is_gpu else "gloo")
    else:
        dist.init_process_group(
            "nccl" if place.is_gpu else "gloo", init_method=f"file://{meeting}", rank=local_rank, world_size=n_local
        )
    mine = measure_kernels(place, options)
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, mine)
    rows = measure_collectives(place, options, n_local) if dist.get_world_size() > 1 else []
    if dist.get_rank() == 0:
        write_table(options.output / "kernels.csv", KERNELS, [row for part in every for row in part])
        if rows:
            write_table(options.output / "collectives.csv", COLLECTIVES, rows)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Reads the options and starts a process per GPU, unless torchrun did."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path(), help="folder for kernels.csv and collectives.csv")
    parser.add_argument("--repeats", type=int, default=20, help="rounds over all shapes")
    parser.add_argument("--dtypes", nargs="+", default=["bf16"], choices=sorted(DTYPES))
    parser.add_argument("--processes", type=int, default=max(torch.cuda.device_count(), 1), help="without torchrun")
    parser.add_argument("--gpu", default="", help="name of the GPU, where the driver's is not the one you want")
    parser.add_argument("--small", action="store_true", help="tiny shapes, to try it out")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if "RANK" in os.environ:
        measure(int(os.environ["LOCAL_RANK"]), options, int(os.environ["LOCAL_WORLD_SIZE"]), "")
        return
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(measure, (options, options.processes, str(Path(folder) / "meeting")), options.processes)


if __name__ == "__main__":
    main()
