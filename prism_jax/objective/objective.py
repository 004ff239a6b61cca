"""Objective: a number of an outcome, smaller is better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .outcome import Array, Outcome


@dataclass(frozen=True)
class Objective:
    """What is to be small about a plan.

    Attributes:
        name: how `search` and `place` are asked for it.
        about: what it is, for people.
        of: its value [...] of an outcome [..., sample], by functions of `outcome.xp` alone, so that it runs on the host and
            in jitted code and can be differentiated. Positive; it must not fall where a step takes longer, and of one sample it
            is the value of a step that always takes as long: a search leaves plans out on these grounds.
        smooth: stand-in with a gradient in more samples, for searches that follow gradients; `of` if not given.
        needs: fields of `PlanFacts` that it cannot do without, checked before anything is simulated.
        unit: of the value.

    Example:
        >>> import numpy as np
        >>> spread = Objective("mean_2sd", "mean plus two sd", lambda o: o.samples_s.mean(-1) + 2 * o.samples_s.std(-1))
        >>> float(spread.of(Outcome(np.array([1.0, 3.0]))))
        4.0
    """

    name: str
    about: str
    of: Callable[[Outcome], Array]
    smooth: Callable[[Outcome], Array] | None = None
    needs: tuple[str, ...] = ()
    unit: str = "s"

    def smoothed(self, outcome: Outcome) -> Array:
        """`smooth` where there is one, else `of`."""
        return self.of(outcome) if self.smooth is None else self.smooth(outcome)
