"""Defines StepLog, measured step times without their ops; TraceFormat, how files are read; and what of them is warm-up.

Warm-up (compilation, allocator, first data) is left out. The rule. Later steps are those of the second half of the recording;
their median is the typical step. A step is *unlike* them if it is further from the typical one than a factor 1.5, or than 6
robust standard deviations of the logarithm, whichever is more, either way: asynchronous dispatch makes one of the first steps too
short. A recording begins with a warm-up if its first step is unlike. The warm-up lasts until two steps in a row are like the
later ones. If that takes more than a fifth of the recording, it is no warm-up but a job that changed, and nothing is left out. A
log that starts over has a warm-up after every start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats, Ints
from ..core.errors import DataError
from ..core.readable import counted, first_few, short_numbers
from ..core.robust import robust_sd
from ..core.units import format_s
from .rank_times import RankTimes
from .trace import MAX_SECONDS, JobShape, OpTable, Trace


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
        ranks: what every rank and part of the steps took; None where the log does not tell.

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
    ranks: RankTimes | None = None

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

    def choose(self, steps: NDArray) -> StepLog:
        """Log with some of the entries (indices)."""
        ranks = None if self.ranks is None else self.ranks.choose(steps)
        return replace(self, step=self.step[steps], step_s=self.step_s[steps], n_steps=self.n_steps[steps], ranks=ranks)


MOST_POINTS = 300


@dataclass(frozen=True)
class StepPoints:
    """Steps of a recording as a picture needs them: few enough to be kept in a report.

    Attributes:
        step, step_s: numbers and seconds, in the order of the recording.
        stands_for: how many steps each stands for.
    """

    step: tuple[int, ...]
    step_s: tuple[float, ...]
    stands_for: tuple[int, ...]


def step_points(steps: NDArray, step_s: Floats, most: int = MOST_POINTS) -> StepPoints:
    """All of few steps; of many the middle one and the longest of every block of successive ones.

    Args:
        steps: [entry] numbers.
        step_s: [entry] seconds.
        most: steps that are kept.
    """
    kept = dict.fromkeys(range(len(step_s)), 1)
    if len(step_s) > most:
        kept = {}
        for block in np.array_split(np.arange(len(step_s)), max(1, most // 2)):
            ordered = block[np.argsort(step_s[block], kind="stable")]
            kept |= {int(ordered[len(block) // 2]): max(1, len(block) - 1), int(ordered[-1]): 1}
    entries = sorted(kept)
    return StepPoints(
        tuple(int(steps[entry]) for entry in entries),
        short_numbers(step_s[entries], 6),
        tuple(kept[entry] for entry in entries),
    )


FACTOR = 1.5
ROBUST_SD = 6.0
LARGEST_SHARE = 0.2
FEWEST = 5  # recorded steps; of fewer, nothing tells which are typical
SHOWN = 3  # steps that the note lists

HINT = "; --skip 0 keeps them, --skip N leaves out the first N"

Recorded = TypeVar("Recorded", bound=Trace | StepLog)


def without_warm_up(recorded: Recorded, skip: int | None = None, hint: str = HINT) -> tuple[Recorded, int]:
    """`recorded` without its first steps, with a note that says which and why; and how many entries were left out.

    Args:
        skip: first steps to leave out; 0: none; None: those that the rule of this module calls warm-up.
        hint: what the note on warm-up says of how to do otherwise.

    Raises:
        DataError: nothing would be left.
    """
    n_steps = recorded.n_steps
    kept = _after_warm_up(recorded) if skip is None else np.cumsum(n_steps) - n_steps >= skip
    n_left_out = int((~kept).sum())
    if n_left_out == 0:
        return recorded, 0
    if not kept.any():
        raise DataError(
            f"{recorded.source}: --skip {skip} leaves none of {int(n_steps.sum()):,} recorded steps. Skip fewer."
        )
    if skip is None:
        note = _note(recorded.step_s, kept, recorded.steps) + hint
    else:
        n = int(n_steps[~kept].sum())
        what = "recorded step is" if n == 1 else f"{n:,} recorded steps are"
        note = f"the first {what} left out (--skip {skip})"
    chosen = recorded.choose(np.flatnonzero(kept))
    return cast(Recorded, replace(chosen, notes=(*recorded.notes, note))), n_left_out


def is_warm_up(step_s: Floats, typical_s: float, log_sd: float) -> NDArray[np.bool_]:
    """[step] whether a step belongs to the warm-up that the steps of one start begin with.

    Args:
        step_s: [step] seconds, in the order of time.
        typical_s: median of the later steps.
        log_sd: their robust standard deviation, of the logarithm.
    """
    like = np.abs(np.log(step_s / typical_s)) <= max(np.log(FACTOR), ROBUST_SD * log_sd)
    warm = np.zeros(len(step_s), bool)
    if len(step_s) == 0 or like[0]:
        return warm
    settled = np.flatnonzero(like[:-1] & like[1:])
    if len(settled):
        warm[: settled[0]] = True
    return warm


def _after_warm_up(recorded: Trace | StepLog) -> NDArray[np.bool_]:
    step_s = recorded.step_s
    kept = np.ones(len(step_s), bool)
    if len(step_s) < FEWEST:
        return kept
    later = np.log(step_s[len(step_s) // 2 :])
    middle = float(np.median(later))
    log_sd = robust_sd(later, middle)
    starts = np.flatnonzero(np.diff(recorded.steps) < 0) + 1  # where a log starts over
    for start in np.split(np.arange(len(step_s)), starts):
        warm = is_warm_up(step_s[start], np.exp(middle), log_sd)
        kept[start[warm]] = False
    return kept if (~kept).sum() <= max(LARGEST_SHARE * len(kept), 1) else np.ones(len(step_s), bool)


def _note(step_s: Floats, kept: NDArray[np.bool_], steps: NDArray) -> str:
    out = np.flatnonzero(~kept)
    typical_s = float(np.median(step_s[kept]))
    numbers = first_few([str(steps[i]) for i in out], SHOWN)
    ratios = first_few([f"{step_s[i] / typical_s:.3g}" for i in out], SHOWN)
    is_are, s = ("is", "") if len(out) == 1 else ("are", "s")
    return (
        f"{counted(len(out), 'recorded step')} {is_are} left out as warm-up (step{s} {numbers}: {ratios} times the median of the "
        f"others, {format_s(typical_s)})"
    )


@dataclass(frozen=True)
class Stated:
    """Statements of a person about a log, because the log does not make them.

    Attributes:
        unit_s: seconds of the unit of step times whose name says none.
        per_step: work of a step (tokens, samples), which turns a rate into a time.
        columns: name in the file -> field (step, step_time, rate, clock), or the other way round.
        pattern: regular expression with named groups that finds the steps in a text.
        rank: that a profile was recorded on.
        kernels: whether a profile is read with the kernels inside its ops.
    """

    unit_s: float | None = None
    per_step: float | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    pattern: str | None = None
    rank: int | None = None
    kernels: bool = False


NOTHING_STATED = Stated()

Recording: TypeAlias = OpTable | StepLog | tuple[OpTable, JobShape | None]


@dataclass(frozen=True)
class FileStart:
    """Path and first bytes of a file, by which its format is recognised.

    Attributes:
        path: a regular file that may be read and is not empty.
        start: first bytes of the content, unpacked if it is gzip; at most 64 KiB.
    """

    path: Path
    start: bytes

    @cached_property
    def text(self) -> str:
        """The beginning as text, without a byte order mark and leading white space."""
        return self.start.decode("utf-8", "replace").lstrip("\ufeff \t\r\n\v\f")

    @property
    def name(self) -> str:
        """Name of the file in lower case, without `.gz`."""
        return self.path.name.lower().removesuffix(".gz")


@dataclass(frozen=True)
class TraceFormat:
    """One format of recorded jobs.

    Attributes:
        name: in `prism-jax show traces`.
        about: what such files are, for messages that list what is read: "MLPerf logs (:::MLLOG)".
        recognises: whether a file that begins so has this format; the content counts before the name. Formats are asked in turn,
            the one added last first, so a format claims only what it is sure of. May raise `DataError` for a file that no
            format reads.
        read: ops, or step times, of one job from its files (one file, unless there is `of_folder`). It may also return
            the degrees that the files state. Raises `DataError` that names the place and the remedy.
        read_stated: as `read`, for logs with statements of a person about them. None where there is nothing to state.
        of_folder: the files of one job among those in a folder; None where a job is one file.
    """

    name: str
    about: str
    recognises: Callable[[FileStart], bool]
    read: Callable[[Sequence[Path]], Recording]
    of_folder: Callable[[Sequence[Path]], Sequence[Path]] | None = None
    read_stated: Callable[[Sequence[Path], Stated], Recording] | None = None
