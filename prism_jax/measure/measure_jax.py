"""Measures GEMM, attention, memory and two collectives on every device with JAX, and writes tables for `prism-jax fit`.

    python measure_jax.py                                 # all devices of this machine
    srun python measure_jax.py --distributed              # several hosts, one process each
    prism-jax fit kernels kernels.csv; prism-jax fit fleet kernels.csv; prism-jax fit collectives collectives.csv

Kernels run on all devices at the same time, as in training, in rounds over all shapes; each device is timed by a thread of its
own. Every round is a row with the clock of the device next to it, where nvidia-smi tells it. A time is that of a few launches in
a row, divided by their number. This file needs JAX and nothing else.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

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
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
KERNELS = ("op", "m", "n", "k", "batch", "seq_len", "n_head", "n_kv_head", "head_dim", "causal", "bytes", "dtype", "gpu_name",
           "software", "duration_s", "gpu_uuid", "node", "kernel", "input_size", "run", "time", "clock_mhz")  # fmt: skip
COLLECTIVES = ("op", "message_bytes", "n_gpus", "n_nodes", "gpus_per_node", "gpu", "library", "duration_s", "run", "time",
               "clock_mhz")  # fmt: skip
N_LAUNCH = 5  # in one time
Shape = tuple[str, dict[str, Any], Callable[..., Any], tuple[Any, ...]]  # operation, its sizes, program and its inputs


def seconds(program: Callable[..., Any], inputs: tuple[Any, ...]) -> float:
    """Seconds of one launch among several in a row."""
    import jax

    start_s = time.perf_counter()
    for _ in range(N_LAUNCH):
        last = program(*inputs)
    jax.block_until_ready(last)
    return (time.perf_counter() - start_s) / N_LAUNCH


def clock_mhz(device: Any) -> str:
    """Clock of the multiprocessors; empty where nothing says it."""
    if device.platform != "gpu":
        return ""
    query = [
        "nvidia-smi",
        "-i",
        str(device.local_hardware_id),
        "--query-gpu=clocks.sm",
        "--format=csv,noheader,nounits",
    ]
    try:
        found = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip() if found.stdout.strip().isdecimal() else ""


def kernels(device: Any, dtype: str, programs: dict[str, Any], is_small: bool) -> Iterator[Shape]:
    """Yields the shapes one by one, so that the arrays of one alone are kept."""
    import jax
    import jax.numpy as jnp

    def filled(seed: int, *shape: int) -> Any:
        with jax.default_device(device):
            return jax.random.normal(jax.random.key(seed), shape, dtype)

    for m, n, k in SMALL_GEMMS if is_small else GEMMS:
        yield "gemm", {"m": m, "n": n, "k": k}, programs["gemm"], (filled(0, m, k), filled(1, k, n))
    for batch, length, heads, kv_heads, width in SMALL_ATTENTIONS if is_small else ATTENTIONS:
        sizes = {
            "batch": batch,
            "seq_len": length,
            "n_head": heads,
            "n_kv_head": kv_heads,
            "head_dim": width,
            "causal": True,
        }
        q, k_, v = (filled(seed, batch, length, h, width) for seed, h in enumerate((heads, kv_heads, kv_heads)))
        yield "attention", sizes, programs["attention"], (q, k_, v)
    for n_bytes in SMALL_MEMORIES if is_small else MEMORIES:
        n = n_bytes // 2 // jnp.dtype(dtype).itemsize
        yield "memory", {"bytes": n_bytes}, programs["memory"], (jax.device_put(jnp.zeros(n, dtype), device),)


def measure_kernels(
    device: Any, options: argparse.Namespace, programs: dict[str, Any], meet: threading.Barrier
) -> list[dict[str, Any]]:
    """Rows of the kernels of a device, which starts every round together with the others."""
    import jax

    node = socket.gethostname()
    rows: list[dict[str, Any]] = []
    for run in range(options.repeats):
        meet.wait()
        for dtype in options.dtypes:
            for op, sizes, program, inputs in kernels(device, DTYPES[dtype], programs, options.small):
                jax.block_until_ready(program(*inputs))  # compiles in the first round; inputs are there
                size = "x".join(str(value) for name, value in sizes.items() if name != "causal")
                rows.append({
                    "op": op, **sizes, "dtype": dtype, "gpu_name": options.gpu or device.device_kind, "run": run,
                    "duration_s": seconds(program, inputs), "software": f"jax {jax.__version__}", "node": node,
                    "gpu_uuid": f"{node}-{device.id}", "kernel": f"{op} {dtype}", "input_size": size, "time": time.time(),
                    "clock_mhz": "",
                })  # fmt: skip
        clock = clock_mhz(device)  # right behind the work of the round
        for row in rows:
            row["clock_mhz"] = clock if row["run"] == run else row["clock_mhz"]
    return rows


def measure_collectives(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of all-reduce and all-gather over all devices."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices, n = jax.devices(), jax.device_count()
    mesh = Mesh(devices, ("x",))
    dtype = jnp.dtype(DTYPES[options.dtypes[0]])
    split = NamedSharding(mesh, PartitionSpec("x"))
    mapped = partial(jax.shard_map, mesh=mesh, in_specs=PartitionSpec("x"))
    reduce = jax.jit(mapped(lambda x: jax.lax.psum(x, "x"), out_specs=PartitionSpec()))
    gather = jax.jit(mapped(lambda x: jax.lax.all_gather(x, "x", tiled=True), out_specs=PartitionSpec("x")))
    rows: list[dict[str, Any]] = []
    for run in range(options.repeats):
        clock = clock_mhz(jax.local_devices()[0])
        for n_bytes in SMALL_MESSAGES if options.small else MESSAGES:
            size = max(n_bytes // dtype.itemsize // n, 1) * n  # elements of the message
            for op, program, each in (("all_reduce", reduce, size), ("all_gather", gather, size // n)):
                make = jax.jit(partial(jnp.zeros, each * n, dtype), out_shardings=split)  # `each` on every device
                inputs = (make(),)
                jax.block_until_ready(program(*inputs))
                rows.append({
                    "op": op, "message_bytes": size * dtype.itemsize, "n_gpus": n, "n_nodes": jax.process_count(),
                    "gpus_per_node": n // jax.process_count(), "gpu": options.gpu or devices[0].device_kind, "run": run,
                    "library": f"jax {jax.__version__}", "duration_s": seconds(program, inputs), "time": time.time(),
                    "clock_mhz": clock,
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


def measure(options: argparse.Namespace) -> None:
    """Measures with the devices of this process; every process writes its kernels, the first the collectives."""
    import jax

    if options.distributed:
        jax.distributed.initialize()
    devices = jax.local_devices()
    programs = {
        "gemm": jax.jit(lambda a, b: a @ b),
        "attention": jax.jit(partial(jax.nn.dot_product_attention, is_causal=True)),
        "memory": jax.jit(lambda x: x + 1),
    }
    meet = threading.Barrier(len(devices))
    with ThreadPoolExecutor(len(devices)) as pool:
        found = [pool.submit(measure_kernels, device, options, programs, meet) for device in devices]
        rows = [row for one in found for row in one.result()]
    name = "kernels.csv" if jax.process_count() == 1 else f"kernels_{jax.process_index()}.csv"
    write_table(options.output / name, KERNELS, rows)
    if jax.device_count() > 1:
        rows = measure_collectives(options)
        if jax.process_index() == 0:
            write_table(options.output / "collectives.csv", COLLECTIVES, rows)


def main() -> None:
    """Reads the options and measures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path(), help="folder for kernels.csv and collectives.csv")
    parser.add_argument("--repeats", type=int, default=20, help="rounds over all shapes")
    parser.add_argument("--dtypes", nargs="+", default=["bf16"], choices=sorted(DTYPES))
    parser.add_argument("--distributed", action="store_true", help="one process of several (jax.distributed)")
    parser.add_argument("--gpu", default="", help="name of the GPU, where the driver's is not the one you want")
    parser.add_argument("--cpu-devices", type=int, default=0, help="on the CPU, as that many devices, to try it out")
    parser.add_argument("--small", action="store_true", help="tiny shapes, to try it out")
    options = parser.parse_args()
    if options.cpu_devices:  # before JAX is imported
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={options.cpu_devices}"
        os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags.strip()}
        options.gpu = options.gpu or platform.processor() or "cpu"
    options.output.mkdir(parents=True, exist_ok=True)
    measure(options)


if __name__ == "__main__":
    main()
