"""CnnSpec: a convolutional network that is trained data parallel, as a workload of blocks counted in samples.

It is one of `ARCHITECTURES`, at a size of image and a number of classes of one's own; job files name each by its own name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from ...core.bounds import check_bounds
from ...core.errors import Problem, SpecError
from ...plan.fields import QUANTISED
from ...plan.plan import ParallelPlan
from ..base.workload import BlockRun, Split, WorkloadDefaults, uncut
from .architectures import ARCHITECTURES, SHIPPED
from .blocks import CnnBlock
from .classic_networks import CnnArchitecture, Writes
from .tape import CnnNetwork

MOST_PIXELS, MOST_CLASSES = 8192, 100_000_000  # rows of an image; classes
_RECOMPUTES = ("none", "full")


@cache
def _written(writes: Writes, image_size: int, n_classes: int) -> CnnNetwork:
    return writes(image_size, n_classes)


@dataclass(frozen=True)
class CnnSpec(WorkloadDefaults):
    """A convolutional network.

    Attributes:
        name: in reports.
        architecture: one of `ARCHITECTURES`.
        image_size: rows and columns of an image; 0: as the architecture is usually trained.
        n_classes: of the classifier; 0: as the network is usually trained.
        channels_last: order of tensors in memory (NHWC), which 16-bit products want; other orders are moved around each of them.
        source: where it comes from.

    Raises:
        SpecError: no such architecture, or images that it cannot take.
    """

    name: str
    architecture: str
    image_size: int = 0
    n_classes: int = 0
    channels_last: bool = True
    source: str = ""

    # What convolutional networks run where nothing is said: batch norm, sum and activation as kernels of their own.
    sure_software: ClassVar[dict[str, str]] = {"norm": "eager"}

    def __post_init__(self) -> None:
        check_bounds(SpecError, f"model {self.name}", MOST_PIXELS, image_size=self.image_size)
        check_bounds(SpecError, f"model {self.name}", MOST_CLASSES, n_classes=self.n_classes)
        if self.architecture not in ARCHITECTURES:
            try:
                ARCHITECTURES.named(self.architecture)
            except SpecError as error:
                raise SpecError.of(Problem("architecture", str(error)), f"model {self.name}") from None
        try:
            _ = self.network if self.image_size else None  # at its usual size an architecture is known to work
        except SpecError as error:
            raise SpecError.of(Problem("image_size", str(error)), f"model {self.name}") from None

    @property
    def _base(self) -> CnnArchitecture:
        return ARCHITECTURES.named(self.architecture)

    @property
    def network(self) -> CnnNetwork:
        """Layers of the network."""
        base = self._base
        return _written(base.writes, self.image_size or base.image_size, self.n_classes or base.n_classes)

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        """Blocks of the network, in order."""
        return tuple(BlockRun(one.name, one.count, one.place) for one in self.network.segments)

    def block(self, kind: str, plan: ParallelPlan) -> CnnBlock:
        """Returns one block under a plan."""
        segment = next(one for one in self.network.segments if one.name == kind)
        return CnnBlock(segment, plan, self.channels_last)

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        """The largest that one block of the body hands on: later ones hand on less."""
        handed = (one.outputs.elements for one in self.network.segments if one.place != "last")
        return plan.element_bytes * plan.micro_batch * max(handed, default=0)

    def n_params(self) -> int:
        """Returns the exact number of all parameters."""
        return self.network.n_params

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        """Returns the FLOPs of products alone, as they are usually counted; the gradient of the image is not computed."""
        again = 0.0
        if recomputed and plan.recompute == "full":
            body = tuple(one for one in self.network.segments if one.place == "body")
            again = CnnNetwork(body).forward_flops
        return plan.global_batch * (self.network.train_flops + again)

    def deeper(self, n: int) -> CnnSpec:
        """Refuses: there is no deeper network of the same name.

        Raises:
            SpecError: always.
        """
        raise SpecError(f"{self.name} has no variant with {n} more blocks")

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        """Copies of the whole network, or stages of it."""
        return uncut("columns that can be cut")

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        """Yields the options that a convolutional network does not have."""
        if plan.recompute not in _RECOMPUTES:
            text = (
                f"{plan.recompute}, but a convolutional network recomputes whole blocks or nothing. Use full or none."
            )
            yield Problem("recompute", text)
        if plan.dtype in QUANTISED:
            yield Problem("dtype", f"{plan.dtype}, but convolutions run in 16 bits or fp32. Use bf16, fp16 or fp32.")
        if plan.seq_len:
            yield Problem("seq_len", f"{plan.seq_len}, but samples of {self.name} are images. Leave it out.")


PRESETS = tuple(CnnSpec(one.name, one.name, source=one.source) for one in SHIPPED)
WORDS = {
    "architecture": "network: one of the convolutional networks of `prism-jax show models`",
    "image_size": "rows and columns of an image; 0: as the network is usually trained",
    "n_classes": "classes of the classifier; 0: as the network is usually trained",
    "channels_last": "order of tensors in memory (NHWC), which 16-bit products want; else they are moved around each product",
}
