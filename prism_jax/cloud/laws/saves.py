"""SaveLaw: seconds of a checkpoint by its bytes, on the storage that was measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._core.content import ByContent
from ..._typing import Floats
from ...errors import Problem, SpecError
from ...horizon.checkpoint import Checkpoint


@dataclass(frozen=True, eq=False)
class SaveLaw(ByContent):
    """t = fixed + bytes x seconds per byte, in draws of what is not known, [draw].

    Attributes:
        fixed_s: whatever the size.
        s_per_byte: of the stream.
        most_bytes: largest checkpoint that was measured.
        source: what was measured.

    Raises:
        SpecError: arrays differ in length or hold what is no number of at least 0.
    """

    fixed_s: Floats
    s_per_byte: Floats
    most_bytes: float
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("fixed_s", "s_per_byte"):
            value = getattr(self, name)
            if value.shape != self.fixed_s.shape or value.ndim != 1 or not len(value):
                raise SpecError.of(
                    Problem(name, f"shape {value.shape}, but it must be that of fixed_s, [draw]"), "saves"
                )
            if not (np.isfinite(value) & (value >= 0.0)).all():
                raise SpecError.of(Problem(name, "holds what is no number of at least 0"), "saves")

    def seconds(self, n_bytes: float) -> Floats:
        """Of a checkpoint, [draw].

        Raises:
            SpecError: no bytes.
        """
        if not 0.0 < n_bytes < np.inf:
            raise SpecError.of(Problem("n_bytes", f"{n_bytes:g}, but it must be above 0 and finite"), "saves")
        return self.fixed_s + self.s_per_byte * n_bytes

    def checkpoint(self, n_bytes: float) -> Checkpoint:
        """Written and loaded in the median time, by one writer; training waits for it."""
        seconds = float(np.median(self.seconds(n_bytes)))
        return Checkpoint(seconds, load_s=seconds, source=f"{n_bytes / 1e9:.3g} GB, {self.source}")
