# pyright: reportMissingImports=false
"""Train a small transformer with dp x pp processes on this machine and record every process with the PyTorch profiler.

python experiments/local_cluster/train.py --out out/one_run [--dp 2 --pp 2] [--steps 60] [--uneven] [--slow-rank 3]

Needs PyTorch (2.13 was used); nothing of prism-jax. Writes <out>/rank<r>.json.gz.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from job import Job

UNEVEN_SIGMA = 0.3
ENVIRONMENT = {
    # Every tensor beyond 64 KiB is mapped by itself (glibc). In the common heap the events of the profiler settle between the
    # tensors, so that it grows by megabytes per micro-batch, and first touches made one backward in two twice as long.
    "MALLOC_MMAP_THRESHOLD_": str(2**16),
    "KINETO_LOG_LEVEL": "99",  # no messages of the profiler's library
}


def train(job: Job, out: Path, cores: list[int], kernels: bool = False) -> float:
    """Run `job`, write its traces to `out`, return the seconds it took.

    Args:
        cores: process r is bound to core `cores[r % len(cores)]`; empty: the operating system chooses.
        kernels: whether the traces keep single operators with their shapes.
    """
    from torch.multiprocessing.spawn import spawn
    from worker import run_rank

    out.mkdir(parents=True, exist_ok=True)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (job, str(Path(folder) / "meeting"), out, cores, kernels)
        spawn(run_rank, arguments, nprocs=job.n_rank)
    return time.monotonic() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dp", type=int, default=2)
    parser.add_argument("--pp", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=6, dest="n_micro_batch")
    parser.add_argument("--steps", type=int, default=60, dest="n_step")
    parser.add_argument("--warmup", type=int, default=5, dest="n_warmup", help="steps before the recorded ones")
    parser.add_argument(
        "--tokens", type=int, default=128, dest="n_token", help="mean sequence length: how long a step is"
    )
    parser.add_argument(
        "--uneven",
        action="store_const",
        const=UNEVEN_SIGMA,
        default=0.0,
        dest="sigma",
        help="log-normal sequence lengths",
    )
    parser.add_argument("--slow-rank", type=int, default=-1, help="process that does extra work")
    parser.add_argument("--slow-factor", type=float, default=1.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cores", type=int, nargs="*", default=[], help="bind process r to the r-th of these, in turn")
    parser.add_argument("--kernels", action="store_true", help="keep single operators with their shapes")
    settings = vars(parser.parse_args())
    out, cores = settings.pop("out"), settings.pop("cores")
    kernels = settings.pop("kernels")
    try:
        job = Job(**settings)
    except ValueError as error:
        parser.error(str(error))
    print(f"{job.n_rank} processes, {job.n_step} steps recorded in {train(job, out, cores, kernels):.0f} s: {out}")


if __name__ == "__main__":
    main()
