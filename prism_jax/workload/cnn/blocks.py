"""One block of a convolutional network on one device, for one micro-batch."""

from __future__ import annotations

from dataclasses import dataclass

from ...framework.memory_options import MemoryOptions
from ...plan.plan import ParallelPlan
from ..base import Comm, Parameters, SavedTensor, total_bytes
from ..kernels import KernelTable
from .layers import Segment
from .op_lists import Batch, layer_kernels

DENSE = "dense"  # the one way in which parameters are sharded


@dataclass(frozen=True)
class CnnBlock:
    """A block of layers.

    Attributes:
        segment: its layers.
        plan: under which it runs.
        channels_last: order of its tensors.
    """

    segment: Segment
    plan: ParallelPlan
    channels_last: bool

    @property
    def knob(self) -> str:
        """None of its own."""
        return ""

    @property
    def _recomputes(self) -> bool:
        return self.plan.recompute == "full" and self.segment.place == "body"

    @property
    def kernels(self) -> KernelTable:
        """Kernels of its layers; forward again in B where it is recomputed."""
        table = KernelTable.of(layer_kernels(self.segment.layers, Batch.of(self.plan, self.channels_last)))
        return table + table.repeated_in_backward() if self._recomputes else table

    @property
    def comms(self) -> tuple[Comm, ...]:
        """None: a network is copied, not cut."""
        return ()

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """All of it."""
        return (Parameters(DENSE, float(sum(layer.n_params for layer in self.segment.layers))),)

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """What autograd keeps; its input alone where it is recomputed."""
        if self._recomputes:
            return (SavedTensor("input", self._bytes(self.segment.layers[0].inputs.elements)),)
        return self._kept()

    def _kept(self) -> tuple[SavedTensor, ...]:
        batch = self.plan.micro_batch
        made = (
            (f"{layer.op} {number}", self._bytes(layer.saved) + batch * layer.saved_bytes)
            for number, layer in enumerate(self.segment.layers)
        )
        return tuple(SavedTensor(name, size) for name, size in made if size)

    def _bytes(self, elements: int) -> float:
        return self.plan.element_bytes * self.plan.micro_batch * elements

    def forward_peak_bytes(self, rules: MemoryOptions) -> float:
        """The largest result, beside what is kept."""
        return self._bytes(max(layer.outputs.elements for layer in self.segment.layers))

    def backward_peak_bytes(self, rules: MemoryOptions) -> float:
        """Gradients at both sides of its largest layer."""
        return self._bytes(max(layer.inputs.elements + layer.outputs.elements for layer in self.segment.layers))

    def recomputed_bytes(self, rules: MemoryOptions) -> float:
        """What one block brings back."""
        return total_bytes(self._kept()) if self._recomputes else 0.0
