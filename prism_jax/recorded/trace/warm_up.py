"""Which of the first recorded steps are warm-up (compilation, allocator, first data) and left out.

The rule. Later steps are those of the second half of the recording; their median is the typical step. A step is *unlike* them if
it is further from the typical one than a factor 1.5, or than 6 robust standard deviations of the logarithm, whichever is more,
either way: asynchronous dispatch makes one of the first steps too short. A recording begins with a warm-up if its first step is
unlike. The warm-up lasts until two steps in a row are like the later ones. If that takes more than a fifth of the recording, it
is no warm-up but a job that changed, and nothing is left out. A log that starts over has a warm-up after every start.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ..._typing import Floats, Ints
from ...errors import DataError
from .step_log import StepLog
from .trace import Trace

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
    step_s, n_steps = recorded.step_s, _lengths(recorded)
    kept = _after_warm_up(recorded) if skip is None else _after(n_steps, skip)
    n_left_out = int((~kept).sum())
    if n_left_out == 0:
        return recorded, 0
    if not kept.any():
        raise DataError(
            f"{recorded.source}: --skip {skip} leaves none of {int(n_steps.sum()):,} recorded steps. Skip fewer."
        )
    left = np.flatnonzero(kept)
    chosen = recorded.choose(left) if isinstance(recorded, StepLog) else recorded.choose(steps=left)
    if skip is None:
        note = _note(step_s, kept, np.asarray(recorded.steps)) + hint
    else:
        note = f"the first {_counted(int(n_steps[~kept].sum()))} left out (--skip {skip})"
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
    step_s = np.asarray(recorded.step_s)
    kept = np.ones(len(step_s), bool)
    if len(step_s) < FEWEST:
        return kept
    later = np.log(step_s[len(step_s) // 2 :])
    middle = float(np.median(later))
    log_sd = 1.4826 * float(np.median(np.abs(later - middle)))
    for start in np.split(np.arange(len(step_s)), _starts(recorded)):
        warm = is_warm_up(step_s[start], np.exp(middle), log_sd)
        kept[start[warm]] = False
    return kept if (~kept).sum() <= max(LARGEST_SHARE * len(kept), 1) else np.ones(len(step_s), bool)


def _starts(recorded: Trace | StepLog) -> NDArray[np.int64]:
    """Entries at which a log starts over."""
    return np.flatnonzero(np.diff(np.asarray(recorded.steps)) < 0) + 1


def _lengths(recorded: Trace | StepLog) -> Ints:
    return recorded.n_steps if isinstance(recorded, StepLog) else np.ones(len(recorded.step_s), np.int32)


def _after(n_steps: Ints, skip: int) -> NDArray[np.bool_]:
    """Entries that hold none of the first `skip` steps."""
    return np.cumsum(n_steps) - n_steps >= skip


def _counted(n: int) -> str:
    return "recorded step is" if n == 1 else f"{n:,} recorded steps are"


def _note(step_s: Floats, kept: NDArray[np.bool_], steps: NDArray) -> str:
    out = np.flatnonzero(~kept)
    typical_s = float(np.median(step_s[kept]))
    numbers = ", ".join(str(steps[i]) for i in out[:SHOWN]) + (", ..." if len(out) > SHOWN else "")
    ratios = ", ".join(f"{step_s[i] / typical_s:.3g}" for i in out[:SHOWN]) + (", ..." if len(out) > SHOWN else "")
    what = "1 recorded step is" if len(out) == 1 else f"{len(out):,} recorded steps are"
    return (
        f"{what} left out as warm-up (step{'' if len(out) == 1 else 's'} {numbers}: {ratios} times the median of the others, "
        f"{typical_s:.4g} s)"
    )
