"""State that a plan keeps on the host, in bytes per node, and the time it takes: an update by its processors, copies over its
link.

An optimizer on the host updates its share of the parameters there (ZeRO-Offload, arXiv 2101.06840): gradients go down, the host
passes once over gradients, parameters and moments, parameters come up. DeepSpeed sends gradients as the backward pass makes
them; Megatron's hybrid optimizer and torchao's copy them after it. The pass moves

    bytes = gradient + 2 (updated parameter + moments), 28 for Adam in fp32

at the bandwidth of as many threads as a process has, all processes of a node together at most at that of its memory:

- one thread of a server processor moves about 20 GB/s. `torchrun` and Ray give a process one, unless OMP_NUM_THREADS says more:
  a step of Qwen3-0.6B with Megatron's hybrid optimizer took .93 s more on one H100 (NVIDIA-NeMo/RL 3628; this law: .91);
- all of them: 45% of what its memory modules could. ZeRO-Offload, table 4: 2.57 s for 10^10 parameters on the two sockets of a
  DGX-2 (12 channels of DDR4-2666, 256 GB/s).

Parameters on the host are copied to the device before they are gathered for a pass, gradients on the host leave it after the
backward pass of a layer, activations leave in the forward and come back in the backward pass; all of these run during compute.
Paged states lie on the device while there is room for them, else all of them come and go at every update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ..core.arrays import Floats
from ..framework.base import MEGATRON, MemoryOptions
from ..plan.fields import gradients_on_host, optimizer_on_host
from ..plan.optimizers import OPTIMIZERS, has_master, main_gradient_bytes, moments_bytes, updated_bytes
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base.workload import Comm, Workload, total_bytes
from .memory import activation_factors, held_activations, held_weights, parameter_bytes, state_factors
from .partition import group_splits, optimizer_shares, trained_groups

# PyTorch's allocator of pinned memory rounds every block up to a power of two (`CachingHostAllocator`): by 1 / ln 2 - 1 in the
# mean of sizes that are spread evenly over an octave.
_ROUNDING = 0.44
THREAD_BYTES_PER_S = 20e9
_OF_NODE = 0.45  # of the bandwidth of a node's memory modules that an update reaches
# Two sockets: 6 channels of DDR4-2666 each with V100, 8 of DDR4-3200, of DDR5-4800 with H100, 12 of DDR5-6000 with B200.
# Grace has memory of its own for each GPU of a GH200, or two of a GB200: LPDDR5X, 500 GB/s.
NODE_BYTES_PER_S = 410e9
GRACE_BYTES_PER_S = {"gh200": 500e9, "gb200": 250e9, "gb300": 250e9}  # per GPU
NODE_OF_GENERATION = {
    "volta": 256e9,
    "turing": 256e9,
    "hopper": 614e9,
    "blackwell": 1150e9,
    "cdna3": 614e9,
    "cdna4": 1150e9,
}
# PCIe x16 of the generation's hosts, one direction: 3.0 for V100 and T4, 4.0 unless said, 5.0 from Hopper on; copies of pinned
# memory reach 85% of it. NVLink-C2C: 450 GB/s, which two GPUs of a GB200 share.
_OF_LINK = 0.85
LINK_BYTES_PER_S = 31.5e9
LINK_OF_GENERATION = {"volta": 15.75e9, "turing": 15.75e9, "hopper": 63e9, "blackwell": 63e9, "blackwell-rtx": 63e9}
LINK_OF_DEVICE = {"gh200": 450e9, "gb200": 225e9, "gb300": 225e9}
PAGED_ROOM = 0.95  # of a device's memory that its tensors may fill before pages leave it


def _of_chip(table: Mapping[str, float], cluster: Cluster) -> float | None:
    """Returns the table's value for devices that share a module with a processor; None: the device is none of them."""
    return next((own for name, own in table.items() if cluster.device.name.startswith(name)), None)


def link_bytes_per_s(cluster: Cluster) -> float:
    """Bytes per second between a device and its host, one direction."""
    chip = _of_chip(LINK_OF_DEVICE, cluster)
    return _OF_LINK * (chip or LINK_OF_GENERATION.get(cluster.device.generation, LINK_BYTES_PER_S))


def devices_of_node(cluster: Cluster) -> int:
    """Devices that share a host."""
    return min(cluster.node_size, cluster.n_devices)


def process_bytes_per_s(cluster: Cluster, n_threads: int) -> float:
    """Bandwidth of main memory for one of the processes of a node, all of which update at once.

    Args:
        n_threads: of a process; 0: the processes share all cores.
    """
    of_node = NODE_OF_GENERATION.get(cluster.device.generation, NODE_BYTES_PER_S) / devices_of_node(cluster)
    whole = _OF_NODE * (_of_chip(GRACE_BYTES_PER_S, cluster) or of_node)
    return min(n_threads * THREAD_BYTES_PER_S, whole) if n_threads else whole


def host_update_s(cluster: Cluster, plan: ParallelPlan, n_parameters: float) -> float:
    """Seconds from the last gradient to the last updated parameter on the device.

    Args:
        n_parameters: updated by the host for one device.
    """
    passed = main_gradient_bytes(plan) + 2.0 * (updated_bytes(plan) + moments_bytes(plan))
    down = 0.0 if gradients_on_host(plan) else main_gradient_bytes(plan)
    up = 0.0 if plan.offload_parameters else plan.element_bytes
    copies = (down + up) / link_bytes_per_s(cluster)
    return n_parameters * (passed / process_bytes_per_s(cluster, plan.host_threads or 0) + copies)


