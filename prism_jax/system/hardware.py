"""Devices and clusters as plain numbers in SI units, and how well a step uses them: MFU, HFU, TFLOP/s and tokens/s per GPU.

A cluster is a homogeneous set of devices under a stack of tiers, innermost first, or joined by a network of another kind.
Rates, sizes in bytes, latencies and powers may be JAX arrays or tracers, so that costs can be differentiated in them; checks
of values leave those out. Counts and names are always plain.

Model FLOPs count the mathematics once (6 per parameter and token, plus attention); hardware FLOPs also what is recomputed
(Korthikanti et al., arXiv 2205.05198, section 6; Chowdhery et al., arXiv 2204.02311, appendix B).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..core.arrays import is_traced
from ..core.bounds import MOST_DEVICES, MOST_LIKENESS, MOST_WIDTH, check_bounds
from ..core.content import ByContent
from ..core.errors import SpecError
from .network import Network, Tier as Tier, check_positive
from .network_kinds import MeasuredCollectives, MeasuredNetwork, TieredNetwork

RATE_OF = {"mxfp8": "fp8", "nvfp4": "fp4", "mxfp4": "fp4"}
"""Formats with block scales, and the rate of `Device.peak_flops_per_s` that products in them run at."""


@dataclass(frozen=True, eq=False)
class Device(ByContent):
    """One accelerator: dense peak rates per dtype, memory, power.

    Attributes:
        like: the preset that it resembles, whose deviations in the calibration it shares; empty if it is none's variant.
        likeness_sd: resulting uncertainty, a standard deviation of the logarithm of the step time; see `system/likeness.py`.
    """

    name: str
    peak_flops_per_s: Mapping[str, float]  # dtype -> dense peak, keys among fp32 tf32 fp16 bf16 fp8 fp4
    hbm_bytes: float
    hbm_bytes_per_s: float
    power_watts: float
    n_sm: int  # streaming multiprocessors or compute units; sets the wave size of a GEMM
    source: str
    generation: str = ""  # key of the efficiency table in cost/presets: volta, ampere, hopper, blackwell, cdna3
    like: str = ""
    likeness_sd: float = 0.0

    def __post_init__(self) -> None:
        owner = f"device {self.name}"
        if not self.peak_flops_per_s:
            text = "is empty. Give the dense peak of at least one dtype, such as bf16."
            raise SpecError(f"{owner}: peak_flops_per_s {text}", ("peak_flops_per_s",), text)
        for dtype, peak in self.peak_flops_per_s.items():
            if not is_traced(peak) and not 0 < peak < float("inf"):
                text = f"{peak}, but it must be finite and greater than 0"
                raise SpecError(f"{owner}: peak of {dtype} = {text}", ("peak_flops_per_s", dtype), text)
        check_positive(owner, hbm_bytes=self.hbm_bytes, hbm_bytes_per_s=self.hbm_bytes_per_s)
        check_positive(owner, power_watts=self.power_watts, n_sm=self.n_sm)
        check_bounds(SpecError, owner, MOST_WIDTH, n_sm=self.n_sm)
        if not 0.0 <= self.likeness_sd <= MOST_LIKENESS:
            text = f"{self.likeness_sd}, but it must be between 0 and {MOST_LIKENESS:g}"
            raise SpecError(f"{owner}: likeness_sd = {text}", ("likeness_sd",), text)

    def peak(self, dtype: str) -> float:
        """Dense peak FLOP/s for `dtype`.

        Raises:
            SpecError: the device has no such dtype.
        """
        rate = RATE_OF.get(dtype, dtype)
        if rate not in self.peak_flops_per_s:
            known = ", ".join(sorted(self.peak_flops_per_s))
            of = f", which {dtype} runs at" if rate != dtype else ""
            raise SpecError(f"device {self.name} has no {rate} peak{of}; it has {known}")
        return self.peak_flops_per_s[rate]

    def product_dtype(self, dtype: str) -> str:
        """Returns the format in which matrix products of a plan in `dtype` run: TF32 for fp32 where there is one."""
        return "tf32" if dtype == "fp32" and "tf32" in self.peak_flops_per_s else dtype


@dataclass(frozen=True, eq=False)
class Cluster(ByContent):
    """`n_devices` equal devices joined by a network.

    Attributes:
        tiers: nested domains, innermost first; the last spans all devices. Not used where there is a `network`.
        node_size: devices that share a host: the unit of the persistent node effect.
        network: None: the tiers, under NCCL.
        host_bytes: main memory of a node; None: not known.
        measured: collectives that were measured, over what the network's figures say; None: nothing was.
    """

    name: str
    device: Device
    tiers: tuple[Tier, ...]
    n_devices: int
    node_size: int = 8
    source: str = ""
    notes: Mapping[str, str] = field(default_factory=dict, compare=False)
    network: Network | None = None
    measured: MeasuredCollectives | None = None
    host_bytes: float | None = None

    def __post_init__(self) -> None:
        check_positive(f"cluster {self.name}", n_devices=self.n_devices, node_size=self.node_size)
        check_bounds(
            SpecError, f"cluster {self.name}", MOST_DEVICES, n_devices=self.n_devices, node_size=self.node_size
        )
        if self.network is None:
            self._check_tiers()
        elif self.network.n_devices < self.n_devices:
            joined = f"its network joins {self.network.n_devices} devices"
            raise SpecError(f"cluster {self.name}: {joined}, fewer than n_devices {self.n_devices}")

    def _check_tiers(self) -> None:
        if not self.tiers:
            raise SpecError(f"cluster {self.name}: at least one tier is needed")
        sizes = [tier.n_devices for tier in self.tiers]
        if sizes != sorted(sizes):
            raise SpecError(f"cluster {self.name}: tiers must grow from the inside out, got spans {sizes}")
        if sizes[-1] < self.n_devices:
            raise SpecError(
                f"cluster {self.name}: the outermost tier spans {sizes[-1]} devices, fewer than n_devices {self.n_devices}"
            )

    @property
    def fabric(self) -> Network:
        """Network that joins the devices: the cluster's own, or its tiers under NCCL; as measured where that was."""
        by_figures = TieredNetwork(self.tiers, self.device.generation) if self.network is None else self.network
        return by_figures if self.measured is None else MeasuredNetwork(by_figures, self.measured)

    def of_size(self, n_devices: int) -> Cluster:
        """Returns the same cluster with another number of devices; the network spans them, if need be by growing.

        Raises:
            SpecError: the network cannot have that size.
        """
        if self.network is not None:
            return replace(self, n_devices=n_devices, network=self.network.of_size(n_devices))
        *inner, outer = self.tiers
        outer = replace(outer, n_devices=max(outer.n_devices, n_devices))
        return replace(self, n_devices=n_devices, tiers=(*inner, outer))


