"""LadderSpec: a model known by a ladder of batch sizes on one device: t(b) = floor + seconds per sample x b.

It can be planned, priced and laid out data parallel like any other model; what it computes and keeps is not known. On another
device a step takes a share of the measured one, by their datasheets. `prism-jax fit ladder` finds floor and rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..core.arrays import Values
from ..core.bounds import check_bounds
from ..core.errors import Problem, SpecError
from ..plan.plan import ParallelPlan
from ..system import catalog
from ..system.hardware import Device
from .base.kernels import Kernel, KernelTable
from .base.workload import DENSE, BlockRun, Parameters, PlainBlock, SavedTensor, Split, WorkloadDefaults, uncut

PRECISIONS = ("bf16", "fp16", "fp32")  # in which two devices are compared, best first


@dataclass(frozen=True)
class LadderSeconds:
    """Seconds on the device that was measured, and by how much another one is slower.

    A step follows the geometric mean of peak and bandwidth: about half of it is products, half passes over memory.

    Attributes:
        measured_s: on that device.
        peaks: FLOP/s of it by precision, as pairs.
        hbm_bytes_per_s: of it.
        dtype: of the plan.
        in_step: its seconds were measured in a step: no loss against kernels alone is added.
    """

    measured_s: float
    peaks: tuple[tuple[str, float], ...]
    hbm_bytes_per_s: float
    dtype: str
    in_step: bool = True

    def seconds(self, device: Device, cache_bytes: float) -> Values:
        """Returns the seconds on a device; its cache does not matter."""
        return self.measured_s * slowness(self.peaks, self.hbm_bytes_per_s, device, self.dtype)


def slowness(peaks: tuple[tuple[str, float], ...], hbm_bytes_per_s: float, device: Device, dtype: str) -> Values:
    """Seconds on `device` over seconds on a device of those speeds.

    Raises:
        SpecError: both have no precision in common.
    """
    known = dict(peaks)
    for name in (dtype, *PRECISIONS):
        if name in known and name in device.peak_flops_per_s:
            peak = known[name] / device.peak_flops_per_s[name]
            return (peak * hbm_bytes_per_s / device.hbm_bytes_per_s) ** 0.5
    raise SpecError(f"{device.name} and the device that was measured have no precision in common")


def same_as(device: Device) -> tuple[tuple[str, float], ...]:
    """Peaks of a device as pairs, which compare and hash."""
    return tuple(sorted((name, float(device.peak_flops_per_s[name])) for name in device.peak_flops_per_s))


MOST_PARAMS = 10**13
MOST_BATCH = 10**9
MOST_S = 1e6
FORWARD = 1.0 / 3.0  # of a step: a product forward, two backward


@dataclass(frozen=True)
class LadderSpec(WorkloadDefaults):
    """A model by its ladder.

    Attributes:
        name: in reports.
        floor_s: seconds of a step that do not depend on the batch.
        s_per_sample: seconds of a sample more.
        measured_on: the device, by name.
        n_parameters: exchanged between ranks and held by checkpoints.
        most_samples: largest batch that was measured: a device takes no more.
        sample_bytes: of activations, that a sample keeps until its backward pass.
        source: where it comes from.

    Raises:
        SpecError: a figure is out of range, or no such device.
    """

    name: str
    floor_s: float
    s_per_sample: float
    measured_on: str
    n_parameters: int
    most_samples: int
    sample_bytes: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        where = f"model {self.name}"
        check_bounds(SpecError, where, MOST_PARAMS, n_parameters=self.n_parameters)
        check_bounds(SpecError, where, MOST_BATCH, most_samples=self.most_samples)
        for field in ("n_parameters", "most_samples"):
            if getattr(self, field) < 1:
                raise SpecError.of(Problem(field, f"{getattr(self, field):,}, but it must be at least 1"), where)
        for field, most in (("floor_s", MOST_S), ("s_per_sample", MOST_S), ("sample_bytes", 1e15)):
            if not 0.0 <= getattr(self, field) <= most:
                text = f"{getattr(self, field):g}, but it must be a number from 0 to {most:g}"
                raise SpecError.of(Problem(field, text), where)
        if not self.floor_s + self.s_per_sample > 0.0:
            raise SpecError.of(Problem("s_per_sample", "0 as floor_s is, but a step takes time"), where)
        try:
            catalog.device(self.measured_on)
        except SpecError as error:
            raise SpecError.of(Problem("measured_on", str(error)), where) from None

    @property
    def updates_in_step(self) -> bool:
        """True: measured steps include the optimizer update."""
        return True

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        """Blocks in order: one, for the whole model."""
        return (BlockRun("model", 1),)

    def block(self, kind: str, plan: ParallelPlan) -> PlainBlock:
        """A third of the step forward, the rest backward."""
        device = catalog.device(self.measured_on)
        step_s = self.floor_s + self.s_per_sample * plan.micro_batch

        def part(phase: str, share: float) -> Kernel:
            law = LadderSeconds(share * step_s, same_as(device), device.hbm_bytes_per_s, plan.dtype)
            return Kernel("measured step", phase, "memory", n_launch=0.0, law=law)

        kernels = KernelTable.of([part("F", FORWARD), part("B", FORWARD), part("W", 1.0 - 2.0 * FORWARD)])
        kept = SavedTensor("activations of the samples", self.sample_bytes * plan.micro_batch)
        return PlainBlock(kernels, (), (Parameters(DENSE, float(self.n_parameters)),), (kept,))

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        """Returns 0: nothing is handed on, because there is one block."""
        return 0.0

    def n_params(self) -> int:
        """Returns the stated number of parameters."""
        return self.n_parameters

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        """Returns an upper bound: FLOPs that the measured device could do in the seconds of the samples."""
        device = catalog.device(self.measured_on)
        return plan.global_batch * self.s_per_sample * max(device.peak_flops_per_s.values())

    def deeper(self, n: int) -> LadderSpec:
        """Refuses: there is no deeper model.

        Raises:
            SpecError: always.
        """
        raise SpecError(f"{self.name} is known by its ladder alone: it has no variant with {n} more blocks")

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        """Copies of the whole model alone."""
        return uncut("columns")

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        """A batch that nobody measured, and options that mean nothing to it."""
        if plan.micro_batch > self.most_samples:
            text = (
                f"{plan.micro_batch:,}, but the largest batch of the ladder is {self.most_samples:,}. Use at most that."
            )
            yield Problem("micro_batch", text)
        if plan.recompute != "none":
            yield Problem("recompute", f"{plan.recompute}, but a ladder does not record recomputation. Use none.")
        if plan.seq_len:
            yield Problem("seq_len", f"{plan.seq_len}, but samples of {self.name} have no length. Leave it out.")


WORDS = {
    "floor_s": "seconds of a step that do not depend on the batch (`prism-jax fit ladder`)",
    "s_per_sample": "seconds of a sample more",
    "measured_on": "device on which the ladder was measured; others follow their datasheets",
    "n_parameters": "parameters, which ranks exchange and checkpoints hold",
    "most_samples": "largest batch that was measured: a device takes no more",
    "sample_bytes": "bytes of activations that a sample keeps; 0: not known",
}
