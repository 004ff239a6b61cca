# pyright: reportMissingImports=false
"""Records the profiles in this folder: two gloo ranks of a small data-parallel job. Needs PyTorch; recorded with 2.13.

python tests/data/kineto_gloo/record.py
"""

import gzip
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile, schedule

N_RANK, N_STEP = 2, 6


def main(rank: int) -> None:
    """One rank: record steps 2 to 5."""
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
    dist.init_process_group("gloo", rank=rank, world_size=N_RANK)
    layers = torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def save(recorded: profile) -> None:
        name = Path(f"rank{rank}.json")  # relative: the file holds the name it was written to
        recorded.export_chrome_trace(str(name))
        Path(f"{name}.gz").write_bytes(gzip.compress(name.read_bytes(), mtime=0))
        name.unlink()

    plan = schedule(wait=1, warmup=1, active=N_STEP - 2)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=save) as recorder:
        for _ in range(N_STEP):
            model(torch.randn(16, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            dist.barrier()
            recorder.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.chdir(Path(__file__).parent)
    mp.spawn(main, nprocs=N_RANK)