def flops_per_s_per_gpu(flops: float, step_s: float, n_devices: int) -> float:
    """FLOP/s of one device when `n_devices` do `flops` in `step_s` seconds."""
    return flops / step_s / n_devices


def tflops_per_gpu(model_flops: float, step_s: float, n_devices: int) -> float:
    """10^12 model FLOP/s per device, the unit of the Megatron and Llama papers."""
    return flops_per_s_per_gpu(model_flops, step_s, n_devices) / 1e12


def tokens_per_s_per_gpu(n_tokens: int, step_s: float, n_devices: int) -> float:
    """Tokens per second and device of a step of `n_tokens`."""
    return n_tokens / step_s / n_devices


def mfu(model_flops: float, step_s: float, cluster: Cluster, n_devices: int, dtype: str) -> float:
    """Model FLOP/s over the dense peak of the device in `dtype` (TF32 for fp32, where products run in it), 0-1.

    Raises:
        SpecError: the device has no such dtype.
    """
    return flops_per_s_per_gpu(model_flops, step_s, n_devices) / cluster.device.peak(
        cluster.device.product_dtype(dtype)
    )


def hfu(hardware_flops: float, step_s: float, cluster: Cluster, n_devices: int, dtype: str) -> float:
    """Returns the utilisation by the FLOPs that the hardware runs, recomputation included; otherwise as `mfu`."""
    return mfu(hardware_flops, step_s, cluster, n_devices, dtype)
