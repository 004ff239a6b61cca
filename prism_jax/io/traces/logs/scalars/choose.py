"""Which of the names in a file are the number of the step, its time and the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .....errors import DataError
from .names import CLOCKS, MEANS, NOT_TRAINING, STEPS, TIMES, is_clock, is_step, is_time, meaning

MOST_SHOWN = 12
SAY_UNIT = "State it with --unit s or --unit ms (`fit`: --unit duration=ms), or rename it, for example to step_time_s"
LOOKED_FOR = (
    "a step time (step_time_s, iteration_time_ms, elapsed_time_per_iteration_s, train/step_time_s, seconds, ...) or the time of "
    "each entry (_timestamp, _runtime, wall_time, timestamp)"
)


@dataclass(frozen=True)
class Chosen:
    """Names in the file.

    Attributes:
        step: of the number of the step; None: entries are counted.
        time: of the step time; None: it follows from the clock.
        unit_s: of the step time; None where its name does not say, and the clock has to.
        clock: of the time of the entry; None where there is none.
        clock_unit_s: None where its name does not say.
        is_mean: whether a time is a mean over the steps since the entry before.
    """

    step: str | None
    time: str | None
    unit_s: float | None
    clock: str | None
    clock_unit_s: float | None
    is_mean: bool


def is_told(names: Sequence[str]) -> bool:
    """Whether among these names is a step time or a clock."""
    steps = any(map(is_step, names))
    return any(is_time(name, beside_steps=steps) or (steps and is_clock(name)) for name in names)


def choose(names: Sequence[str], place: str, unit_s: float | None = None) -> Chosen:
    """What is read of a file with these names.

    Args:
        place: for messages.
        unit_s: seconds of the unit of a step time whose name says none.

    Raises:
        DataError: no step time and no clock, several that could be it, or a unit that nothing tells.
    """
    steps = _best(names, is_step, STEPS)
    times = _best(names, lambda name: is_time(name, beside_steps=bool(steps)), TIMES)
    clocks = _best(names, is_clock, CLOCKS)
    if not times and not clocks:
        raise DataError(f"{place}: no column of step times. Looked for {LOOKED_FOR}. There are {_shown(names)}.")
    for what, found in (("the step time", times), ("the time of an entry", () if times else clocks)):
        if len(found) > 1:
            raise DataError(f"{place}: several could be {what}: {_shown(found)}. Keep one, or export one run.")
    time = times[0] if times else None
    clock = clocks[0] if len(clocks) == 1 else None
    unit_s = None if time is None else stated_unit(time, unit_s, place)
    if time is not None and unit_s is None and (clock is None or not steps):
        raise DataError(f"{place} {time!r}: nothing says the unit. {SAY_UNIT}.")
    return Chosen(
        step=steps[0] if steps else None,
        time=time,
        unit_s=unit_s,
        clock=clock,
        clock_unit_s=None if clock is None else meaning(clock).unit_s,
        is_mean=time is not None and meaning(time).base in MEANS,
    )


def stated_unit(name: str, unit_s: float | None, place: str) -> float | None:
    """Seconds of the unit of a step time: what its name says, else what a person has stated.

    Raises:
        DataError: they contradict each other.
    """
    own = meaning(name).unit_s
    if own is not None and unit_s is not None and own != unit_s:
        raise DataError(f"{place} {name!r}: its name says another unit than --unit. Leave out --unit, or rename it.")
    return unit_s if own is None else own


def _best(names: Sequence[str], fits: Callable[[str], bool], order: Sequence[str]) -> list[str]:
    """The names that fit, of training rather than evaluation, of the first quantity in `order` that any is."""
    found = [name for name in names if fits(name)]
    found = [name for name in found if not NOT_TRAINING.search(name)] or found
    rank = {name: order.index(base) if (base := meaning(name).base) in order else len(order) for name in found}
    first = min(rank.values(), default=0)
    return [name for name in found if rank[name] == first]


def _shown(names: Sequence[str]) -> str:
    short = [repr(name[:60]) for name in names[:MOST_SHOWN]]
    return ", ".join(short) + (", ..." if len(names) > MOST_SHOWN else "")
