"""Steps of four networks on 128 A100 over a slow network, from their steps over a fast one (Echo, arXiv 2412.12487, table 10).

python experiments/echo_networks/run.py

Compute is taken from the row at 1.6 Tb/s: one factor of all compute is chosen so that the step over the fast network is the
measured one. The step at 100 Gb/s follows from the network's own law, buckets of 25 MB (PyTorch's DistributedDataParallel) beside
the backward pass, and what compute pays for communication beside it. Prints the error of each network, and of other assumptions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import root_scalar

from experiments.common import start
from prism_jax.calibration.surrogate import seconds_under
from prism_jax.cost.block_cost import BlockCostModel
from prism_jax.cost.efficiency import NEUTRAL, Efficiency, efficiency
from prism_jax.framework.software import Software
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog as systems
from prism_jax.system.hardware import Cluster
from prism_jax.system.network_kinds import TieredNetwork
from prism_jax.workload import catalog as workloads

N_GPUS, PER_NODE = 128, 8
FAST, SLOW = 1600e9 / 8 / PER_NODE, 100e9 / 8 / PER_NODE  # bytes/s of a GPU's share of its node's network
NODE_LIMIT = 129e9  # bytes/s between nodes of A100: Echo's nccl-tests on Azure ND A100 v4
BUCKET = 25 * 2**20 // 4  # gradients of fp32 in a bucket: `bucket_cap_mb` of DistributedDataParallel
# Compute kernels beside an all-reduce take that much longer, mean over kernels of DDP on 8 A100: arXiv 2412.12487, section 3.
SLOWDOWN = 0.3776
BAR_MEAN, BAR_WORST = 3.8, 6.6  # %, Echo's own


@dataclass(frozen=True)
class Network:
    """A row of the table: measured seconds at 1.6 Tb/s and at 100 Gb/s; batch of a GPU and tokens of a sample are not stated."""

    model: str
    fast_s: float
    slow_s: float
    batch: int
    seq_len: int = 0


# Source: arXiv 2412.12487, table 10. Batches: the power of two whose predicted compute is nearest to the measured one.
NETWORKS = (
    Network("bert-large", 355.8e-3, 454.0e-3, 32, 512),
    Network("gpt2", 167.4e-3, 199.5e-3, 16, 1024),
    Network("vgg-19", 485.6e-3, 529.9e-3, 256),
    Network("resnet-152", 335.7e-3, 351.1e-3, 128),
)


def cluster(bytes_per_s: float) -> Cluster:
    """16 nodes of 8 A100 with that much network per GPU.

    Notes:
        Nodes of A100 move 129 of 200 GB/s between them (nccl-tests), which the library of collectives has as a share of the port.
        It is a limit of the node: ports of 12.5 GB/s are far below it and are used as by any other generation.
    """
    usual = systems.cluster("dgx-a100", N_GPUS)
    inner, outer = usual.tiers
    tiers = (inner, replace(outer, bytes_per_s=bytes_per_s))
    limited = PER_NODE * bytes_per_s > NODE_LIMIT
    return replace(usual, tiers=tiers, network=TieredNetwork(tiers, usual.device.generation if limited else ""))


def plan(network: Network) -> ParallelPlan:
    """Data parallel, in TF32, as PyTorch runs it by itself."""
    return ParallelPlan(
        micro_batch=network.batch,
        global_batch=network.batch * N_GPUS,
        seq_len=network.seq_len,
        dp=N_GPUS,
        dtype="fp32",
        grad_bucket=BUCKET,
        software=Software(norm="eager"),
    )


def step_s(network: Network, bytes_per_s: float, compute: float, eff: Efficiency) -> float:
    """Seconds of a step with compute that takes `compute` times as long as the cost model says."""
    names = ("gemm", "attention", "memory", "optimizer", "host")
    own = replace(eff, correction=replace(NEUTRAL, **dict.fromkeys(names, compute)))
    blocks = BlockCostModel(workloads.workload(network.model), cluster(bytes_per_s), plan(network), own)
    return float(seconds_under([blocks])[0])


def predicted_s(network: Network, eff: Efficiency) -> tuple[float, float]:
    """Seconds at 100 Gb/s, and the factor of compute that the row at 1.6 Tb/s says."""

    def off(compute: float) -> float:
        return step_s(network, FAST, compute, eff) - network.fast_s

    compute = float(root_scalar(off, bracket=(0.05, 20.0), method="brentq", xtol=1e-6).root)
    return step_s(network, SLOW, compute, eff), compute


def errors(slowdown: float, shown: Callable[[str], None]) -> np.ndarray:
    """Errors of the four networks in percent."""
    eff = replace(efficiency("ampere"), overlap_slowdown=slowdown)
    found = []
    for network in NETWORKS:
        seconds, compute = predicted_s(network, eff)
        found.append(100.0 * (seconds / network.slow_s - 1.0))
        measured = f"{1e3 * network.fast_s:.1f} -> {1e3 * network.slow_s:.1f} ms"
        shown(
            f"  {network.model:12} {measured:20} predicted {1e3 * seconds:6.1f} ms {found[-1]:+5.1f} %  (compute x {compute:.2f})"
        )
    return np.array(found)


def main() -> None:
    start()
    for words, slowdown in (
        ("kernels beside an all-reduce as Echo measured them", SLOWDOWN),
        ("the package's own slow-down", efficiency("ampere").overlap_slowdown),
        ("no slow-down", 0.0),
    ):
        print(f"{words}: {slowdown:.3f} s of compute per second of communication beside it")
        own = errors(slowdown, print)
        print(
            f"  mean error {np.abs(own).mean():.1f} %, worst {np.abs(own).max():.1f} % (Echo {BAR_MEAN}, {BAR_WORST})"
        )
    still = np.array([100.0 * (network.fast_s / network.slow_s - 1.0) for network in NETWORKS])
    print(f"as fast as at 1.6 Tb/s: mean error {np.abs(still).mean():.1f} %, worst {np.abs(still).max():.1f} %")


if __name__ == "__main__":
    main()
