"""Defines laws that fits speak of: seconds of a checkpoint, of the start of a machine, and of a step against the batch.

A save takes seconds by its bytes, on the storage that was measured; a start-up goes from asking for a machine until it runs, in
parts that follow each other; a ladder gives the step on one instance, for models that nobody described.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Floats
from ..core.content import ByContent
from ..core.errors import Problem, SpecError
from ..horizon.checkpoint import Checkpoint
from ..workload.ladder import LadderSpec


def _check_draws(law: object, names: Sequence[str], owner: str) -> None:
    """Refuses arrays of a law that are no draws [draw] of numbers of at least 0, as many of each as of the first."""
    first = getattr(law, names[0])
    for name in names:
        value = getattr(law, name)
        if value.shape != first.shape or value.ndim != 1 or not len(value):
            raise SpecError.of(Problem(name, f"shape {value.shape}, but it must be that of {names[0]}, [draw]"), owner)
        if not (np.isfinite(value) & (value >= 0.0)).all():
            raise SpecError.of(Problem(name, "holds values that are no number of at least 0"), owner)


def _check_above_0(name: str, value: float, owner: str) -> None:
    if not 0.0 < value < np.inf:
        raise SpecError.of(Problem(name, f"{value:g}, but it must be above 0 and finite"), owner)


@dataclass(frozen=True, eq=False)
class SaveLaw(ByContent):
    """t = fixed + bytes x seconds per byte, in draws of its uncertainty, [draw].

    Attributes:
        fixed_s: seconds of a checkpoint of any size.
        s_per_byte: of the stream.
        most_bytes: largest checkpoint that was measured.
        source: description of the measurements.

    Raises:
        SpecError: arrays differ in length or hold what is no number of at least 0.
    """

    fixed_s: Floats
    s_per_byte: Floats
    most_bytes: float
    source: str = ""

    def __post_init__(self) -> None:
        _check_draws(self, ("fixed_s", "s_per_byte"), "saves")

    def seconds(self, n_bytes: float) -> Floats:
        """Returns the seconds to write a checkpoint, [draw].

        Raises:
            SpecError: no bytes.
        """
        _check_above_0("n_bytes", n_bytes, "saves")
        return self.fixed_s + self.s_per_byte * n_bytes

    def checkpoint(self, n_bytes: float) -> Checkpoint:
        """Written and loaded in the median time, by one writer; training waits for it."""
        seconds = float(np.median(self.seconds(n_bytes)))
        return Checkpoint(seconds, load_s=seconds, source=f"{n_bytes / 1e9:.3g} GB, {self.source}")


PARTS = ("provisioning", "staging", "booting")


@dataclass(frozen=True, eq=False)
class StartUpLaw(ByContent):
    """Drawn seconds of single starts: uncertainty of a region, and variation between starts, [draw, part].

    Attributes:
        part_s: of `PARTS`.
        source: description of the measurements.

    Raises:
        SpecError: it is no table of positive seconds.
    """

    part_s: Floats
    source: str = ""

    def __post_init__(self) -> None:
        if self.part_s.ndim != 2 or self.part_s.shape[1] != len(PARTS) or not len(self.part_s):
            raise SpecError.of(
                Problem("part_s", f"shape {self.part_s.shape}, but it must be [draw, {len(PARTS)}]"), "start-up"
            )
        if not (np.isfinite(self.part_s) & (self.part_s > 0.0)).all():
            raise SpecError.of(Problem("part_s", "holds values that are no positive number of seconds"), "start-up")

    @property
    def seconds(self) -> Floats:
        """Seconds of a whole start, [draw]."""
        return self.part_s.sum(axis=1)

    def quantile(self, q: float) -> float:
        """Returns a quantile of the seconds of a single start."""
        return float(np.quantile(self.seconds, q))

    def last_of(self, n_nodes: int, rng: np.random.Generator, n_worlds: int = 2000) -> Floats:
        """Seconds until the last of `n_nodes` machines that were asked for together runs, [world].

        Raises:
            SpecError: no node.
        """
        if n_nodes < 1:
            raise SpecError.of(Problem("n_nodes", f"{n_nodes}, but there must be at least 1"), "start-up")
        seconds = np.sort(self.seconds)
        largest = rng.random(n_worlds) ** (1.0 / n_nodes)
        rank = np.ceil(len(seconds) * largest).astype(int) - 1
        return seconds[np.clip(rank, 0, len(seconds) - 1)]


@dataclass(frozen=True, eq=False)
class LadderLaw(ByContent):
    """t(b) = floor + seconds per sample x b, in draws of its uncertainty, [draw].

    Attributes:
        floor_s: seconds that do not depend on the batch: launches, data, the optimizer.
        s_per_sample: of a sample more.
        noise: scale of the logarithm of a single step.
        batches: smallest and largest that was measured.
        source: description of the measurements.

    Raises:
        SpecError: arrays differ in length or hold what is no positive number.
    """

    floor_s: Floats
    s_per_sample: Floats
    noise: Floats
    batches: tuple[float, float]
    source: str = ""

    def __post_init__(self) -> None:
        _check_draws(self, ("floor_s", "s_per_sample", "noise"), "ladder")

    def seconds(self, batch: float) -> Floats:
        """Seconds of a step of `batch` samples on one instance, [draw].

        Raises:
            SpecError: the batch is not positive.
        """
        _check_above_0("batch", batch, "ladder")
        return self.floor_s + self.s_per_sample * batch

    def model(self, name: str, measured_on: str, n_parameters: int) -> LadderSpec:
        """The model of which this is all that is known, for jobs of any kind.

        Args:
            name: in reports. measured_on: device of the ladder. n_parameters: that ranks exchange and checkpoints hold.

        Raises:
            SpecError: no such device, or no parameters.
        """
        floor_s, s_per_sample = float(np.median(self.floor_s)), float(np.median(self.s_per_sample))
        most = int(self.batches[1])
        return LadderSpec(name, floor_s, s_per_sample, measured_on, n_parameters, most, source=self.source)

    def interval(self, batch: float) -> tuple[float, float, float]:
        """Seconds of a step: 5%, median and 95% of the uncertain mean step."""
        low, middle, high = np.quantile(self.seconds(batch), [0.05, 0.5, 0.95])
        return float(low), float(middle), float(high)

    def extrapolates(self, batch: float) -> bool:
        """Whether a batch lies outside of the measured range."""
        return not self.batches[0] <= batch <= self.batches[1]
