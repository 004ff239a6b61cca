"""StepLog: measured step times without their ops, as training logs hold them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..._typing import Floats, Ints
from ...errors import DataError
from .op_table import MAX_SECONDS


@dataclass(frozen=True)
class StepLog:
    """Step times in the order of the log; all arrays have one value per logged entry.

    Attributes:
        source: the file.
        name: what the run is called.
        step: step number of the entry, of its last step where it covers several.
        step_s: seconds per step, mean over the `n_steps` of the entry.
        n_steps: how many steps the time is a mean of; 1 where a single step was timed.
        notes: what people should know about the log.
        framework: that wrote it; empty where that is not known.

    Raises:
        DataError: no entry, or a time or a count that is not positive and finite; names the entry.
    """

    source: str
    name: str
    step: NDArray[np.int64]
    step_s: Floats
    n_steps: Ints
    notes: tuple[str, ...] = ()
    framework: str = ""

    def __post_init__(self) -> None:
        if not len(self.step) == len(self.step_s) == len(self.n_steps):
            raise DataError(f"{self.source}: the columns of a step log differ in length")
        if len(self.step) == 0:
            raise DataError(f"{self.source}: no step times")
        with np.errstate(invalid="ignore"):
            good = (self.step_s > 0) & (self.step_s <= MAX_SECONDS) & (self.n_steps > 0)  # NaN is not good
        if not good.all():
            entry = int(np.flatnonzero(~good)[0])
            raise DataError(
                f"{self.source}: entry {entry + 1}, step {self.step[entry]}: {self.step_s[entry]} s over "
                f"{self.n_steps[entry]} steps, but both must be more than 0 and the time at most {MAX_SECONDS:g} s"
            )

    @property
    def steps(self) -> NDArray[np.int64]:
        """Step numbers, under the name that a trace gives them."""
        return self.step

    def __len__(self) -> int:
        return len(self.step)

    def choose(self, entries: NDArray) -> StepLog:
        """The same log with some of its entries (indices)."""
        return replace(self, step=self.step[entries], step_s=self.step_s[entries], n_steps=self.n_steps[entries])
