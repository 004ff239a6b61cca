"""Defines what every trace reader returns: one row per recorded op and the shape of the job, and Trace, the same as dense arrays.

In a Trace every replica and every step does the same ops in the same order. The ops of one replica form a skeleton; start and end
times are dense arrays over (op, replica, step), so that everything after this is arithmetic on arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats, Ints
from ..core.errors import DataError

NONE = -1  # micro-batch, chunk or group of an op that has none
ANY_SIZE = "*"  # in the place of a size of a kernel's inputs that changes from step to step


@dataclass(frozen=True)
class JobShape:
    """Degrees of the recorded job.

    Attributes:
        name: what the job is called.
        dp, pp, tp: data, pipeline and tensor parallel degrees.
        sp: degree of a sequence-parallel group that shares its gradients (`dsp_size` of the straggler-analysis traces).
        virtual_stages: model chunks per pipeline stage.
    """

    name: str
    dp: int = 1
    pp: int = 1
    tp: int = 1
    sp: int = 1
    virtual_stages: int = 1

    @property
    def world_size(self) -> int:
        """GPUs of the job, recorded or not."""
        return self.dp * self.pp * self.tp * self.sp


@dataclass(frozen=True)
class BusyClass:
    """Time that the kernels of one class keep a device busy, in the whole recording.

    Attributes:
        rank: global.
        kernel_class: gemm, attention, ..., copy, or the kind of communication.
        n: how many there are.
        seconds: their durations, summed.
        in_steps_s: those of kernels that were launched in the recorded steps.
    """

    rank: int
    kernel_class: str
    n: int
    seconds: float
    in_steps_s: float


class OpRow(NamedTuple):
    """One recorded op, for readers that build their table row by row.

    Attributes:
        step, dp, pp, tp: step number and position of the worker.
        op_type: e.g. "forward-compute", "backward-recv", "grads-reduce-scatter", or the name of any other work.
        micro_batch, chunk: `NONE` where the op belongs to none; `chunk` counts within the stage.
        start_s: on a clock that all workers share.
        duration_s: waiting for peers included.
        stream: where it ran; ops of one stream of one worker do not overlap. Empty: one stream per op type.
        group: ops of one step with equal non-empty group meet: none finishes before the last has started.
        rank: global rank of the worker, `NONE` if the source does not say.
    """

    step: int
    dp: int
    pp: int
    tp: int
    op_type: str
    micro_batch: int
    chunk: int
    start_s: float
    duration_s: float
    stream: str = ""
    group: str = ""
    rank: int = NONE


class KernelPool(NamedTuple):
    """Kernels that are taken to be alike.

    Attributes:
        name: of the kernel; on a CPU, of the operator.
        shapes: of the inputs of its operator as text, `ANY_SIZE` for a size that changes; "" where they were not recorded.
        stream: that it ran on, "" on a CPU.
    """

    name: str
    shapes: str
    stream: str

    def __str__(self) -> str:
        return " ".join(part for part in self if part)


@dataclass(frozen=True)
class KernelRows:
    """One entry per recorded kernel.

    Attributes:
        row: of the op in the table of ops.
        pool: index into `pools`.
        start_s: on any clock that orders the kernels of an op.
        seconds: that it adds to the op: from its start, or the end of the kernels before it if that is later, to its end.
    """

    row: NDArray[np.int64]
    pool: NDArray[np.int64]
    pools: tuple[KernelPool, ...]
    start_s: Floats
    seconds: Floats


@dataclass(frozen=True)
class TraceKernels:
    """Kernels of every op.

    Attributes:
        pools: all of them.
        op, pool: [entry] where it runs, and what it is.
        seconds: [entry, replica, step] that it adds to its op; NaN where it did not run.
    """

    pools: tuple[KernelPool, ...]
    op: Ints
    pool: Ints
    seconds: Floats

    def choose(self, steps: NDArray, replicas: NDArray) -> TraceKernels:
        """Kernels of some of the steps and replicas (indices), those that ran there."""
        seconds = self.seconds[:, np.asarray(replicas)[:, None], np.asarray(steps)[None, :]]
        ran = ~np.isnan(seconds).all(axis=(1, 2))
        return TraceKernels(self.pools, self.op[ran], self.pool[ran], seconds[ran])


NUMBERS: dict[str, Any] = {
    "step": np.int64,
    **dict.fromkeys(("dp", "pp", "tp", "micro_batch", "chunk", "rank"), np.int32),
    **dict.fromkeys(("start_s", "duration_s"), np.float64),
}  # columns of numbers
TEXTS = ("op_type", "stream", "group")  # columns of texts


@dataclass(frozen=True)
class OpTable:
    """Recorded ops as columns, one entry per row; see `OpRow`.

    Attributes:
        source: the file, for messages.
        op_type, stream, group: index into the names of the same field plural; group -1 for none.
        clock_error_s: how far clocks of workers may still disagree; bounds what can be read off their differences.
        notes: what the reader wants people to know.
        kernels: those inside the ops, where the reader was asked for them.
        busy: time of kernels by rank and class; empty where the source has no kernels.
        may_differ: whether ops were found in a recording that may hold a part of them (samples), so that what not all workers
            did in all steps may be left out, instead of the steps.
    """

    source: str
    step: NDArray[np.int64]
    dp: Ints
    pp: Ints
    tp: Ints
    op_type: Ints
    micro_batch: Ints
    chunk: Ints
    start_s: Floats
    duration_s: Floats
    op_types: tuple[str, ...]
    stream: Ints
    streams: tuple[str, ...]
    group: Ints
    groups: tuple[str, ...]
    rank: Ints
    clock_error_s: float = 0.0
    notes: tuple[str, ...] = field(default=())
    kernels: KernelRows | None = None
    busy: tuple[BusyClass, ...] = ()
    may_differ: bool = False

    def __len__(self) -> int:
        return len(self.step)

    @classmethod
    def from_rows(
        cls, source: str, rows: list[OpRow], *, clock_error_s: float = 0.0, notes: tuple[str, ...] = ()
    ) -> OpTable:
        """Table of rows that a reader has collected.

        Raises:
            DataError: no rows, or a row with an impossible number; names the row (from 1) and the field.
        """
        if not rows:
            raise DataError(f"{source}: no recorded ops. Record at least a few steps.")
        numbers = {name: np.array([getattr(row, name) for row in rows]) for name in NUMBERS}
        check_columns(source, numbers)
        columns: dict[str, Any] = {name: values.astype(NUMBERS[name]) for name, values in numbers.items()}
        for name in TEXTS:
            found, codes = np.unique([getattr(row, name) for row in rows], return_inverse=True)
            columns |= {name: codes.astype(np.int32), f"{name}s": tuple(found.tolist())}
        unnamed = np.array(columns["groups"]) == ""
        columns["group"] = np.where(unnamed[columns["group"]], NONE, columns["group"]).astype(np.int32)
        return cls(source=source, **columns, clock_error_s=clock_error_s, notes=notes)


MAX_RANKS = 1_000_000
MAX_SECONDS = 1e7  # 115 days for one op
_RANGES = {
    "step": (0, 2**53),
    "dp": (0, MAX_RANKS),
    "pp": (0, MAX_RANKS),
    "tp": (0, MAX_RANKS),
    "micro_batch": (NONE, MAX_RANKS),
    "chunk": (NONE, MAX_RANKS),
    "start_s": (-1e12, 1e12),
    "duration_s": (0.0, MAX_SECONDS),
    "rank": (NONE, MAX_RANKS),
}


def check_columns(
    source: str,
    columns: dict[str, NDArray],
    *,
    at: Callable[[int], str] | None = None,
    names: Mapping[str, str] | None = None,
) -> None:
    """Refuse numbers that no trace contains.

    Args:
        at: where a row (from 0) stands in the source, e.g. "ops.csv:12"; by default its number, from 1.
        names: what the source calls a field, where it has its own name for it.

    Raises:
        DataError: names the first such row and its field.
    """
    for field_name, (low, high) in _RANGES.items():
        if field_name not in columns:
            continue
        values = columns[field_name]
        with np.errstate(invalid="ignore"):
            good = (values >= low) & (values <= high)  # NaN is not good
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            place = at(row) if at else f"{source}: row {row + 1}"
            name = (names or {}).get(field_name, field_name)
            raise DataError(f"{place} {name}: {values[row]} is not between {low:g} and {high:g}")


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
        kernels: those inside the ops, where the recording was opened with them.
        busy: time of kernels by rank and class; empty where the source has no kernels.
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
    kernels: TraceKernels | None = None
    busy: tuple[BusyClass, ...] = ()

    @property
    def n_replica(self) -> int:
        """Recorded data-parallel replicas."""
        return self.start_s.shape[1]

    @property
    def n_stage(self) -> int:
        """Pipeline stages."""
        return 1 + max(op.stage for op in self.ops)

    @property
    def n_steps(self) -> Ints:
        """[step] steps that each time is of: 1, other than in the entries of a log."""
        return np.ones(len(self.steps), np.int32)

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

    def choose(self, steps: NDArray | None = None, replicas: NDArray | None = None) -> Trace:
        """Trace with some of the steps and replicas (indices)."""
        step = np.arange(len(self.steps)) if steps is None else np.asarray(steps)
        replica = np.arange(self.n_replica) if replicas is None else np.asarray(replicas)
        cells = (slice(None), replica[:, None], step[None, :])
        kernels = None if self.kernels is None else self.kernels.choose(step, replica)
        chosen = {"steps": self.steps[step], "rank": self.rank[replica], "kernels": kernels}
        return replace(self, start_s=self.start_s[cells], end_s=self.end_s[cells], **chosen)