def paging_s(cluster: Cluster, plan: ParallelPlan, n_parameters: float) -> float:
    """Seconds in which paged states of `n_parameters` come and go at an update; 0 where the device has room for them.

    Notes:
        Pages that were used longest ago leave first, so that an update which needs one page too many meets none of its pages.
        PagedAdamW of an 8B model with 64 GB of states on 80 GB is prohibitively slow, in 8 bits it costs nothing (torchtune 990).
    """
    if not OPTIMIZERS[plan.optimizer].is_paged or optimizer_on_host(plan):
        return 0.0
    paged = moments_bytes(plan) * n_parameters
    gradient = 0.0 if plan.optimizer_in_backward else plan.grad_sum_bytes
    master = updated_bytes(plan) if has_master(plan) else 0.0
    resident = (plan.element_bytes + gradient + master) * n_parameters + paged
    if resident <= PAGED_ROOM * float(cluster.device.hbm_bytes):
        return 0.0
    return 2.0 * paged / link_bytes_per_s(cluster)


HOST_COPY = "host_copy"  # kind of a `Comm` between a device and its host


def host_copies(model: Workload, plan: ParallelPlan, kind: str, kept: float, updated: float) -> list[Comm]:
    """Copies of one block's parameters, gradients and activations, per micro-batch.

    Args:
        kind: of the block.
        kept, updated: parameters that this device keeps, and of which it has the gradients.
    """
    beside = "chunk" if plan.overlap.dp else ""

    def copy(phase: str, n_bytes: float) -> Comm:
        return Comm("dp", HOST_COPY, phase, n_bytes, 1, 1, beside)

    comms = []
    if plan.offload_parameters:
        comms += [copy(phase, parameter_bytes(plan) * kept) for phase in "FB"]
    if gradients_on_host(plan):
        comms.append(copy("B", parameter_bytes(plan) * optimizer_on_host(plan) * updated))
    if plan.offload_activations:
        saved = plan.offload_activations * total_bytes(model.block(kind, plan).saved(MEGATRON))
        comms += [copy(phase, saved) for phase in "FB"]
    return [comm for comm in comms if comm.n_bytes]


@dataclass(frozen=True)
class HostMemory:
    """Bytes of one node's main memory that a job's states and activations take.

    Attributes:
        rounding_bytes: by which pinned buffers are larger than what they hold.
        capacity_bytes: of the node; None: not known.
    """

    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    rounding_bytes: float
    capacity_bytes: float | None

    @property
    def total_bytes(self) -> float:
        """Sum of all parts, bytes."""
        states = self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes
        return states + self.activations_bytes + self.rounding_bytes

    @property
    def fits(self) -> bool:
        """Whether the node has as much; true where its memory is not known."""
        return self.capacity_bytes is None or self.total_bytes <= self.capacity_bytes


def keeps_on_host(plan: ParallelPlan) -> bool:
    """Whether anything of a job lies on the host between its uses."""
    moved = optimizer_on_host(plan) or plan.offload_parameters or plan.offload_activations
    return bool(moved) or OPTIMIZERS[plan.optimizer].is_paged


class _AtHome:
    """A plan that keeps everything on the device, and is otherwise as `plan`, of which it reads only what it is asked for."""

    offload_optimizer, offload_activations = 0.0, 0.0
    offload_gradients = offload_parameters = False

    def __init__(self, plan: ParallelPlan) -> None:
        self._plan = plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)


def host_memory(
    model: Workload, cluster: Cluster, plan: ParallelPlan, options: MemoryOptions = MEGATRON
) -> HostMemory | None:
    """Returns the memory that the fullest stage's devices of one node keep on their host; None: nothing.

    Notes:
        16 bytes per parameter with Adam, 18 with the parameters themselves, as DeepSpeed's `estimate_zero3_model_states_mem`
        says without its allowance of 50% for buffers. The host has a copy of what it updates, and gradients as it reads them.
        All but moments is pinned: 33B parameters with 18 bytes each ran out of 600 GB and took 750 to 800 (DeepSpeed 3448),
        here 730.
    """
    share, paged = optimizer_on_host(plan), OPTIMIZERS[plan.optimizer].is_paged
    if not keeps_on_host(plan):
        return None
    at_home, held = cast(ParallelPlan, _AtHome(plan)), held_weights(model, plan)
    whole, own = state_factors(model, at_home, options), state_factors(model, plan, options)
    parameters = held.count @ (whole.parameters - own.parameters)
    updated = held.count @ (trained_groups(model, plan) * optimizer_shares(group_splits(model, plan), plan))
    copied = 0.0 if plan.offload_parameters or (has_master(plan) and plan.sharding == "none") else updated_bytes(plan)
    on_pages = moments_bytes(plan) if paged else 0.0
    states = held.count @ (whole.optimizer - own.optimizer) + (whole.optimizer_rest - own.optimizer_rest) * held.root
    states = states + updated * (on_pages + share * copied)
    gradients = share * main_gradient_bytes(plan) * updated
    fsdp_at_host = plan.offload_parameters and plan.sharding != "none"  # its parameters are what is updated
    pinned = parameters + gradients + (0.0 if fsdp_at_host else share * updated_bytes(plan) * updated)
    activations = _saved_on_host(model, plan, at_home, options)
    rows = np.array([parameters, gradients, states, np.broadcast_to(activations, updated.shape), _ROUNDING * pinned])
    fullest = devices_of_node(cluster) * rows[:, rows.sum(axis=0).argmax()]
    return HostMemory(*fullest.tolist(), capacity_bytes=cluster.host_bytes)


def _saved_on_host(model: Workload, plan: ParallelPlan, at_home: ParallelPlan, options: MemoryOptions) -> Floats:
    """Bytes of activations that wait on the host, [stage]."""
    if not plan.offload_activations:
        return np.zeros(1)
    moved = activation_factors(model, at_home, options).saved - activation_factors(model, plan, options).saved
    return held_activations(model, plan) @ moved
