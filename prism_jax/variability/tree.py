"""Variability: how much every kind of work varies, over GPUs and nodes, over steps, and from call to call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .families import CONSTANT, Family

COMPUTE = ("gemm", "attention", "memory")
COMMUNICATION = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p")
KERNEL_CLASSES = COMPUTE + COMMUNICATION


@dataclass(frozen=True)
class ClassVariability:
    """Slowdown factors (mean one) of one kernel class.

    Attributes:
        gpu: persistent, one score per GPU (compute classes); a slow chip is slow in every class, by this class's amount.
        node: persistent, one score per node; for communication classes the node's links.
        regime: one score per step, shared by every rank and every communication class.
        call: residual, one draw per op of a pipeline stage and GPU (compute) or group (communication).
    """

    gpu: Family = CONSTANT
    node: Family = CONSTANT
    regime: Family = CONSTANT
    call: Family = CONSTANT


@dataclass(frozen=True)
class Stall:
    """A rare one-sided delay of a whole step, as a fraction of the step.

    Attributes:
        step_prob: probability per step whatever the size of the job.
        gpu_prob: probability per GPU and step, on top.
        mean_fraction: mean of the (exponential) extra time over the step time.
    """

    step_prob: float = 0.0
    gpu_prob: float = 0.0
    mean_fraction: float = 0.0

    def prob(self, n_devices: int) -> float:
        """Probability that a step of `n_devices` devices stalls."""
        return 1.0 - (1.0 - self.step_prob) * (1.0 - self.gpu_prob) ** n_devices


@dataclass(frozen=True)
class Variability:
    """The whole tree.

    Attributes:
        classes: kernel class -> its factors; a class that is absent does not vary.
        step: factor of the whole step, one draw per step.
        step_ar1: lag-1 autocorrelation of the step factor's normal score; matters over many steps only.
        stalls: independent kinds of rare stalls.
    """

    name: str = "none"
    classes: Mapping[str, ClassVariability] = field(default_factory=dict)
    step: Family = CONSTANT
    step_ar1: float = 0.0
    stalls: tuple[Stall, ...] = ()
    source: str = ""

    def of(self, kernel_class: str) -> ClassVariability:
        """Factors of `kernel_class`; all constant where the tree says nothing."""
        return self.classes.get(kernel_class, ClassVariability())
