"""PowerLaw: watts of one GPU against clock and work, the clock that a power limit allows, and what that costs in time.

    P(c) = TDP (idle + (1 - idle) busy g(c))        c: clock / top clock
    g(c) = c^k                    c >= floor        voltage falls with the clock
         = floor^(k-1) c          below             voltage is at its least, so that a slower step takes more energy
    t(c) = t(1) (1 - bound + bound / c)             bound: share of the seconds that follow the clock

Powers are shares of the device's own limit (TDP), so that one law serves a generation; the top clock is the one that matrix
products hold there. Inputs may be JAX arrays.

Source: dynamic power C V^2 f; sweeps of 38 and 60 clocks of A100 and A40 (Perseus, arXiv 2312.06902), power limits of V100, A40
and RTX 6000 (Zeus, NSDI 2023); see `experiments/power`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .._core.arrays import Values, is_traced, namespace
from ..errors import Problem, SpecError

LOWEST_CLOCK = 0.15  # of the top clock: 210 of 1,410 MHz on A100, 345 of 1,980 MHz on H100
MOST_EXPONENT = 10.0
WAITING = "waiting"
"""The kind of work whose time is that of others, so that it stretches as compute does."""


@dataclass(frozen=True)
class PowerLaw:
    """Power of one kind of GPU.

    Attributes:
        idle_share: power at the least work, of TDP, in [0, 1).
        exponent: k, of the clock in dynamic power while voltage falls with it, >= 1.
        floor_clock: clock below which voltage stays, of the top clock, in (0, 1].
        busy: kind of work -> dynamic power at the top clock, of TDP - idle, >= 0. More than 1 is held back by the limit.
        bound: kind of work -> share of its seconds that follow the clock, in [0, 1]; `WAITING` follows compute instead.
        lowest_clock: that the GPU can hold, of the top clock, in (0, 1]; a limit below its power is exceeded.
        source: of the figures.

    Raises:
        SpecError: a figure is out of its range.
    """

    idle_share: Values
    exponent: Values
    floor_clock: Values
    busy: Mapping[str, Values]
    bound: Mapping[str, Values]
    lowest_clock: float = LOWEST_CLOCK
    source: str = ""

    def __post_init__(self) -> None:
        _check("idle_share", self.idle_share, 0.0, 0.99)
        _check("exponent", self.exponent, 1.0, MOST_EXPONENT)
        _check("floor_clock", self.floor_clock, 0.01, 1.0)
        _check("lowest_clock", self.lowest_clock, 0.01, 1.0)
        for kind, value in self.busy.items():
            _check(f"busy of {kind}", value, 0.0, 2.0)
        for kind, value in self.bound.items():
            _check(f"bound of {kind}", value, 0.0, 1.0)

    def dynamic(self, clock: Values) -> Values:
        """g: dynamic power at `clock`, of that at the top clock."""
        xp = namespace(self, clock)
        k, floor = self.exponent, self.floor_clock
        above = xp.maximum(clock, floor)
        return xp.where(clock >= floor, above**k, floor ** (k - 1.0) * clock)

    def share(self, clock: Values, busy: Values) -> Values:
        """Power, of TDP."""
        return self.idle_share + (1.0 - self.idle_share) * busy * self.dynamic(clock)

    def clock_under(self, limit_share: Values, busy: Values) -> Values:
        """The highest clock, of the top one, at which work draws no more than a limit.

        Args:
            limit_share: power limit, of TDP.
            busy: dynamic power of the work at the top clock, of TDP - idle.

        Returns:
            1 where the limit holds nothing back, `lowest_clock` where no clock is low enough.
        """
        xp = namespace(self, limit_share, busy)
        room = (limit_share - self.idle_share) / (1.0 - self.idle_share) / xp.maximum(busy, 1e-12)
        return xp.clip(self.clock_at(room), self.lowest_clock, 1.0)

    def clock_at(self, dynamic: Values) -> Values:
        """The clock of a dynamic power: the inverse of `dynamic`, which goes on beyond the top clock."""
        xp = namespace(self, dynamic)
        k, floor = self.exponent, self.floor_clock
        knee = floor**k
        above = xp.maximum(dynamic, knee) ** (1.0 / k)
        below = xp.maximum(dynamic, 0.0) / floor ** (k - 1.0)
        return xp.where(dynamic >= knee, above, below)


def slowdown(bound: Values, clock: Values) -> Values:
    """Seconds at a clock over those at the top clock.

    Args:
        bound: share of the seconds at the top clock that follow the clock.
        clock: of the top clock.
    """
    return 1.0 - bound + bound / clock


def _check(name: str, value: Values, least: float, most: float) -> None:
    if not is_traced(value) and not least <= value <= most:
        raise SpecError.of(Problem(name, f"{value}, but it must be between {least:g} and {most:g}"), "power law")
