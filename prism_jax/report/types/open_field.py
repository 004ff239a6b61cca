"""OpenFieldFacts: a field that a job leaves unsaid, and what it may do to the step."""

from __future__ import annotations

from dataclasses import dataclass

TOLD = 3  # fields that a person is told of; a report holds all
SMALLEST_GAIN = 0.005  # of the width of an interval


@dataclass(frozen=True)
class Alternative:
    """What the field may be instead.

    Attributes:
        value: as a job file has it.
        odds: its probability.
        change: of the step if it is that value instead of the assumed one, relative.
    """

    value: str
    odds: float
    change: float


@dataclass(frozen=True)
class OpenFieldFacts:
    """One field.

    Attributes:
        name: `software.norm`.
        assumed: the likeliest value, which memory and plan are checked with.
        odds: its probability.
        alternatives: the others.
        narrows: share of the width of the interval that goes if the field is stated.
    """

    name: str
    assumed: str
    odds: float
    alternatives: tuple[Alternative, ...]
    narrows: float

    @property
    def sentence(self) -> str:
        """What a person reads."""
        return f"assumed {self.name}: {self.words}"

    @property
    def words(self) -> str:
        """The same without the name."""
        others = ", ".join(f"{one.value} ({one.odds:.0%}) {one.change:+.1%}" for one in self.alternatives)
        gain = f"; stated, the interval is {self.narrows:.0%} narrower" if self.narrows >= SMALLEST_GAIN else ""
        return f"{self.assumed} ({self.odds:.0%}); {others}{gain}"
