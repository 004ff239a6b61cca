"""Trace: the recorded steps of a job in which every replica and every step does the same ops in the same order.

The ops of one replica form a skeleton; start and end times are dense arrays over (op, replica, step), so that
everything after this is arithmetic on arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._typing import Floats, Ints
from .op_table import NONE, JobShape


class TraceOp(NamedTuple):
    """One op of the skeleton.

    Attributes:
        op_type: as recorded, e.g. "forward-compute".
        stage: pipeline stage (or rank, in a job whose ranks are not replicas of each other).
        seq: how many ops of this type the stage has run before it in the step.
        micro_batch, chunk: -1 where it belongs to none; `chunk` counts within the stage.
        stream: name of its stream, "" if the source has none.
        group: name of the group whose members meet in it, "" for none.
    """

    op_type: str
    stage: int
    seq: int
    micro_batch: int
    chunk: int
    stream: str
    group: str

    def __str__(self) -> str:
        return f"{self.op_type} {self.seq} of stage {self.stage}"


@dataclass(frozen=True)
class Trace:
    """Recorded steps, ready for replay.

    Attributes:
        source: the file.
        job: degrees.
        ops: the skeleton, by stage, then by start in the first step of the first replica.
        steps: [step] step numbers as recorded, ascending.
        start_s, end_s: [op, replica, step] seconds from the first start of the step on any worker.
        rank: [replica, stage] global rank of the recorded worker.
        clock_error_s: how far clocks may disagree.
        notes: what people should know about the recording.
    """

    source: str
    job: JobShape
    ops: tuple[TraceOp, ...]
    steps: NDArray[np.int64]
    start_s: Floats
    end_s: Floats
    rank: Ints
    clock_error_s: float
    notes: tuple[str, ...] = ()

    @property
    def n_replica(self) -> int:
        """Recorded data-parallel replicas."""
        return self.start_s.shape[1]

    @property
    def n_stage(self) -> int:
        """Pipeline stages."""
        return 1 + max(op.stage for op in self.ops)

    @property
    def has_micro_batches(self) -> bool:
        """Whether ops say to which micro-batch they belong."""
        return any(op.micro_batch != NONE for op in self.ops)

    @property
    def step_s(self) -> Floats:
        """[step] measured step time: from the first start to the last end of any recorded op."""
        return self.end_s.max(axis=(0, 1)) - self.start_s.min(axis=(0, 1))

    def by_rank(self, values: Floats) -> dict[str, float]:
        """Global rank -> its value of [replica, stage], largest first."""
        order = np.argsort(-values, axis=None, kind="stable")
        return {str(int(self.rank.flat[i])): float(values.flat[i]) for i in order}

    def choose(self, *, steps: NDArray | None = None, replicas: NDArray | None = None) -> Trace:
        """The same trace with some of its steps and replicas (indices)."""
        step = np.arange(len(self.steps)) if steps is None else np.asarray(steps)
        replica = np.arange(self.n_replica) if replicas is None else np.asarray(replicas)
        cells = (slice(None), replica[:, None], step[None, :])
        return replace(
            self, steps=self.steps[step], start_s=self.start_s[cells], end_s=self.end_s[cells], rank=self.rank[replica]
        )
